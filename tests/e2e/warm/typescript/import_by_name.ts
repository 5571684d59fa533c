// Modules by names that no look at the source finds: require, import(), eval, vm, Function, data: URLs.
import { createRequire } from 'node:module';
const load = (name: string) => require(['node', name].join(':'));
console.log(load('path').join('a', 'b'), (await import('node:' + 'os')).EOL.length, eval('require')('util').format('%d', 1));
console.log(new Function('r', "return r('crypto').createHash('md5').update('x').digest('hex')")(require));
console.log(process.getBuiltinModule('node:url').pathToFileURL('/data/x').href, module.require('node:zlib').gzipSync('x').length > 0);
const text = await import('data:text/javascript,export default 6 * 7; export const url = import.meta.url.length');
console.log(text.default, text.url > 10, createRequire('/data/')('node:assert').strictEqual.name);
console.log(require('node:vm').runInNewContext('1 + x', { x: 2 }));
for (const wrong of ['no-such-module', './no-such-file.ts', '', 'node:no-such', '/etc/hostname/x']) {
  try { require(wrong); } catch (error: any) { console.log('require', error.code); }
  try { await import(wrong); } catch (error: any) { console.log('import', error.code); }
}
