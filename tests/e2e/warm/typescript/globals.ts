// No global that node does not have, and each as node has it.
const names = Object.getOwnPropertyNames(globalThis).sort();
console.log(names.length, names.filter((name) => /warm|paddock|sandbox|swc|hook/i.test(name)));
console.log(names.join(' '));
console.log(Object.keys(process).sort().join(' '));
console.log(Object.keys(require('module')).sort().join(' '));
console.log(typeof (globalThis as any).require, typeof (globalThis as any).module, this === module.exports);
