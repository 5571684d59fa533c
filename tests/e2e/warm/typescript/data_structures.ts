// Maps, sets, BigInt, typed arrays, JSON, regular expressions, structuredClone.
const words = 'the quick brown fox jumps over the lazy dog the end'.split(' ');
const counts = words.reduce((map, word) => map.set(word, (map.get(word) ?? 0) + 1), new Map<string, number>());
console.log([...counts].sort(([a, n], [b, m]) => m - n || a.localeCompare(b)).slice(0, 3), new Set(words).size, new Set([1, 2]).union(new Set([3])));
console.log(2n ** 100n, BigInt.asUintN(8, 257n), 7n / 2n, typeof 1n, [3n, 1n].toString(), Number.MAX_SAFE_INTEGER + 2, 0.1 + 0.2, (255).toString(16), parseInt('1010', 2));
console.log(JSON.stringify({ d: new Date(0), u: undefined, n: null, nested: { a: [1, { b: 2 }] }, f() {}, inf: Infinity }, (k, v) => (k === 'n' ? 'was null' : v), 1), JSON.parse('[1,2]', (k, v) => (typeof v === 'number' ? v * 2 : v)));
try { JSON.stringify(1n); } catch (error: any) { console.log(error.message); }
console.log('2024-02-29'.match(/(?<y>\d{4})-(?<m>\d\d)/)!.groups, 'aBc'.replace(/b/i, (m) => `<${m}>`), [...'a1b22'.matchAll(/\d+/g)].map((m) => m.index), /\p{L}+/u.exec('éa1')![0], 'x'.padStart(3, '-'), 'a-b'.split(/(-)/));
const copy = structuredClone({ m: new Map([[1, new Set([2])]]), d: new Date(5), r: /x/g, e: new RangeError('r'), b: new Uint8Array([1]) });
console.log(copy.m, copy.d.getTime(), copy.r, copy.e.name, copy.b, new Float32Array([0.1])[0], new DataView(new ArrayBuffer(8)).getInt16(0), [1, 2, 3].at(-1), [3, 1].toSorted(), Array.from('añ'), Object.fromEntries(counts));
function* naturals() { let n = 0; while (true) yield n++; }
console.log(naturals().filter((n) => n % 3 === 0).map((n) => n * n).take(4).toArray(), Symbol.iterator in [], new WeakRef({}).deref() !== undefined, [..."ab"].entries().next());
let s = 0; label: for (let i = 0; ; i++) for (let j = 0; j < 10; j++) { if (j === 5) continue label; if (i > 99) break label; s += i * j; } console.log(s, ((a, b = 2, ...c) => a + b + c.length)(1, undefined, 3, 4), delete (counts as any).x);
