// stdin: one\ntwo\nthree\n
// Standard input as an async iterator, piped on into a file.
import { createWriteStream } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import { createInterface } from 'node:readline/promises';
import { execSync } from 'node:child_process';
async function* upper(source: AsyncIterable<string>) { for await (const line of source) yield `${line.toUpperCase()}\n`; }
await pipeline(createInterface({ input: process.stdin }), upper, createWriteStream('upper.txt'));
console.log(execSync('cat upper.txt', { encoding: 'utf8' }), process.stdin.readableEnded);
