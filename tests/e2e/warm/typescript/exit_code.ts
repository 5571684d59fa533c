// process.exitCode, set and set again; the loop runs dry before it counts.
process.exitCode = 3;
process.on('beforeExit', (code) => { if (code === 3) { console.log('before', code); process.exitCode = 5; setTimeout(() => console.log('more'), 1); } });
process.on('exit', (code) => console.log('exit', code, process.exitCode));
setImmediate(() => console.log('immediate'));
process.nextTick(() => console.log('tick'));
Promise.resolve().then(() => console.log('micro'));
console.log('sync');
