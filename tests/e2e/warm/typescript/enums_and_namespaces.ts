// What only a compiler of TypeScript makes: enums, namespaces, parameter properties, overloads, abstract classes.
enum Level { Debug, Info = 10, Warn, Text = 'text', Computed = 'abc'.length }
const enum Bits { A = 1 << 0, B = 1 << 1, Both = A | B }
declare enum Ambient { X }
namespace Geometry { export const unit = 1; export namespace Flat { export function area(w: number, h: number) { return w * h * unit; } } export enum Kind { Round } }
namespace Geometry { export const more = Geometry.unit + 1; }
abstract class Shape<T extends number = number> { abstract area(): T; static count = 0; readonly #secret = 7; protected constructor(public readonly name: string, private scale = 1) { Shape.count++; } get secret() { return this.#secret * this.scale; } }
class Square extends Shape { declare tag?: string; constructor(private side: number) { super('square', 2); } override area() { return this.side ** 2; } label = 'x'; static { this.count += 100; } }
function pick(x: string): string; function pick(x: number): number; function pick(x: any) { return x; }
const tuple = [1, 'a'] as const satisfies readonly [number, string];
type Getters<T> = { [K in keyof T as `get${Capitalize<K & string>}`]: () => T[K] };
const lazy: Getters<{ name: string }> = { getName: () => 'n' };
function assertIsString(value: unknown): asserts value is string { if (typeof value !== 'string') throw new TypeError('no string'); }
let maybe: string | undefined = pick('s'); assertIsString(maybe);
const square = new Square(3);
console.log(Level, Level[11], Bits.Both, Geometry.Flat.area(2, 3), Geometry.more, Geometry.Kind[0]);
console.log(square, square.area(), square.secret, square.label, Shape.count, tuple, lazy.getName(), maybe!.length, 'tag' in square);
import os = require('node:os'); import EOL = os.EOL;
console.log(JSON.stringify(EOL), <number>(<unknown>5), (maybe as any)?.x?.[0] ?? 'none');
