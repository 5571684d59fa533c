// Files and folders in /data, by every API that programs use.
import * as fs from 'fs';
import fsp from 'node:fs/promises';
import path from 'node:path';
fs.mkdirSync('out/deep', { recursive: true });
fs.writeFileSync('out/a.txt', 'first\n'); fs.appendFileSync('out/a.txt', 'second é\n');
await fsp.writeFile('out/deep/b.json', JSON.stringify({ list: [1, 2], when: new Date(0) }, null, 2));
console.log(fs.readFileSync('out/a.txt', 'utf8').split('\n'), JSON.parse(await fsp.readFile('out/deep/b.json', 'utf8')));
console.log(fs.readdirSync('out', { recursive: true, withFileTypes: true }).map((e) => `${e.name}${e.isDirectory() ? '/' : ''}`).sort());
fs.renameSync('out/a.txt', 'out/c.txt'); fs.copyFileSync('out/c.txt', 'out/d.txt'); fs.symlinkSync('d.txt', 'out/e.txt');
const { size, mode } = fs.statSync('out/d.txt');
console.log(size, (mode & 0o777).toString(8), fs.readlinkSync('out/e.txt'), fs.existsSync('out/a.txt'), fs.realpathSync('out/e.txt'));
const file = await fsp.open('out/f.bin', 'w+');
await file.write(Buffer.from([1, 2, 3, 255])); console.log((await file.read(Buffer.alloc(4), 0, 4, 0)).buffer); await file.close();
for (const wrong of ['missing.txt', '/etc/none', 'out']) try { fs.readFileSync(wrong); } catch (error: any) { console.log(error.code, error.message); }
try { fs.writeFileSync('/etc/x', ''); } catch (error: any) { console.log(error.code); }
await fsp.rm('out/deep', { recursive: true }); console.log(await Array.fromAsync(fsp.glob('out/*.txt')), path.relative('/data/out', '/data/x'));
fs.readFile('nope', (error) => console.log(error!.message, error!.stack));
