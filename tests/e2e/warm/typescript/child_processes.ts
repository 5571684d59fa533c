// Children: their output, their codes, their errors.
import { exec, execFile, execSync, spawn, spawnSync } from 'node:child_process';
import { promisify } from 'node:util';
console.log(execSync('pwd; echo $HOME', { encoding: 'utf8' }), (await promisify(exec)('echo out; echo err >&2')).stderr);
console.log((await promisify(execFile)('node', ['-p', 'process.execArgv.length + process.argv.length'])).stdout.trim());
const child = spawn('sh', ['-c', 'read x; echo "got $x"; exit 7'], { stdio: ['pipe', 'inherit', 'inherit'] });
child.stdin.end('a line\n');
console.log(await new Promise((resolve) => child.on('close', (...ends) => resolve(ends))));
const killed = spawn('sleep', ['10']);
killed.kill('SIGKILL');
console.log(await new Promise((resolve) => killed.on('exit', (...ends) => resolve(ends))));
try { execSync('exit 3', { stdio: 'pipe' }); } catch (error: any) { console.log(error.status, error.message); }
console.log(spawnSync('no-such-program').error?.message, spawnSync('sh', ['-c', 'kill -9 $$']).signal);
spawn('missing').on('error', (error: any) => console.log(error.code));
console.log(spawnSync('sh', ['-c', 'ls /proc/self/fd | wc -l'], { encoding: 'utf8' }).stdout.trim());
