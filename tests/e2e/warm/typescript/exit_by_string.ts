// A code that is a string is a number all the same.
process.exitCode = '9';
console.log(process.exitCode);
