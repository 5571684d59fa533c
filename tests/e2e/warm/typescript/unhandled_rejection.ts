// A rejection that nobody handles ends the program.
async function load(url: string): Promise<string> {
  await new Promise((resolve) => setTimeout(resolve, 2));
  throw new Error(`cannot load ${url}`);
}
console.log('start');
setTimeout(() => console.log('never'), 500);
load('http://nowhere.invalid/');
