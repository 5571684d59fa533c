// More output than a pipe holds, on both streams, in order and whole, the process ended at once behind it.
for (let i = 0; i < 2000; i++) console.log(`${i} ${'x'.repeat(45)}`);
for (let i = 0; i < 500; i++) console.error(`e${i} é😀`);
process.stdout.write('y'.repeat(70000));
process.stdout.write('\nlast', () => process.exit(0));
