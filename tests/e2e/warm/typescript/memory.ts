// The heap is large, and what is too much ends the same way. (Its size follows the container's memory.)
const { heap_size_limit } = require('v8').getHeapStatistics();
console.log(heap_size_limit > 2 ** 28, process.memoryUsage().heapUsed < 64 * 2 ** 20, typeof (globalThis as any).gc);
const lots = Array.from({ length: 300_000 }, (_, i) => ({ i, text: `t${i}` })); console.log(lots.length, lots[299_999]);
try { 'x'.repeat(2 ** 30); } catch (error: any) { console.log(error.name, error.message); }
try { new ArrayBuffer(2 ** 53); } catch (error: any) { console.log(error.name, error.message); }
