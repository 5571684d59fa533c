'use strict';
// The warm part: a node that has started, and forks a child for each run. The child becomes the run's program. node preloads
// hooks.cjs. If node was started with the name of this file, hooks.cjs calls this file; node never runs it as a program.
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

const TRIAL = `${__dirname}/trial.ts`;
const REHEARSAL = `${__dirname}/rehearsal.cts`;
// Variables that node, V8, OpenSSL, ICU or the dynamic linker read only once, when they start.
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

/** Gives a child what a new node would have of its own: its process id. */
function renew() {
  const pid = Number(fs.readlinkSync('/proc/self'));
  Object.defineProperty(process, 'pid', { ...Object.getOwnPropertyDescriptor(process, 'pid'), value: pid });
}

/** Sets variables, each `NAME=value`. Returns whether there is a new value of one that only a new node would use. */
function setVariables(texts) {
  const changed = texts
    .map((text) => [text.slice(0, text.indexOf('=')), text.slice(text.indexOf('=') + 1)])
    .filter(([name, value]) => name !== '' && process.env[name] !== value);
  for (const [name, value] of changed) process.env[name] = value;
  return changed.some(([name]) => ALSO_READ.includes(name) || READ_AT_START.some((start) => name.startsWith(start)));
}

/** Lets node start the program in `file`. It reads Module.runMain once for that, and would call it with the name of this file. */
function startWith(file) {
  const runMain = Object.getOwnPropertyDescriptor(Module, 'runMain');
  Object.defineProperty(Module, 'runMain', {
    configurable: true,
    get() {
      Object.defineProperty(Module, 'runMain', runMain);
      return runMain.value.bind(Module, file); // a bound function has no frame in a stack trace
    },
  });
  process.argv[1] = file;
}

/** Does once what almost every program does, since V8 compiles a function when it is first called, and swc is loaded when it is
 * first needed. A program must not be able to tell. So what would be a pipe here is an object of ours, what node would do
 * later happens at once, and nothing is left: no handle, no timer, no module, and no number of an asynchronous operation. node
 * makes process.stderr when it first asks for colours or prints an error, so neither is done here. */
function rehearse(find) {
  require(REHEARSAL);
  const nextTick = Object.getOwnPropertyDescriptor(process, 'nextTick');
  Object.defineProperty(process, 'nextTick', { ...nextTick, value: (call, ...args) => call(...args) });
  const nothing = () => 0;
  const pipe = { getAsyncId: nothing, readStop: nothing, writeUtf8String: nothing, writeLatin1String: nothing, writeBuffer: nothing };
  const stream = new net.Socket({ handle: pipe, readable: false, writable: true }); // as process.stdout is one
  const out = new Console({ stdout: stream, stderr: stream, colorMode: false });
  out.log('text', 1, true, null, undefined, [1, 2], { a: { b: 'c' } }, new Map([[1, 2]]), new Set([1]), new Date(0), 1n);
  out.log('%s %d %j', 'a', 1, {});
  Object.defineProperty(process, 'nextTick', nextTick);
  renew();
  setVariables([`HOME=${process.env.HOME}`]);
  find();
}

/** Lets performance.now() and process.uptime() begin when the returned function is called, since programs use them as their own
 * age. */
function clocks() {
  const { performance } = globalThis;
  const prototype = Object.getPrototypeOf(performance);
  const { now, mark, measure } = prototype;
  const { uptime } = process;
  let origin = performance.timeOrigin;
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
    origin += waited;
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

/** Returns in a child that has taken a run, when process.argv[1], process.env and node's main program are as with the
 * entrypoint. `find` is the function of hooks.cjs that looks for the code. */
exports.wait = (find) => {
  for (const name of USUAL) require(`node:${name}`);
  const addon = load();
  rehearse(find);
  vanish();
  const start = clocks();
  settle(addon);
  const run = addon.serve(process, Object.getOwnPropertyDescriptor(process, 'exitCode').get);
  if (run === undefined) process.exit(1);

  renew();
  const [file, ...variables] = run;
  if (setVariables(variables)) {
    process.execve(process.execPath, [process.argv0, ...process.execArgv, file], process.env); // does not return
  }
  if (file === TRIAL) process.env.SANDBOX_MAIN = file; // for find(): its path is not that of a run
  startWith(file);
  start();
};
