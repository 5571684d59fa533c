// Variables that node reads once at its start are those of its start: here it is a child that sees them.
import { spawnSync } from 'node:child_process';
console.log(process.execArgv, process.env.NODE_OPTIONS, require('v8').getHeapStatistics().heap_size_limit > 1e8);
const child = (env: object, code: string) => spawnSync(process.execPath, ['-e', code], { encoding: 'utf8', env: { ...process.env, ...env } });
console.log(child({ NODE_OPTIONS: '--stack-trace-limit=1' }, 'console.log(new Error("x").stack.split("\\n").length)').stdout, child({ NODE_NO_WARNINGS: '1' }, 'process.emitWarning("w")').stderr);
export {};
