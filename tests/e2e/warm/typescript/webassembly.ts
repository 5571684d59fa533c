// WebAssembly, compiled at once and later, and a memory that a worker shares.
import { Worker } from 'node:worker_threads';
// (module (func (export "add") (param i32 i32) (result i32) local.get 0 local.get 1 i32.add))
const bytes = Uint8Array.from([0, 97, 115, 109, 1, 0, 0, 0, 1, 7, 1, 96, 2, 127, 127, 1, 127, 3, 2, 1, 0, 7, 7, 1, 3, 97, 100, 100, 0, 0, 10, 9, 1, 7, 0, 32, 0, 32, 1, 106, 11]);
const now = new WebAssembly.Instance(new WebAssembly.Module(bytes));
console.log((now.exports.add as Function)(2, 3), WebAssembly.validate(bytes));
const later = await WebAssembly.instantiate(bytes);
let sum = 0;
for (let i = 0; i < 200_000; i++) sum = (later.instance.exports.add as Function)(sum, i & 7);
console.log(sum);
await WebAssembly.compile(Uint8Array.from([0, 97, 115, 109, 9])).catch((error) => console.log(error.constructor.name));
const memory = new WebAssembly.Memory({ initial: 1, maximum: 2, shared: true });
const cells = new Int32Array(memory.buffer);
const code = `const { workerData, parentPort } = require('node:worker_threads');
  const cells = new Int32Array(workerData.buffer);
  for (let i = 0; i < 1000; i++) Atomics.add(cells, 0, 1);
  Atomics.store(cells, 1, 1); Atomics.notify(cells, 1); parentPort.postMessage('done');`;
const workers = [1, 2].map(() => new Worker(code, { eval: true, workerData: memory }));
await Promise.all(workers.map((worker) => new Promise((resolve) => worker.once('message', resolve))));
console.log(cells[0], Atomics.load(cells, 1), Atomics.wait(cells, 1, 0));
// What only `waitAsync` waits for keeps no loop of node alive: node ends with 13 once the workers have ended.
const alive = setTimeout(() => {}, 60_000);
const waited = (Atomics as any).waitAsync(cells, 2, 0, 20);
console.log(waited.async, await waited.value);
clearTimeout(alive);
