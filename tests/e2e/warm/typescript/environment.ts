// The variables of the run, odd ones and empty ones too, here and in a child.
import { execFileSync } from 'node:child_process';
const names = Object.keys(process.env).sort();
console.log(names.filter((name) => name !== 'SANDBOX_MAIN' && name !== 'PWD'), process.env.HOME, process.env.LANG);
for (const name of names) if (name !== 'SANDBOX_MAIN' && name !== 'PWD') console.log(name, JSON.stringify(process.env[name]));
console.log(execFileSync('/usr/bin/env', { encoding: 'utf8' }).includes('HOME=/tmp'));
process.env.LATER = '1';
delete process.env.HOME;
console.log(process.env.LATER, process.env.HOME, 'SANDBOX_STDIN_FD' in process.env, require('os').homedir().startsWith('/'));
process.env.TZ = 'Asia/Tokyo';
console.log(new Date(0).toString());
