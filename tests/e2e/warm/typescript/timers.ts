// Timers wait as long as they say although the process is older, and come in order.
import { performance } from 'node:perf_hooks';
const begun = Date.now();
const order: string[] = [];
const after = (ms: number) => setTimeout(() => order.push(`${ms}${Date.now() - begun >= ms - 2 ? '' : ' early'}`), ms);
[60, 20, 40, 1, 0].forEach(after);
let ticks = 0;
const ticked = new Promise<void>((done) => { const interval = setInterval(() => { if (++ticks === 3) { clearInterval(interval); done(); } }, 5); });
const cancelled = setTimeout(() => order.push('cancelled'), 10);
clearTimeout(cancelled);
setTimeout(() => order.push('unref'), 5000).unref();
const from = performance.now();
setTimeout(async (a: string, b: number) => { await ticked; console.log(a, b, order, ticks, performance.now() - from >= 98); }, 100, 'end', 1);
setImmediate(() => console.log('immediate'));
