// An error in a listener of the end.
process.on('exit', () => { throw new RangeError('at the end'); });
console.log('runs');
