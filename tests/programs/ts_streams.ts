// Sends 20,000 lines through a transform stream and gzip into a file, and reads it back line by line.
// prints: Lines in: 20000, lines kept: 6667
// prints: Sum of the kept numbers: 66663333
// makes: numbers.txt.gz
import { createReadStream, createWriteStream } from 'node:fs';
import { Readable, Transform, type TransformCallback } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { createGunzip, createGzip } from 'node:zlib';
import * as readline from 'node:readline';

function* numbers(count: number): Generator<string> {
  for (let n = 0; n < count; n++) yield `${n}\n`;
}

class OnlyMultiples extends Transform {
  seen = 0;
  kept = 0;
  constructor(private readonly of: number) {
    super();
  }
  override _transform(chunk: Buffer, _encoding: BufferEncoding, done: TransformCallback) {
    this.seen++;
    if (Number(chunk.toString()) % this.of === 0) {
      this.kept++;
      this.push(chunk);
    }
    done();
  }
}

const filter = new OnlyMultiples(3);
await pipeline(Readable.from(numbers(20_000)), filter, createGzip(), createWriteStream('/data/numbers.txt.gz'));
console.log(`Lines in: ${filter.seen}, lines kept: ${filter.kept}`);

let sum = 0;
const lines = readline.createInterface({ input: createReadStream('/data/numbers.txt.gz').pipe(createGunzip()) });
for await (const line of lines) sum += Number(line);
console.log(`Sum of the kept numbers: ${sum}`);
