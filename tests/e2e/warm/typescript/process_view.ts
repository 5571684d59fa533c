// What a program can see of how it was started: arguments, options, name, folder, the modules that are loaded.
import type { Worker } from 'node:worker_threads';
const main = require.main!;
console.log(process.argv, process.argv0, process.execPath, process.execArgv);
console.log(process.title, process.cwd(), process.version.split('.')[0], process.exitCode, typeof process.send);
console.log(main === module, main.id, main.filename, main.path, main.loaded, main.parent, main.children.length, main.paths);
console.log(Object.keys(require.cache), module.id, __filename, __dirname, require.resolve('./main.ts'));
console.log(process.getuid!() === process.geteuid!(), process.umask().toString(8), process.env.SANDBOX_MAIN !== undefined);
console.log(Error.stackTraceLimit, process.allowedNodeEnvironmentFlags.size > 100, process.report !== undefined);
const unused: Worker | undefined = undefined;
console.log(unused, process.listenerCount('warning'), process.listenerCount('exit'), process.eventNames());
