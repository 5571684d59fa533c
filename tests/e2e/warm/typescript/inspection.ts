// console.log and util.inspect of everything.
import util, { inspect } from 'node:util';
class Point { constructor(public x = 1, private y = [2]) {} get sum() { return this.x; } static zero = new Point(0); }
const circle: any = { name: 'c' }; circle.self = circle;
console.log(new Point(), Point, circle, [undefined, null, NaN, -0, 1n, Symbol('s')], () => 1, async function named() {}, /re/gi, new Date(0));
console.log(new Map<any, any>([[{ k: 1 }, new Set(['v'])]]), new WeakMap(), new Uint8Array(3), Buffer.from('é'), new ArrayBuffer(2), Promise.resolve(4), new Proxy({ a: 1 }, {}));
console.log(Array.from({ length: 120 }, (_, i) => i), 'x'.repeat(10).split(''), { a: { b: { c: { d: {} } } } }, [[[[[]]]]], new Error('plain').message, Object.create(null), new (class extends Array {})());
console.log(inspect({ long: 'word '.repeat(30), list: new Array(5), [Symbol.for('k')]: true, get g() { return 1; }, set s(_) {} }, { compact: false, depth: 5, breakLength: 60, showHidden: true, sorted: true }));
console.log('%s is %d years and %i, %f, %j %o %O %%', 'Bob', 42.5, 42.9, '1.5', { a: 1 }, [1], { b: 2 }, 'extra');
console.log(util.types.isProxy(new Proxy({}, {})), util.isDeepStrictEqual({ a: [1] }, { a: [1] }), util.styleText('red', 'x', { validateStream: false }), util.stripVTControlCharacters('\x1b[31mr\x1b[0m'));
console.table([{ a: 1, b: 'x' }, { a: 2, c: true }]); console.error(new AggregateError([new Error('one')], 'many').errors.length);
const error = new Error('with cause', { cause: { code: 5 } }); (error as any).extra = 'e'; error.stack = 'Error: with cause\n    at nowhere'; console.log(error);
