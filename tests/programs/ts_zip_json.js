// Packs JSON reports into a zip file with jszip, opens it again, and compares checksums (an ES module in JavaScript).
// prints: Files in the zip: reports/0.json, reports/1.json, reports/2.json
// prints: All checksums match: true
// makes: reports.zip
import { createHash } from 'node:crypto';
import { readFile, writeFile } from 'node:fs/promises';
import JSZip from 'jszip';
import { v5 as uuid } from 'uuid';

const checksum = (text) => createHash('sha1').update(text).digest('hex');
const reports = [3, 5, 8].map((value, index) => JSON.stringify({ id: uuid(`report-${index}`, uuid.URL), value, squares: Array.from({ length: value }, (_, n) => n ** 2) }, null, 2));

const zip = new JSZip();
reports.forEach((report, index) => zip.file(`reports/${index}.json`, report));
zip.file('manifest.json', JSON.stringify(reports.map(checksum)));
await writeFile('/data/reports.zip', await zip.generateAsync({ type: 'nodebuffer', compression: 'DEFLATE' }));

const opened = await JSZip.loadAsync(await readFile('/data/reports.zip'));
const names = Object.values(opened.files).filter((file) => !file.dir && file.name.startsWith('reports/')).map((file) => file.name);
console.log('Files in the zip:', names.join(', '));
const manifest = JSON.parse(await opened.file('manifest.json').async('string'));
const contents = await Promise.all(names.map((name) => opened.file(name).async('string')));
console.log('All checksums match:', contents.every((content, index) => checksum(content) === manifest[index]));
