// The same in an ES module, and in a callback of a timer.
import { EventEmitter } from 'node:events';
const emitter: EventEmitter = new EventEmitter();
process.on('exit', (code) => console.log('exit', code));
emitter.on('go', (value: { a?: { b: number } }) => {
  console.log(value.a!.b);
});
await null;
console.log(new Error('here').stack);
setTimeout(() => emitter.emit('go', {}), 5);
