// process.abort: a signal again, and what was printed has arrived.
console.log('before the end');
process.stderr.write('on standard error\n');
process.kill(process.pid, 'SIGKILL');
