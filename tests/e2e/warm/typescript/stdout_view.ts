// What the streams say of themselves.
console.log(process.stdout.isTTY, process.stdout.columns, process.stdout.constructor.name, process.stdout.fd, process.stdout.writableHighWaterMark);
console.log(process.stderr.constructor.name, process.stderr.fd, process.stdin.constructor.name, process.stdin.fd);
console.log(process.stdout.hasColors?.(), require('util').inspect({ a: [1, 'two', null] }, { colors: false }));
console.dir({ deep: { deeper: { deepest: { hidden: 1 } } } });
console.dir(new Map([['k', new Set([1])]]), { depth: 0 });
console.group('group'); console.info('info'); console.warn('warn'); console.groupEnd();
console.assert(1 > 2, 'one is not'); console.count(); console.count('x'); console.countReset(); console.count();
console.trace('trace');
console.log((process as any)._getActiveHandles().length, process.getActiveResourcesInfo());
