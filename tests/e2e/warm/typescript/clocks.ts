// The clocks begin where the program does, and agree.
import { performance, PerformanceObserver } from 'node:perf_hooks';
import { readFileSync } from 'node:fs';
// In ms: a clock that began with an earlier process has gone on for most of the container's life.
const word = (file: string, n: number) => Number(readFileSync(file, 'utf8').split(' ')[n]);
const older = () => (1000 * word('/proc/uptime', 0) - 10 * word('/proc/1/stat', 21)) / 2;
const near = (a: number, b: number, by: number) => Math.abs(a - b) < by;
const now = performance.now();
console.log(now >= 0 && now < older(), near(performance.timeOrigin + now, Date.now(), 1000), process.uptime() * 1000 < older());
performance.mark('a');
const spin = Date.now(); while (Date.now() - spin < 20);
const b = performance.mark('b', { detail: { x: 1 } });
const m = performance.measure('m', 'a', 'b');
console.log(m.name, m.duration >= 19 && m.duration < older(), b.startTime <= performance.now(), b.detail, m.startTime < b.startTime);
const rest = performance.measure('rest', 'a'), given = performance.measure('given', { start: now, end: now + 7, detail: 'd' });
console.log(rest.duration >= m.duration && rest.duration < older(), Math.round(given.duration), given.detail, performance.measure('all').duration < older());
console.log(performance.getEntriesByType('mark').length, performance.mark('c', { startTime: 5 }).startTime, performance.measure('d', { start: 1, duration: 2 }).duration);
try { performance.measure('n', 'missing'); } catch (error: any) { console.log(error.name, error.message); }
try { (performance.mark as any)(); } catch (error: any) { console.log(error.code); }
const t = process.hrtime.bigint(), [s] = process.hrtime();
console.log(typeof t, near(Number(t / 1_000_000_000n), s, 2), near(new Date().getTime(), Date.now(), 50));
console.log(performance.now.length, performance.now.name, performance.mark.length, performance.measure.length, process.uptime.name, Object.keys(performance.toJSON()));
console.log(performance.timerify((x: number) => x + 1)(1), typeof PerformanceObserver, performance.eventLoopUtilization().utilization);
