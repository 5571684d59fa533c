// Programs that take such ends into their own hands.
const write = process.stderr.write.bind(process.stderr); process.stderr.write = ((text: any, ...rest: any[]) => write(String(text).replace(/^\(node:\d+\)/, '(node:PID)'), ...rest)) as any;
process.on('unhandledRejection', (reason: any, promise) => console.log('unhandled', reason.message, promise instanceof Promise));
process.on('rejectionHandled', () => console.log('handled late'));
process.on('uncaughtException', (error, origin) => console.log('uncaught', error.message, origin));
process.on('warning', (warning) => console.log('warning', warning.name, warning.message));
const late = Promise.reject(new Error('one'));
setTimeout(() => late.catch(() => console.log('caught')), 10);
setTimeout(() => { throw new Error('two'); }, 20);
process.emitWarning('careful', 'CustomWarning', 'C001');
