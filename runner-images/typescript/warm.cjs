'use strict';
// The warm part: a node that has started and waits for the one run that it becomes. hooks.cjs, which is preloaded, calls
// this before it does anything else if node was started with this file's name; the file itself is never run as a program.
//
// It has to leave node as the entrypoint (`enter main.ts / node ... /tmp/run.<pid>/main.ts`) leaves it: nothing here may
// make a handle, a promise or a timer, touch process.stdin, stdout or stderr, or read anything in /data or /tmp before
// there is a run, for node remembers what it has seen. What the wait cannot keep from a program is listed in README.md.

const fs = require('node:fs');
const Module = require('node:module');
const util = require('node:util');

const LINE = 3; // to paddock
// What node, V8, OpenSSL, ICU or the dynamic linker read once, at their start.
const READ_AT_START = /^(?:NODE|UV|OPENSSL|SSL|ICU|LC|LD|MALLOC|GLIBC)_|^(?:NODE|LANG|LANGUAGE|SANDBOX_MAIN)$/;
// Parts of node that a program's first console.log and its first import of node:fs load. Each costs every start, so no
// more of them; they leave no trace but in process.moduleLoadList.
const USUAL = ['net', 'tty', 'fs/promises', 'perf_hooks'];

function fail(what, error) {
  const why = util.getSystemErrorMessage(error.errno) ?? error.message;
  fs.writeSync(2, `sandbox: ${what}: ${why[0].toUpperCase()}${why.slice(1)}\n`); // in the words of `enter`
  process.exit(126);
}

/** Says that it stands ready, and waits. What comes is undefined if the line closes without a run. */
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
    return undefined; // paddock is gone: nobody is there to be told
  }
  return length === 0 ? undefined : got.subarray(0, length);
}

/** `NAME=value` with a zero byte behind each, one more zero byte, and the code. Undefined if that is not what it is. */
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

/** Where code is stored: in the first place, or in the second where an earlier run has filled that. */
const PLACES = ['/tmp', '/dev/shm'];

/** Removes from one place the code of runs whose process has gone. */
function removeEarlier(place) {
  for (const name of fs.readdirSync(place)) {
    const pid = /^run\.(\d+)(?:\.\d+)?$/.exec(name)?.[1];
    if (pid === undefined) continue;
    try {
      process.kill(Number(pid), 0);
    } catch (error) {
      if (error.code !== 'ESRCH') continue;
      for (const remove of [() => fs.unlinkSync(`${place}/${name}/main.ts`), () => fs.rmdirSync(`${place}/${name}`)]) {
        try { remove(); } catch { /* it belongs to a program, or has more in it */ }
      }
    }
  }
}

/** Stores the code in one place, and leaves nothing behind where it throws. */
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
      try { remove(); } catch { /* it was not made */ }
    }
    throw error;
  }
  return file;
}

/** As `enter` does it. */
function store(code) {
  for (const place of PLACES) {
    try { removeEarlier(place); } catch { /* it cannot be listed: nothing of ours is there */ }
  }
  let why;
  for (const place of PLACES) {
    try { return storeIn(place, code); } catch (error) { why = error; }
  }
  return fail('cannot store the code in /tmp or /dev/shm', why);
}

/** A program takes performance.now() and process.uptime() for how long it has run: their zero is put where it begins. */
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
    if (arguments.length === 0) return mark.call(this); // which says what is wrong with that
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

/** Nothing is to be found of this file, in require.cache or elsewhere. */
function vanish() {
  delete require.cache[__filename];
  for (const key of Object.keys(Module._pathCache)) if (key.startsWith(__filename)) delete Module._pathCache[key];
  module.parent.children.length = 0;
}

/** Comes back when there is a run, with process.argv[1] and node's idea of the main program as the entrypoint has them. */
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
    process.execve(process.execPath, [process.argv0, ...process.execArgv, file], process.env); // does not come back
  }
  process.argv[1] = file;
  // Node looks Module.runMain up once, to start the program, and would call it with this file's name.
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
