// An ES module: import.meta, top-level await, dynamic import, and CommonJS names beside them.
import { readFileSync } from 'node:fs';
import * as path from 'path';
import process, { argv } from 'node:process';
import { createRequire, isBuiltin } from 'node:module';
console.log(import.meta.url, import.meta.filename, import.meta.dirname, import.meta.main, Object.keys(import.meta).sort());
console.log(argv.length, argv[1], process.cwd(), path.basename(__filename), __dirname, require.main === module);
const { setTimeout: sleep } = await import('node:timers/promises');
console.log(await sleep(5, 'slept'), isBuiltin('fs'), createRequire(import.meta.url).resolve('fs'));
console.log(import.meta.resolve('./x.js'), typeof readFileSync, this === undefined, Object.keys(require.cache));
export const answer: number = 42;
const self = await import('node:path');
setTimeout(async () => console.log((await import('./main.ts')).answer), 1); // by then this module is there
console.log(self.default.sep, answer);
