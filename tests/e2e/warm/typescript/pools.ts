// Work that node gives to threads: files, compression, keys, names; many at once.
import { pbkdf2, scrypt, generateKeyPair, randomBytes, randomFill } from 'node:crypto';
import { gzip, gunzip, brotliCompress, brotliDecompress } from 'node:zlib';
import { readFile, writeFile, mkdtemp, readdir, rm } from 'node:fs/promises';
import { lookup } from 'node:dns/promises';
import { promisify } from 'node:util';
const text = 'a line of text\n'.repeat(10_000);
const packed = await Promise.all([promisify(gzip)(text), promisify(brotliCompress)(text)]);
console.log((await promisify(gunzip)(packed[0])).toString() === text, (await promisify(brotliDecompress)(packed[1])).toString() === text);
const keys = await Promise.all([promisify(pbkdf2)('a', 'b', 1000, 32, 'sha256'), promisify(scrypt)('a', 'b', 32)]);
console.log(keys.map((key: any) => key.toString('hex')));
console.log((await promisify(generateKeyPair)('ec', { namedCurve: 'P-256' })).publicKey.type, (await promisify(randomBytes)(8)).length);
const folder = await mkdtemp('/tmp/pool-');
await Promise.all(Array.from({ length: 50 }, (_, n) => writeFile(`${folder}/${n}`, `${n}`)));
const read = await Promise.all((await readdir(folder)).map((name) => readFile(`${folder}/${name}`, 'utf8')));
console.log(read.map(Number).reduce((a, b) => a + b));
await rm(folder, { recursive: true });
console.log(await lookup('localhost').then((found) => found.address, (error) => error.code));
console.log((await promisify(randomFill)(new Uint8Array(4))).length, process.getActiveResourcesInfo().length >= 0);
