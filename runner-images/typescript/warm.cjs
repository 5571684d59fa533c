'use strict';
// The warm part: a node that has started, waits for one run, and becomes its program. node preloads hooks.cjs. If node was
// started with the name of this file, hooks.cjs calls this file first; node never runs it as a program.
//
// It must leave node in the same state as the entrypoint does (`enter main.ts / node ... /tmp/run.<pid>/main.ts`). So before
// a run arrives, nothing here may make a handle, a promise or a timer, use process.stdin, stdout or stderr, or read anything
// in /data or /tmp, because node caches what it has read. README.md lists the differences that a program can notice.

const fs = require('node:fs');
const Module = require('node:module');
const util = require('node:util');

const LINE = 3; // the descriptor of the connection to paddock
// Variables that node, V8, OpenSSL, ICU or the dynamic linker read only once, when they start.
const READ_AT_START = /^(?:NODE|UV|OPENSSL|SSL|ICU|LC|LD|MALLOC|GLIBC)_|^(?:NODE|LANG|LANGUAGE|SANDBOX_MAIN)$/;
// Modules of node that a program's first console.log and first import of node:fs would load. There are only a few, because
// each makes every start slower. A program can notice them only in process.moduleLoadList.
const USUAL = ['net', 'tty', 'fs/promises', 'perf_hooks'];

function fail(what, error) {
  const why = util.getSystemErrorMessage(error.errno) ?? error.message;
  fs.writeSync(2, `sandbox: ${what}: ${why[0].toUpperCase()}${why.slice(1)}\n`); // the same message as from `enter`
  process.exit(126);
}

/** Reports that it is ready, and waits for the run. Returns undefined if paddock closes the connection without a run. */
function receive() {
  let got = Buffer.allocUnsafe(65536);
  let length = 0;
  try {
    fs.writeSync(LINE, 'ready\n');
    for (;;) {
      if (length === got.length) got = Buffer.concat([got, Buffer.allocUnsafe(length)]);
      const read = fs.readSync(LINE, got, length, got.length - length, null);
      if (read === 0) break;
      length += read;
    }
    fs.closeSync(LINE);
  } catch {
    return undefined; // paddock has closed the connection, so the error cannot be reported
  }
  return length === 0 ? undefined : got.subarray(0, length);
}

/** Parses variables, each `NAME=value` and a zero byte, one more zero byte, and the code. Returns undefined otherwise. */
function parse(message) {
  const variables = [];
  for (let at = 0; ; ) {
    const end = message.indexOf(0, at);
    if (end < 0) return undefined;
    if (end === at) return { variables, code: message.subarray(end + 1) };
    const text = message.toString('utf8', at, end);
    const equals = text.indexOf('=');
    if (equals > 0) variables.push([text.slice(0, equals), text.slice(equals + 1)]);
    at = end + 1;
  }
}

/** The directories for code. The second one is used if an earlier run has filled the first. */
const PLACES = ['/tmp', '/dev/shm'];

/** Removes the code of earlier runs from one directory, if their process has ended. */
function removeEarlier(place) {
  for (const name of fs.readdirSync(place)) {
    const pid = /^run\.(\d+)(?:\.\d+)?$/.exec(name)?.[1];
    if (pid === undefined) continue;
    try {
      process.kill(Number(pid), 0);
    } catch (error) {
      if (error.code !== 'ESRCH') continue;
      for (const remove of [() => fs.unlinkSync(`${place}/${name}/main.ts`), () => fs.rmdirSync(`${place}/${name}`)]) {
        try { remove(); } catch { /* it belongs to a program, or contains other files */ }
      }
    }
  }
}

/** Stores the code in one directory. If it throws, it leaves nothing behind. */
function storeIn(place, code) {
  const wanted = `${place}/run.${process.pid}`;
  let folder = wanted;
  for (let n = 1; ; n++) {
    try {
      fs.mkdirSync(folder, 0o700);
      break;
    } catch (error) {
      if (!fs.statSync(folder, { throwIfNoEntry: false })?.isDirectory()) throw error;
      folder = `${wanted}.${n}`;
    }
  }
  const file = `${folder}/main.ts`;
  try {
    fs.writeFileSync(file, code);
  } catch (error) {
    for (const remove of [() => fs.unlinkSync(file), () => fs.rmdirSync(folder)]) {
      try { remove(); } catch { /* it does not exist */ }
    }
    throw error;
  }
  return file;
}

/** Stores the code as `enter` does. */
function store(code) {
  for (const place of PLACES) {
    try { removeEarlier(place); } catch { /* a directory that cannot be listed has no code of ours */ }
  }
  let why;
  for (const place of PLACES) {
    try { return storeIn(place, code); } catch (error) { why = error; }
  }
  return fail('cannot store the code in /tmp or /dev/shm', why);
}

/** Lets performance.now() and process.uptime() start at the program's start, since programs use them as their own age. */
function startClocks() {
  const { performance } = globalThis;
  const prototype = Object.getPrototypeOf(performance);
  const { now, mark, measure } = prototype;
  const { uptime } = process;
  const waited = performance.now();
  const seconds = uptime();
  const origin = performance.timeOrigin + waited;
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
}

/** Removes every trace of this file from require.cache and node's other tables. */
function vanish() {
  delete require.cache[__filename];
  for (const key of Object.keys(Module._pathCache)) if (key.startsWith(__filename)) delete Module._pathCache[key];
  module.parent.children.length = 0;
}

/** Returns when a run has arrived. process.argv[1] and node's main program are then the same as with the entrypoint. */
exports.wait = (prepare) => {
  for (const name of USUAL) require(`node:${name}`);
  prepare();
  const message = receive();
  const run = message && parse(message);
  if (run === undefined) process.exit(0);

  const file = store(run.code);
  const changed = run.variables.filter(([name, value]) => process.env[name] !== value);
  for (const [name, value] of changed) process.env[name] = value;
  if (changed.some(([name]) => READ_AT_START.test(name))) {
    process.execve(process.execPath, [process.argv0, ...process.execArgv, file], process.env); // does not return
  }
  process.argv[1] = file;
  // node reads Module.runMain once, to start the program, and would call it with the name of this file.
  const runMain = Object.getOwnPropertyDescriptor(Module, 'runMain');
  Object.defineProperty(Module, 'runMain', {
    configurable: true,
    get() {
      Object.defineProperty(Module, 'runMain', runMain);
      return runMain.value.bind(Module, file); // a bound function has no frame in a stack trace
    },
  });
  vanish();
  startClocks();
};
