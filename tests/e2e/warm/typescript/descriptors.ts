// What is open: nothing of the line to paddock, nothing that a child inherits.
import { readdirSync, readlinkSync, openSync, closeSync } from 'node:fs';
import { execFileSync } from 'node:child_process';
const kinds = readdirSync('/proc/self/fd').map(Number).filter((fd) => fd > 2).map((fd) => { try { return readlinkSync(`/proc/self/fd/${fd}`).replace(/\d+/g, 'N'); } catch { return 'gone'; } }).sort();
console.log(kinds.filter((kind) => !/^gone|^\/proc/.test(kind)).join('\n'));
console.log(execFileSync('ls', ['/proc/self/fd'], { encoding: 'utf8' }).split('\n').length);
const fd = openSync('x', 'w'); console.log(fd > 2); closeSync(fd);
