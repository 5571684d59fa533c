// stdin: for the child\nand more\n
// A child has the standard input that the program did not read.
import { spawnSync } from 'node:child_process';
const done = spawnSync('cat', { stdio: ['inherit', 'inherit', 'inherit'] });
console.log(done.status, done.signal);
