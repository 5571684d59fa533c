// Standard input of a program that was given none.
let all = '';
process.stdin.setEncoding('utf8').on('data', (part) => (all += part)).on('end', () => console.log('end', JSON.stringify(all), process.stdin.isTTY));
console.log(process.stdin.fd, require('fs').readFileSync(0, 'utf8').length);
