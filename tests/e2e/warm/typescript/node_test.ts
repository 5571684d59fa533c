// node:test in a program.
import { test, describe, it, before } from 'node:test';
import assert from 'node:assert';
let ready = false;
describe('sums', () => { before(() => { ready = true; }); it('adds', () => assert.equal(1 + 1, 2)); it.skip('is left out', () => {}); });
test('waits', async (t) => { await t.test('inside', () => assert.ok(ready)); t.mock.method(console, 'warn'); });
process.on('exit', () => console.log('exit', ready, process.exitCode));
const write = process.stdout.write.bind(process.stdout);
process.stdout.write = ((text: any, ...rest: any[]) => write(String(text).replace(/(duration_ms:? )[\d.]+/g, '$1N').replace(/\([\d.]+ms\)/g, '(Nms)'), ...rest)) as any;
