// Lines end as on Windows.
const text: string = `x
y`;
console.log(JSON.stringify(text));
throw new Error("at line 4");
