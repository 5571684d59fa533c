// A worker's error that nobody takes is the program's.
const { Worker, isMainThread } = require('worker_threads');
if (isMainThread) new Worker(__filename);
else { console.log('in the worker'); setTimeout(() => { throw new Error('from the worker'); }, 5); }
