// Null bytes in a module, in text that is evaluated, in data and in names.
import { writeFileSync, readFileSync } from 'node:fs';
writeFileSync('/data/broken.cjs', 'module.exports = "a\0b".length;\n');
writeFileSync('/data/wrong.cjs', 'const a \0 = 1;\n');
console.log(require('/data/broken.cjs'), eval('"a\0b"').length, JSON.stringify('\0'), Buffer.from('\0\0').length);
for (const act of [() => require('/data/wrong.cjs'), () => eval('1 \0 2'), () => readFileSync('/data/a\0b'), () => require('a\0b')]) {
  try { act(); console.log('fine'); } catch (error: any) { console.log(error.name, error.code); }
}
