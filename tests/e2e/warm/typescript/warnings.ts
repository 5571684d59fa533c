// Warnings on standard error, deprecations and too many listeners.
const write = process.stderr.write.bind(process.stderr); process.stderr.write = ((text: any, ...rest: any[]) => write(String(text).replace(/^\(node:\d+\)/, '(node:PID)'), ...rest)) as any;
import { EventEmitter } from 'node:events';
const emitter = new EventEmitter();
for (let i = 0; i < 11; i++) emitter.on('x', () => {});
setTimeout(() => {}, 2 ** 31);
process.nextTick(() => process.exit(3));
console.log('done', Buffer.alloc(2).length);
setTimeout(() => console.log('end'), 10);
