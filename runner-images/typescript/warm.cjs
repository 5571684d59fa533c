'use strict';
// The warm part: a node that has started, and forks a child for each run. The child becomes the run's program. node preloads
// hooks.cjs. If node was started with the name of this file, hooks.cjs calls this file; node never runs it as a program.
// The parent begins a program without a run, and forks where node asks for the place of its code: what node does before is the
// same in all runs.
// fork.cc has the half that is not JavaScript: it forks, and it knows what of node's inside does not survive a fork.
//
// A child must be in the same state as a node that the entrypoint starts (`enter main.ts / node ... /tmp/run.<pid>/main.ts`).
// So before a run arrives, nothing here may leave a handle, a promise or a timer behind, use process.stdin, stdout or stderr,
// or read anything in /data or /tmp, because node caches what it has read. README.md lists the differences that a program can
// notice.

const { Console } = require('node:console');
const fs = require('node:fs');
const Module = require('node:module');
const net = require('node:net');
const v8 = require('node:v8');

const REHEARSAL = `${__dirname}/rehearsal.cts`;
// How often the parent rehearses before it collects its garbage, and after that, since V8 then forgets some of what it has learnt.
// What is left over by more rehearsals would fill the place where programs make their objects.
const BEFORE = 2, AFTER = 1;
// Variables that node, V8, OpenSSL, ICU or the dynamic linker read only once, when they start; fork.cc has the list too.
const READ_AT_START = ['NODE_', 'UV_', 'OPENSSL_', 'SSL_', 'ICU_', 'LC_', 'LD_', 'MALLOC_', 'GLIBC_'];
const ALSO_READ = ['NODE', 'LANG', 'LANGUAGE', 'SANDBOX_MAIN'];
// Modules of node that a program's first console.log and first import of node:fs would load. A program can notice them only in
// process.moduleLoadList.
const USUAL = ['net', 'tty', 'fs/promises', 'perf_hooks'];

/** Loads fork.cc. */
function load() {
  const addon = { exports: {} };
  process.dlopen(addon, '/usr/local/share/sandbox/fork.node');
  return addon.exports;
}

/** Sets variables, each `NAME=value`. Returns whether there is a new value of one that only a new node would use. */
function setVariables(texts) {
  const changed = texts
    .map((text) => [text.slice(0, text.indexOf('=')), text.slice(text.indexOf('=') + 1)])
    .filter(([name, value]) => name !== '' && process.env[name] !== value);
  for (const [name, value] of changed) process.env[name] = value;
  return changed.some(([name]) => ALSO_READ.includes(name) || READ_AT_START.some((start) => name.startsWith(start)));
}

/** Lets node begin the program without a file of its own. It reads Module.runMain once for that, and would call it with the name
 * of this file. It looks for the file and its package.json before it asks hooks.cjs, and finds neither. */
function beginWithout(file) {
  const runMain = Object.getOwnPropertyDescriptor(Module, 'runMain');
  Object.defineProperty(Module, 'runMain', {
    configurable: true,
    get() {
      Object.defineProperty(Module, 'runMain', runMain);
      return runMain.value.bind(Module, file); // a bound function has no frame in a stack trace
    },
  });
}

/** Does what almost every program does, since V8 compiles a function when it is first called, and swc is loaded when it is
 * first needed. A program must not be able to tell. So what would be a pipe here is an object of ours, what node would do
 * later happens at once, and nothing is left: no handle, no timer, no module, and no number of an asynchronous operation. node
 * makes process.stderr when it first asks for colours or prints an error, so neither is done here. */
function rehearse({ find, transpile, kind }) {
  delete require.cache[REHEARSAL];
  require(REHEARSAL);
  for (const source of ["const text: string = 'a'", 'require("node:fs")']) {
    kind(transpile(source, '/data/main.ts'), '/data/main.ts');
  }
  const nextTick = Object.getOwnPropertyDescriptor(process, 'nextTick');
  Object.defineProperty(process, 'nextTick', { ...nextTick, value: (call, ...args) => call(...args) });
  const nothing = () => 0;
  const pipe = { getAsyncId: nothing, readStop: nothing, writeUtf8String: nothing, writeLatin1String: nothing, writeBuffer: nothing };
  const stream = new net.Socket({ handle: pipe, readable: false, writable: true }); // as process.stdout is one
  const out = new Console({ stdout: stream, stderr: stream, colorMode: false });
  out.log('text');
  out.log('text', 1, true, null, undefined, [1, 2], { a: { b: 'c' } }, new Map([[1, 2]]), new Set([1]), new Date(0), 1n);
  out.log('%s %d %j', 'a', 1, {});
  Object.defineProperty(process, 'nextTick', nextTick);
  try { new net.Socket({ fd: 1 << 20 }); } catch { /* there is no such descriptor, as the function that makes handles finds out */ }
  setVariables([`HOME=${process.env.HOME}`]);
  process.chdir('/');
  find();
}

