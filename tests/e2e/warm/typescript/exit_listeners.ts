// What listeners of the end do counts: the code that the last one sets, and what it prints.
process.on('beforeExit', () => console.log('before', process.exitCode));
process.on('exit', (code) => { console.log('first', code, process.exitCode); process.exitCode = 5; });
process.on('exit', (code) => { console.log('second', code, process.exitCode); process.exitCode = 6; });
setTimeout(() => console.log('timer'), 5);
