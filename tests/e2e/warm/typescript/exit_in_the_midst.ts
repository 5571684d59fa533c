// process.exit amid everything: handlers run, timers and the rest do not.
import * as fs from 'fs';
process.on('exit', (code) => { console.log('exit', code); fs.writeFileSync('last.txt', String(code)); });
process.on('beforeExit', () => console.log('never'));
setInterval(() => console.log('never'), 1000);
try {
  console.log('one');
  process.stdout.write('half a line');
  process.exit(42);
} finally {
  console.log('never');
}
