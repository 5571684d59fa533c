// Numbers that nobody can know: they differ from each other, in every context.
import vm from 'node:vm';
import { randomUUID, randomInt, getRandomValues, randomBytes } from 'node:crypto';
const numbers = [Math.random(), Math.random(), vm.runInNewContext('Math.random()'), vm.runInNewContext('Math.random()')];
console.log(new Set(numbers).size, numbers.every((n) => n >= 0 && n < 1), String(Math.random));
console.log(new Set([randomUUID(), randomUUID()]).size, randomInt(10) < 10, getRandomValues(new Uint8Array(2)).length, randomBytes(3).length);
