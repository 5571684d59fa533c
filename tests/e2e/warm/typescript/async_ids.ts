// Handles and ids: a fresh process has none of its own.
const hooks = require('async_hooks');
const ids: number[] = [];
console.log(hooks.executionAsyncId(), hooks.triggerAsyncId());
const timer: any = setTimeout(() => {}, 1);
console.log(timer[Object.getOwnPropertySymbols(timer).find((s) => String(s) === 'Symbol(asyncId)')!], process.getActiveResourcesInfo());
for (let i = 0; i < 3; i++) ids.push(new hooks.AsyncResource('R').asyncId());
console.log(ids, (process as any)._getActiveHandles().length, (process as any)._getActiveRequests().length);
setTimeout(() => setImmediate(() => console.log(hooks.executionAsyncId() > 0, process.getActiveResourcesInfo())), 20);
