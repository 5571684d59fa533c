// A signal that ends the program.
console.log('alive', process.pid === Number(require('fs').readlinkSync('/proc/self')));
process.kill(process.pid, 'SIGTERM');
setTimeout(() => console.log('never'), 2000);
