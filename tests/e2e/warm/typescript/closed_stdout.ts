// Standard output that is closed before the program has done with it.
import { closeSync, openSync, writeSync } from 'node:fs';
writeSync(1, 'first\n');
closeSync(1);
console.log(openSync('/dev/null', 'w'));
writeSync(2, 'end\n');
