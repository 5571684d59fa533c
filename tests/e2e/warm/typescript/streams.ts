// Streams of all sorts.
import { Readable, Transform, Writable, PassThrough, pipeline, Duplex } from 'node:stream';
import { pipeline as piped, finished } from 'node:stream/promises';
import { text, json } from 'node:stream/consumers';
const upper = new Transform({ transform(chunk, _, done) { done(null, String(chunk).toUpperCase()); }, flush(done) { this.push('!'); done(); } });
const parts: string[] = [];
await piped(Readable.from(['a', 'b', 'c']), upper, new Writable({ write(chunk, _, done) { parts.push(String(chunk)); setTimeout(done, 1); } }));
console.log(parts, await text(Readable.from(['x', 'y']).pipe(new PassThrough())), await json(Readable.from(['{"a":', '1}'])));
console.log(await Readable.from([1, 2, 3, 4]).filter((n: number) => n % 2 === 0).map(async (n: number) => n * 10).toArray());
const web = new ReadableStream({ start(c) { c.enqueue('w'); c.enqueue('eb'); c.close(); } }).pipeThrough(new TextEncoderStream()).pipeThrough(new CompressionStream('gzip')).pipeThrough(new DecompressionStream('gzip'));
console.log(await new Response(web as any).text(), Duplex.from(async function* (s: any) { yield* s; }).constructor.name);
const broken = new Readable({ read() { this.destroy(new Error('stream broke')); } });
await finished(broken.resume()).catch((error) => console.log(error.message));
pipeline(Readable.from(['1']), new Transform({ transform(_, __, done) { done(new Error('in the middle')); } }), process.stderr, (error) => console.log(error?.message));
