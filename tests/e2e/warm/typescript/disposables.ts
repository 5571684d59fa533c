// using and await using, in order, with errors.
class Handle implements Disposable, AsyncDisposable {
  constructor(readonly name: string) { console.log('open', name); }
  [Symbol.dispose]() { console.log('close', this.name); if (this.name === 'bad') throw new Error('cannot close'); }
  async [Symbol.asyncDispose]() { await null; console.log('close later', this.name); }
}
async function work() { using a = new Handle('a'); await using b = new Handle('b'); using none = null; console.log(a.name + b.name, none); return 'done'; }
console.log(await work());
try { using bad = new Handle('bad'); throw new Error('first'); } catch (error: any) { console.log(error.name, error.message, error.error?.message, error.suppressed?.message); }
const stack = new DisposableStack(); stack.defer(() => console.log('deferred')); stack.use(new Handle('c')); stack.dispose();
