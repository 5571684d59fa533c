// A watcher sees a change and lets the program go when it is closed.
import { watch, writeFileSync, createReadStream, createWriteStream, statSync } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import { createGzip, createGunzip } from 'node:zlib';
writeFileSync('seen.txt', '');
const watcher = watch('seen.txt');
setTimeout(() => writeFileSync('seen.txt', 'x'), 20);
const name = await new Promise((resolve) => watcher.once('change', (_, name) => resolve(name)));
watcher.close();
writeFileSync('big.txt', Array.from({ length: 5000 }, (_, i) => `line ${i}`).join('\n'));
await pipeline(createReadStream('big.txt'), createGzip(), createWriteStream('big.txt.gz'));
let bytes = 0;
for await (const part of createReadStream('big.txt.gz').pipe(createGunzip())) bytes += part.length;
console.log(name, bytes, statSync('big.txt').size);
