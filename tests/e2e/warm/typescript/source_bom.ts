// A byte order mark before the source.
const a: string = "bom é";
console.log(a, a.length);
