'use strict';
// Checks the types of the user's code before it runs, if the call asks for that (SANDBOX_TYPECHECK). hooks.cjs calls it.
//
// It prints each error as `main.ts:LINE:COLUMN - error TS…` and ends with exit code 2; the program then does not run.
// The compiler is the native one (TypeScript 7): a process of its own for each check, because it starts in a tenth of a
// second, and a compiler that waited in each idle container would take 180 MB there.
//
// The user's code is stored under /tmp, but means files in /data: `rootDirs` lets the compiler find those beside it.

const { spawnSync } = require('node:child_process');
const fs = require('node:fs');
const path = require('node:path');

const COMPILER = '/usr/local/share/sandbox/tsc/tsc';
const DATA = '/data';
const ERRORS = 50; // more help nobody
const FAILED = 2;
const TROUBLE = 126; // as `enter` says that it could not start the program

/** Every strict check but those for types that are left out: short programs leave many out. */
const OPTIONS = {
  noEmit: true, strict: true, noImplicitAny: false, noImplicitThis: false, useUnknownInCatchVariables: false,
  target: 'esnext', lib: ['esnext'], module: 'preserve', moduleDetection: 'force', moduleResolution: 'bundler',
  allowImportingTsExtensions: true, resolveJsonModule: true, esModuleInterop: true, skipLibCheck: true,
  experimentalDecorators: true, emitDecoratorMetadata: true, types: ['node'], typeRoots: ['/node_modules/@types'],
};

/** `stored` is the file with the code, and `main` the name that it has for the user. */
module.exports = (stored, main) => {
  const folder = path.dirname(stored);
  const project = path.join(folder, 'tsconfig.json');
  const options = {
    ...OPTIONS,
    rootDirs: [folder, DATA],
    paths: { '*': [`${DATA}/node_modules/*`, `${DATA}/node_modules/@types/*`] },
  };
  let done;
  try {
    fs.writeFileSync(project, JSON.stringify({ compilerOptions: options, files: [stored] }));
    done = spawnSync(COMPILER, ['--project', project, '--pretty', 'false'], {
      cwd: DATA, env: { PATH: process.env.PATH, HOME: '/tmp', LANG: 'C.UTF-8' }, encoding: 'utf8',
      stdio: ['ignore', 'pipe', 'inherit'], maxBuffer: 64 * 1024 * 1024,
    });
  } catch (error) {
    done = { error };
  }
  fs.rmSync(project, { force: true });
  if (done.status === 0) return;
  if (done.error || done.status === null) {
    const why = done.error ? done.error.message : `it was ended by ${done.signal}`;
    fs.writeSync(2, `sandbox: the types could not be checked: ${why}\n`);
    process.exit(TROUBLE);
  }
  report(done.stdout, stored, main);
  process.exit(FAILED);
};

/** Prints the compiler's errors with the names that files have for the user. */
function report(text, stored, main) {
  const named = (name) => {
    const file = path.resolve(DATA, name);
    return file === stored ? path.basename(main) : path.relative(DATA, file);
  };
  let errors = 0;
  const lines = [];
  for (const line of text.split('\n')) {
    const error = /^(\S.*?)\((\d+),(\d+)\): error (TS\d+: .*)$/.exec(line);
    if (error || /^error TS/.test(line)) errors++;
    if (errors > ERRORS || line === '') continue;
    lines.push(error ? `${named(error[1])}:${error[2]}:${error[3]} - error ${error[4]}` : line);
  }
  if (errors > ERRORS) lines.push(`and ${errors - ERRORS} more errors`);
  fs.writeSync(2, `${lines.join('\n')}\n`);
}
