// CommonJS as models write it, mixed styles included.
const fs = require('fs');
const { join, resolve } = require('path');
const util = require('node:util');
module.exports = { twice: (n) => 2 * n };
exports.lost = true;
undeclared = 5;
console.log(join('a', 'b'), resolve('x'), undeclared, module.exports.twice(4), typeof fs.promises, arguments.length);
console.log(require('./main.ts') === module.exports, require('/data/main.ts').twice(1));
(function () { console.log(this === globalThis); })();
console.log(util.format('%s %d %j %o', 'a', 1, { b: 2 }, [3]));
if (require.main === module) console.log('run directly');
try { require('not-there'); } catch (error) { console.log(error.code, error.message); }
try { require('./not-there'); } catch (error) { console.log(error.code, error.message); }
