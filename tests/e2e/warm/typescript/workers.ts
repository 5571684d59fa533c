// Worker threads that run this same program, and one from a string.
import { Worker, isMainThread, parentPort, workerData, threadId, MessageChannel, SHARE_ENV } from 'node:worker_threads';
enum Job { Square = 'square', Fail = 'fail' }
if (!isMainThread) {
  const { job, n } = workerData as { job: Job; n: number };
  if (job === Job.Fail) throw new TypeError(`worker ${n} fails`);
  parentPort!.postMessage({ n: n * n, id: threadId > 0, argv: process.argv, env: process.env.SANDBOX_MAIN !== undefined });
} else {
  const run = (data: object, file = __filename) => new Promise((resolve, reject) => new Worker(file, { workerData: data }).on('message', resolve).on('error', reject));
  console.log(await Promise.all([1, 2, 3].map((n) => run({ job: Job.Square, n }))));
  await run({ job: Job.Fail, n: 4 }).catch((error) => console.log(error.name, error.message, error.stack.includes('/data/main.ts:5:')));
  const code = new Worker('const { parentPort } = require("worker_threads"); parentPort.postMessage(process.execArgv)', { eval: true, env: SHARE_ENV });
  console.log(...(await Promise.all(['message', 'exit'].map((event) => new Promise((resolve) => code.on(event, resolve))))));
  const url = new Worker(new URL(import.meta.url), { workerData: { job: Job.Square, n: 9 } });
  console.log(await new Promise((resolve) => url.on('message', resolve)));
  const { port1, port2 } = new MessageChannel();
  port2.once('message', (value) => { console.log(value); port1.close(); });
  port1.postMessage(new Map([['k', 1n]]));
}
