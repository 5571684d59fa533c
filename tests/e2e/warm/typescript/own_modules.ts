// The program writes modules into /data and imports them, with endings and without, TypeScript and JSON.
import { writeFileSync, mkdirSync } from 'node:fs';
mkdirSync('lib', { recursive: true });
writeFileSync('helper.ts', 'export enum Color { Red = "red" }\nexport const where: string = import.meta.filename;\nexport default class Box<T> { constructor(public v: T) {} }');
writeFileSync('lib/index.ts', 'import { Color } from "../helper";\nexport const color: Color = Color.Red;\nexport = undefined as any;'.replace(/export = .*/, ''));
writeFileSync('old.cjs', 'exports.name = __filename; exports.parent = module.parent?.filename');
writeFileSync('data.json', '{"k": [1, 2]}');
const { Color, where, default: Box } = await import('./helper.js');
const { color } = await import('./lib');
const data = await import('./data.json');
const old = require('./old.cjs');
console.log(Color.Red, where, new Box(3).v, color, data.default.k, old.name, old.parent);
console.log(Object.keys(require.cache).filter((file) => file.startsWith('/data')));
try { await import('./broken.ts'); } catch (error: any) { console.log(error.code, error.message); }
writeFileSync('broken.ts', 'export const x: = 1;\n');
try { await import('./broken.ts'); } catch (error: any) { console.log(error.name, error.message.includes('broken.ts:1')); }
