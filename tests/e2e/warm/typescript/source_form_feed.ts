// A form feed, a vertical tab and a no-break space between words.

const a:number = 1;
console.log(a, "ab".split("\f"));
