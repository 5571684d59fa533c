// The trial of the warm part (../warm/pages.c): a small program, which shows what of memory programs write to.
enum Kind { A = 'a' }
const numbers: number[] = Array.from({ length: 1000 }, (_, n) => n * 2);
const found = numbers.filter((n) => n % 3 === 0).map((n) => ({ n, kind: Kind.A, name: `item ${n}` }));
console.log('hello', found.length, found.slice(0, 3), JSON.stringify(found).length);
