// fork() of this same program: options, arguments, messages, exit codes.
import { fork } from 'node:child_process';
if (process.send) {
  process.on('message', (n: number) => {
    process.send!({ n: n + 1, argv: process.argv, execArgv: process.execArgv, cwd: process.cwd(), main: require.main?.filename }, () => process.exit(n));
  });
} else {
  const child = fork(__filename, ['--flag', 'x y']);
  child.on('message', (answer) => console.log(answer));
  child.on('exit', (code, signal) => {
    console.log(code, signal, child.spawnargs.slice(1));
    fork('./main.ts', ['again'], { silent: true }).on('message', (answer: any) => console.log(answer.argv)).on('exit', (code) => console.log(code)).send(0);
  });
  child.send(6);
}
