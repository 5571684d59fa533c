// Memory: much of it, weak references, finalizers, and a heap that grows and shrinks.
const registry = new FinalizationRegistry<string>((name) => finalized.push(name));
const finalized: string[] = [];
let kept: unknown[] = [];
for (let round = 0; round < 5; round++) {
  kept = Array.from({ length: 300_000 }, (_, n) => ({ n, text: `item ${n}` }));
}
registry.register({}, 'gone');
const weak = new WeakRef(kept);
console.log(kept.length, weak.deref() === kept, (kept[299_999] as any).text);
kept = [];
const big = Array.from({ length: 40 }, () => new Float64Array(100_000).fill(1));
console.log(big.reduce((sum, array) => sum + array[99_999], 0), process.memoryUsage().heapUsed > 0);
const map = new Map<number, string>();
for (let i = 0; i < 200_000; i++) map.set(i, String(i));
console.log(map.size, [...map.values()].sort()[100]);
