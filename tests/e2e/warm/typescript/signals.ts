// Signals that the program takes itself.
let seen: string[] = [];
for (const name of ['SIGUSR1', 'SIGUSR2', 'SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(name, (signal, number) => {
  seen.push(`${signal}=${number}`);
  if (seen.length === 5) { console.log(seen.sort()); process.exit(0); }
});
for (const name of ['SIGUSR1', 'SIGUSR2', 'SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.kill(process.pid, name);
setTimeout(() => { console.log('only', seen); process.exit(1); }, 5000);
