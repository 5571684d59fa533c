// The order of ticks, microtasks, timers and immediates, and the ids that node counts.
import { executionAsyncId, triggerAsyncId, AsyncResource } from 'node:async_hooks';
import { EventEmitter, on, once } from 'node:events';
const log: string[] = [];
setImmediate(() => log.push('immediate')); setTimeout(() => log.push('timeout'), 0); process.nextTick(() => log.push('tick')); Promise.resolve().then(() => log.push('micro')); queueMicrotask(() => log.push('queued')); log.push('sync');
(async () => { log.push('async'); await 0; log.push('after await'); for await (const x of (async function* () { yield 1; yield 2; })()) log.push(`yield ${x}`); })();
const emitter = new EventEmitter({ captureRejections: true });
emitter.once('a', (x) => log.push(`a ${x}`)); emitter.prependListener('a', () => log.push('first')); emitter.emit('a', 1); emitter.emit('a', 2);
emitter.on('error', (error) => log.push(error.message)); emitter.on('b', async () => { throw new Error('captured'); }); emitter.emit('b');
console.log(executionAsyncId(), triggerAsyncId(), new AsyncResource('x').asyncId());
setTimeout(async () => { console.log(log, emitter.listenerCount('a'), emitter.eventNames()); setTimeout(() => emitter.emit('c', 5), 1); console.log(await once(emitter, 'c')); new EventEmitter().emit('error', new Error('no listener')); }, 30);
