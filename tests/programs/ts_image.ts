// Draws the Mandelbrot set as a PNG, pixel by pixel, makes a smaller copy, and counts its colours.
// prints: 320 x 240, colours: 20
// prints: Preview: 80 x 60
// makes: mandelbrot.png
// makes: preview.png
import { readFileSync, writeFileSync } from 'node:fs';
import { PNG } from 'pngjs';

const [width, height, depth] = [320, 240, 20];
const image = new PNG({ width, height });

function escape(cx: number, cy: number): number {
  let [x, y, n] = [0, 0, 0];
  while (x * x + y * y <= 4 && n < depth) [x, y, n] = [x * x - y * y + cx, 2 * x * y + cy, n + 1];
  return n;
}
for (let y = 0; y < height; y++) {
  for (let x = 0; x < width; x++) {
    const n = escape((x / width) * 3.2 - 2.3, (y / height) * 2.4 - 1.2);
    image.data.set([n * 12, n * 6, 80 + n * 8, 255], (y * width + x) * 4);
  }
}
writeFileSync('/data/mandelbrot.png', PNG.sync.write(image));

const back = PNG.sync.read(readFileSync('/data/mandelbrot.png'));
const colours = new Set<number>();
for (let at = 0; at < back.data.length; at += 4) colours.add(back.data.readUInt32BE(at));
console.log(`${back.width} x ${back.height}, colours: ${colours.size}`);

const preview = new PNG({ width: width / 4, height: height / 4 });
for (let y = 0; y < preview.height; y++) {
  for (let x = 0; x < preview.width; x++) {
    const from = (y * 4 * width + x * 4) * 4;
    back.data.copy(preview.data, (y * preview.width + x) * 4, from, from + 4);
  }
}
writeFileSync('/data/preview.png', PNG.sync.write(preview));
console.log(`Preview: ${preview.width} x ${preview.height}`);
