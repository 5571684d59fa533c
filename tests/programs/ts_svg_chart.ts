// Draws a line chart as SVG with d3's scales and shapes, without a browser.
// prints: Points: 12, highest: Jul (24.1)
// prints: The chart starts with: M40,
// makes: chart.svg
import { writeFileSync } from 'node:fs';
import * as d3 from 'd3';

const months = ['Jan', 'Feb', 'Mar', 'Apr', 'May', 'Jun', 'Jul', 'Aug', 'Sep', 'Oct', 'Nov', 'Dec'];
const values = [0.4, 1.3, 5.4, 10.2, 15.1, 20.6, 24.1, 23.5, 18.0, 12.2, 6.1, 1.9];
const data = d3.zip<string | number>(months, values) as unknown as [string, number][];

const [width, height, margin] = [640, 320, 40];
const x = d3.scalePoint(months, [margin, width - margin]);
const y = d3.scaleLinear(d3.extent(values) as [number, number], [height - margin, margin]).nice();
const line = d3.line<[string, number]>().x(([month]) => x(month)!).y(([, value]) => y(value)).curve(d3.curveMonotoneX)(data)!;

const ticks = y.ticks(5).map((tick) => `<text x="5" y="${y(tick)}">${tick}°</text>`).join('');
const labels = months.map((month) => `<text x="${x(month)}" y="${height - 10}" text-anchor="middle">${month}</text>`).join('');
writeFileSync('/data/chart.svg', `<svg xmlns="http://www.w3.org/2000/svg" width="${width}" height="${height}" font-family="sans-serif" font-size="12">${ticks}${labels}<path d="${line}" fill="none" stroke="steelblue" stroke-width="2"/></svg>`);

const highest = d3.greatest(data, ([, value]) => value)!;
console.log(`Points: ${data.length}, highest: ${highest[0]} (${highest[1]})`);
console.log(`The chart starts with: ${line.slice(0, 4)}`);
