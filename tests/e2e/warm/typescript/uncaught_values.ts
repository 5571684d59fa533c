// What is thrown need not be an error.
process.on('exit', (code) => process.stdout.write(`code ${code}\n`));
const what: unknown = { message: 'an object', nested: { list: [1, 2, 3] } };
throw what;
