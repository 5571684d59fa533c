// stdin: [3, 1, 2]\n[4, 5]\u00e9\n
// Standard input read at one go.
import { readFileSync, fstatSync } from 'node:fs';
const text: string = readFileSync(0, 'utf8');
const [numbers, rest] = text.split('\n');
console.log((JSON.parse(numbers) as number[]).toSorted(), rest, fstatSync(0).isFile(), fstatSync(0).size);
console.log(JSON.stringify(readFileSync('/dev/stdin', 'utf8').length > 0));
