// ES modules that import each other, by name and later.
import { writeFileSync } from 'node:fs';
writeFileSync('/data/even.ts', `import { odd } from './odd';\nexport const even = (n: number): boolean => (n === 0 ? true : odd(n - 1));\nexport let state: string = 'even';\n`);
writeFileSync('/data/odd.ts', `import { even, state } from './even.ts';\nexport const odd = (n: number): boolean => (n === 0 ? false : even(n - 1));\nexport const seen = () => state;\n`);
const { even } = await import('./even');
const { odd, seen } = await import('./odd');
console.log(even(10), odd(7), odd(8), seen(), import.meta.url, (await import('./even.ts')).state);
console.log(Object.keys(await import('./odd')), await import('./none').catch((error) => error.code));
