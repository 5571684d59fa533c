// node as a child runs plain JavaScript, whatever the parent was.
import { spawnSync, execFileSync } from 'node:child_process';
import { writeFileSync } from 'node:fs';
writeFileSync('child.js', 'console.log(process.argv.slice(2), require.main === module, __filename, process.execArgv); process.exitCode = 4');
writeFileSync('typed.ts', 'const x: number = 1; console.log(x, import.meta.filename); export {}');
const child = spawnSync(process.execPath, ['child.js', 'a'], { encoding: 'utf8' });
console.log(child.status, child.stdout, child.stderr);
console.log(execFileSync(process.execPath, [...process.execArgv, 'typed.ts'], { encoding: 'utf8' }));
console.log(spawnSync('node', ['-'], { input: 'console.log(6 * 7)', encoding: 'utf8' }).stdout);
