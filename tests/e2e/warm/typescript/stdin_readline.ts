// stdin: 3\nada 36\ngrace 45\nbob é😀 7\nlast line without an end
// A program that asks for lines.
import * as readline from 'node:readline';
const rl = readline.createInterface({ input: process.stdin, output: process.stdout, terminal: false });
const people: { name: string; age: number }[] = [];
rl.question('How many? ', (answer) => {
  console.log(`${Number(answer)} to come`);
  rl.on('line', (line) => { const [name, age] = line.split(/ (?=\S+$)/); people.push({ name, age: Number(age) }); });
  rl.on('close', () => { console.table(people); console.log(people.length); });
});
