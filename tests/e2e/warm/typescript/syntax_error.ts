// Code that cannot be parsed.
const fine: number = 1;
function broken(a: string {
  return a;
}
console.log(fine);
