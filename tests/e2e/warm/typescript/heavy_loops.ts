// Plain computing.
function sieve(n: number): number[] { const composite = new Uint8Array(n + 1), primes: number[] = []; for (let i = 2; i <= n; i++) { if (composite[i]) continue; primes.push(i); for (let j = i * i; j <= n; j += i) composite[j] = 1; } return primes; }
const fib = (n: number): number => (n < 2 ? n : fib(n - 1) + fib(n - 2));
const primes = sieve(1_000_000); let hash = 0; for (let i = 0; i < 5_000_000; i++) hash = (Math.imul(hash, 31) + i) | 0;
const memo = new Map<number, bigint>(); const big = (n: number): bigint => memo.get(n) ?? (memo.set(n, n < 2 ? BigInt(n) : big(n - 1) + big(n - 2)), memo.get(n)!);
const matrix = Array.from({ length: 60 }, (_, i) => Array.from({ length: 60 }, (_, j) => i * j % 7)); const product = matrix.map((row) => matrix[0].map((_, j) => row.reduce((sum, x, k) => sum + x * matrix[k][j], 0)));
console.log(primes.length, primes.at(-1), fib(24), hash, big(200), product.flat().reduce((a, b) => a + b), Array.from({ length: 200_000 }, (_, i) => (i * 7919) % 200_003).sort((a, b) => a - b)[1000]);
