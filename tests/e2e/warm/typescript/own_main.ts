// A main.ts that the program leaves in /data is no part of the program that is running.
import { existsSync, writeFileSync, readdirSync } from 'node:fs';
console.log(import.meta.filename, existsSync('main.ts'), readdirSync('.'));
writeFileSync('main.ts', 'export const mine = 1;');
console.log(existsSync(import.meta.filename));