/** Lets performance.now() and process.uptime() begin when the returned function is called, since programs use them as their own
 * age. */
function clocks() {
  const { performance } = globalThis;
  const prototype = Object.getPrototypeOf(performance);
  const { now, mark, measure } = prototype;
  const { uptime } = process;
  const first = performance.timeOrigin;
  let origin = first;
  let waited = 0;
  let seconds = 0;
  const method = (target, name, value) => Object.defineProperty(target, name, { ...Object.getOwnPropertyDescriptor(target, name), value });
  method(process, 'uptime', { uptime: () => uptime() - seconds }.uptime);
  method(prototype, 'now', { now() { return now.call(this) - waited; } }.now);
  method(prototype, 'mark', { mark(name, options = {}) {
    if (arguments.length === 0) return mark.call(this); // throws the usual error
    return mark.call(this, name, options?.startTime === undefined ? { ...options, startTime: this.now() } : options);
  } }.mark);
  method(prototype, 'measure', { measure(name, from = {}, to = undefined) {
    if (arguments.length === 0) return measure.call(this);
    if (to !== undefined) return measure.call(this, name, from, to);
    if (typeof from === 'string') return measure.call(this, name, { start: from, end: this.now() });
    const whole = from?.end === undefined && (from?.start === undefined || from?.duration === undefined);
    return measure.call(this, name, whole ? { start: 0, ...from, end: this.now() } : from);
  } }.measure);
  Object.defineProperty(prototype, 'timeOrigin', {
    ...Object.getOwnPropertyDescriptor(prototype, 'timeOrigin'), get: { get timeOrigin() { return origin; } }.__lookupGetter__('timeOrigin'),
  });
  return () => {
    waited = now.call(performance);
    seconds = uptime();
    origin = first + waited;
  };
}

/** Removes every trace of these files from require.cache and node's other tables. */
function vanish() {
  for (const file of [__filename, REHEARSAL]) {
    delete require.cache[file];
    for (const key of Object.keys(Module._pathCache)) if (key.startsWith(file)) delete Module._pathCache[key];
  }
  module.children.length = 0;
  module.parent.children.length = 0;
}

/** Frees what the start has left over, and does what V8 would do later: otherwise each child would do it. */
function settle(addon) {
  v8.setFlagsFromString('--no-flush-bytecode'); // or this would throw away what rehearse() has compiled
  addon.settle();
  v8.setFlagsFromString('--flush-bytecode');
}

/** Prepares for the first run. Returns a function that hooks.cjs calls when node asks for the place of the main program. It waits
 * for the run, and returns in a child that has taken it, when process.argv[1], process.env and the code's name are as with the
 * entrypoint. `hooks` are the functions of hooks.cjs that each run uses. */
exports.begin = (hooks) => {
  for (const name of USUAL) require(`node:${name}`);
  const addon = load();
  for (let n = 0; n < BEFORE; n++) rehearse(hooks);
  const start = clocks();
  start();
  beginWithout(`${__dirname}/none`);
  return () => {
    settle(addon);
    for (let n = 0; n < AFTER; n++) rehearse(hooks);
    vanish();
    const run = addon.serve(process, Object.getOwnPropertyDescriptor(process, 'exitCode').get);
    if (run === undefined) process.exit(1);
    const [file, ...variables] = run; // fork.cc has set all variables that node does not read when it starts
    if (variables.length > 0 && setVariables(variables)) {
      process.execve(process.execPath, [process.argv0, ...process.execArgv, file], process.env); // does not return
    }
    process.argv[1] = file;
    start();
    hooks.find(file);
  };
};
