// Errors of each kind, caught, with the texts that V8 and node have for them.
const kinds: [string, () => unknown][] = [
  ['type', () => (null as any).x], ['call', () => (5 as any)()], ['reference', () => (globalThis as any).eval('nothing')], ['range', () => new Array(-1)],
  ['uri', () => decodeURIComponent('%')], ['syntax', () => JSON.parse('{"a": }')], ['eval', () => new Function('return (')], ['regexp', () => new RegExp('(')],
  ['bigint', () => BigInt(1.5)], ['const', () => { const c = 1; (globalThis as any).eval('"use strict"; Object.freeze({a: 1}).a = 2'); return c; }], ['iterate', () => [...(5 as any)]],
  ['argument', () => Buffer.alloc('x' as any)], ['encoding', () => new TextDecoder('nope')], ['url', () => new URL('nope')], ['assert', () => require('assert').strictEqual(1, 2)],
  ['depth', () => { const f = (): number => f() + 1; return f(); }], ['clone', () => structuredClone(() => 1)], ['private', () => Object.defineProperty(Object.freeze({}), 'x', { value: 1 })], ['dom', () => new AbortController().signal.throwIfAborted() ?? atob('*')],
];
for (const [name, fails] of kinds) try { console.log(name, fails()); } catch (error: any) { console.log(name, error.name, error.code, error.message, error instanceof Error, error.stack.split('\n').filter((line: string) => /main\.ts/.test(line)).slice(0, 2)); }
class HttpError extends Error { override name = 'HttpError'; constructor(readonly status: number, message?: string) { super(message); Error.captureStackTrace(this, HttpError); } }
try { throw new HttpError(404, 'not found'); } catch (error) { console.log(error); }
Error.stackTraceLimit = 2; console.log(new Error('short').stack); Error.prepareStackTrace = (e, frames) => frames.map((f) => `${f.getFileName()}:${f.getLineNumber()}`).join(); console.log(new Error('own').stack);
