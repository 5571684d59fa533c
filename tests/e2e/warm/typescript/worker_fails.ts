// A worker's error that nobody takes is the program's.
const { Worker, isMainThread } = require('worker_threads');
if (isMainThread) { const worker = new Worker(__filename); worker.on('exit', (code: number) => console.log('worker', code)); }
else { console.log('in the worker'); setTimeout(() => { throw new Error('from the worker'); }, 5); }
