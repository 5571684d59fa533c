// stdin: add milk\nadd eggs\nlist\nbogus\nquit\nafter\n
// A program with a prompt, by readline's promises.
import { createInterface } from 'node:readline/promises';
import { stdin as input, stdout as output } from 'node:process';
type Command = { kind: 'add'; what: string } | { kind: 'list' } | { kind: 'quit' };
function parse(line: string): Command | Error { const [word, ...rest] = line.trim().split(/\s+/); switch (word) { case 'add': return { kind: 'add', what: rest.join(' ') }; case 'list': case 'quit': return { kind: word }; default: return new Error(`what is ${word}?`); } }
const todo: string[] = [];
const rl = createInterface({ input, output });
for await (const line of rl) {
  const command = parse(line);
  if (command instanceof Error) { console.error(command.message); continue; }
  if (command.kind === 'add') todo.push(command.what);
  else if (command.kind === 'list') console.log(todo.map((what, i) => `${i + 1}. ${what}`).join('\n'));
  else break;
}
rl.close();
console.log('bye', todo.length);
