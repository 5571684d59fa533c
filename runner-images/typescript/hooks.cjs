'use strict';
// node preloads this file (`node --require hooks.cjs /tmp/run.<pid>/main.ts`). It lets node run all of TypeScript.
//
// The user's code is stored under /tmp (or /dev/shm), but its name is /data/main.ts. So `./helper`, __dirname and
// import.meta.url mean the folder of the user's files, and a stack trace names main.ts.
// Types are removed, and checked only if the call asks for that (check.cjs). Code with import, export or a top-level await
// is an ES module, all other code is CommonJS. ES modules can use require, __dirname and similar names too.
// This file must never read anything in /data before the user's own code asks for it, so it loads swc by an absolute path.

const fs = require('node:fs');
const Module = require('node:module');
const path = require('node:path');
const vm = require('node:vm');
const { isMainThread } = require('node:worker_threads');
const { fileURLToPath, pathToFileURL } = require('node:url');

const DATA = '/data';
const TYPESCRIPT = /\.[cm]?tsx?$/;
// Endings that a relative import may leave out (ENDINGS), and endings that may replace the one it has (WRITTEN_AS).
const ENDINGS = ['.ts', '.tsx', '.mts', '.cts', '.js', '.mjs', '.cjs', '.json', '/index.ts', '/index.tsx', '/index.js'];
const WRITTEN_AS = { '.js': ['.ts', '.tsx'], '.mjs': ['.mts'], '.cjs': ['.cts'], '.jsx': ['.tsx'] };
const WRAPPER = ['exports', 'require', 'module', '__filename', '__dirname'];

const FORK_FLAGS = ['--single-threaded', '--v8-pool-size=0', '--disable-sigusr1'];

let swc; // loaded when it is first needed, because that takes 10 ms
let asked = false; // whether node has asked for the main program
let begun; // the main program, if node is going to ask for it again

let main = path.join(DATA, 'main.ts'); // the name of the code
let mainUrl = pathToFileURL(main).href;
let stored; // where the code is, if this process or its parent has one
let arrive; // in the warm part: waits for a run, and returns in a child that has one
let packages; // a file beside which node finds the packages of the run; undefined without any

/** Removes the flags that only the warm part has (fork.cc says why) from what programs see. A worker has those of its process. */
function hideForkFlags() {
  while (FORK_FLAGS.includes(process.execArgv[0])) process.execArgv.shift();
}
hideForkFlags();

/** Checks the types of the code, as its caller asked. With an error it does not return. */
function checkTypes() {
  delete process.env.SANDBOX_TYPECHECK; // neither the program nor what it starts asks again
  const checker = path.join(__dirname, 'check.cjs');
  require(checker)(stored, main);
  delete require.cache[checker];
  module.children.length = 0;
}

const STORED = /^\/(?:tmp|dev\/shm)\/run\.[\d.]+\/main\.ts$/;

/** Finds the code, once process.argv[1] and process.env are those of the run. A child of the warm part is `given` its place. */
function find(given) {
  const layer = process.env.SANDBOX_PACKAGES;
  packages = layer && pathToFileURL(path.join(layer, 'main.js')).href;
  stored = process.env.SANDBOX_MAIN; // a worker or a child from fork() finds the code by this variable
  if (given !== undefined || (stored === undefined && isMainThread && STORED.test(process.argv[1] ?? ''))) {
    stored = process.env.SANDBOX_MAIN = process.argv[1];
    process.chdir(DATA); // not earlier: node reads the package.json of the folder that it starts in
  }
  if (stored === undefined) return;
  if (fs.existsSync(main)) { // the user's own main.ts keeps its name
    main = path.join(DATA, 'main.run.ts');
    mainUrl = pathToFileURL(main).href;
  }
  if (process.argv[1] === stored) process.argv[1] = main;
  if (process.env.SANDBOX_TYPECHECK !== undefined && isMainThread) checkTypes();
}

/** Whether node asks for the program by the place of its code. */
const isStored = (specifier) => stored !== undefined && (specifier === stored ||
  (specifier.startsWith('file:///') && specifier.endsWith('/main.ts') && specifier === pathToFileURL(stored).href));

const OF_IMAGE = 'file:///node_modules/';

/** Whether a specifier names a package, and not one of node's own modules. */
const isPackage = (specifier) => /^(?:@[^/]+\/)?[^./:#@][^:]*$/.test(specifier) && !Module.isBuiltin(specifier);

/**
 * A package from those of the run, if neither the user's own files nor the importing package bring one: they come behind
 * /data/node_modules and before the libraries of the image.
 */
function resolvePackage(specifier, context, next) {
  let found;
  let error;
  try {
    found = next(specifier, context);
    if (!found.url.startsWith(OF_IMAGE) || context.parentURL?.startsWith(OF_IMAGE)) return found;
  } catch (thrown) {
    if (!/MODULE_NOT_FOUND/.test(thrown?.code)) throw thrown;
    error = thrown;
  }
  try {
    if (context.conditions?.includes('require')) {
      const file = Module._findPath(specifier, [path.join(process.env.SANDBOX_PACKAGES, 'node_modules')], false);
      if (file) return { ...found, url: pathToFileURL(file).href, format: undefined };
    } else {
      return next(specifier, { ...context, parentURL: packages });
    }
  } catch (thrown) {
    if (!/MODULE_NOT_FOUND/.test(thrown?.code)) throw thrown;
  }
  if (error) throw error;
  return found;
}

const isFile = (name) => fs.statSync(name, { throwIfNoEntry: false })?.isFile() === true;

/** The file that a relative specifier means, if its ending is missing or differs; undefined if there is no such file. */
function probe(wanted) {
  if (wanted === main || isFile(wanted)) return wanted;
  const written = path.extname(wanted);
  for (const ending of WRITTEN_AS[written] ?? []) {
    const other = wanted.slice(0, -written.length) + ending;
    if (isFile(other)) return other;
  }
  return ENDINGS.map((ending) => wanted + ending).find(isFile);
}

/** Loads swc and removes it from require.cache, so that a program sees the same cache whenever swc is loaded. */
function loadSwc() {
  const loaded = require('/node_modules/@swc/core/binding.js');
  for (const file of Object.keys(require.cache)) if (file.startsWith('/node_modules/@swc/')) delete require.cache[file];
  module.children.length = 0;
  return loaded;
}

/** What swc does with a file, as it reads it. */
const options = (file, parser) => Buffer.from(JSON.stringify({
  filename: file, sourceFileName: file, sourceMaps: 'inline', inlineSourcesContent: true, inputSourceMap: false,
  swcrc: false, configFile: false, isModule: 'unknown',
  jsc: {
    parser, target: 'esnext',
    transform: { legacyDecorator: true, decoratorMetadata: true },
    experimental: { keepImportAttributes: true },
  },
}));
const asTypeScript = (file) => options(file, { syntax: 'typescript', tsx: /x$/.test(file), decorators: true, dts: false });
const OF_MAIN = asTypeScript(main), OF_MAIN_NAME = main; // ready before a run arrives

/** Turns TypeScript into JavaScript with an inline source map. Code that is not TypeScript may still be JavaScript. */
function transpile(source, file) {
  swc ??= loadSwc();
  const transform = (how) => swc.transformSync(source, false, how).code;
  try {
    return transform(file === OF_MAIN_NAME ? OF_MAIN : asTypeScript(file));
  } catch (error) {
    try {
      return transform(options(file, { syntax: 'ecmascript', jsx: true, decorators: true, allowReturnOutsideFunction: true }));
    } catch {
      const plain = new SyntaxError(String(error.message).replace(/\x1b\[[\d;]*m/g, '').replace(/\n\s*Caused by:[^]*/, ''));
      plain.stack = `SyntaxError: ${plain.message}`;
      throw plain;
    }
  }
}

/** Without any of these words, code that has been parsed without an error is CommonJS: nothing in it needs a module, and it
 * declares none of the names that CommonJS code is given. A name can also be written with an escape. */
const NEEDS_A_LOOK = new RegExp(`\\b(?:import|export|await|${WRAPPER.join('|')})\\b|\\\\u`);

/** The code has been parsed without an error. So if it is not CommonJS, it is an ES module; node decides much the same. */
function kind(code, file) {
  if (/\.mtsx?$/.test(file)) return 'module';
  if (/\.ctsx?$/.test(file) || !NEEDS_A_LOOK.test(code)) return 'commonjs';
  try {
    vm.compileFunction(code, WRAPPER, { filename: file });
    return 'commonjs';
  } catch {
    return 'module';
  }
}

/** Defines require, __dirname and similar names for an ES module, because models mix the two. Only used names are defined. */
function lendCommonJs(source) {
  let module;
  const lent = {
    require: () => Object.assign(Module.createRequire(main), { main: lent.module() }),
    module: () => (module ??= Object.assign(new Module(main), { filename: main, loaded: false })),
    exports: () => lent.module().exports,
    __filename: () => main,
    __dirname: () => DATA,
  };
  for (const [name, make] of Object.entries(lent)) {
    if (Object.hasOwn(globalThis, name) || !new RegExp(`\\b${name}\\b`).test(source)) continue;
    Object.defineProperty(globalThis, name, { value: make(), writable: true, configurable: true, enumerable: false });
  }
}

Module.registerHooks({
  resolve(specifier, context, next) {
    if (arrive !== undefined) { // node begins with its main program
      const wait = arrive;
      arrive = undefined;
      wait(); // it has called find() in the child that comes back
      return { url: mainUrl, shortCircuit: true };
    }
    if (stored !== undefined && (specifier === main || specifier === mainUrl || isStored(specifier))) {
      return { url: mainUrl, shortCircuit: true };
    }
    if (/^(\.{0,2}\/|\.\.?$|file:)/.test(specifier) && !context.parentURL?.includes('/node_modules/')) {
      const base = context.parentURL?.startsWith('file:') ? context.parentURL : mainUrl;
      const url = new URL(specifier, base);
      const found = probe(fileURLToPath(url));
      if (found !== undefined) return { url: pathToFileURL(found).href + url.search, shortCircuit: true };
    }
    if (packages && isPackage(specifier)) return resolvePackage(specifier, context, next);
    return next(specifier, context);
  },
  load(url, context, next) {
    if (!url.startsWith('file:') || url.includes('/node_modules/')) return next(url, context);
    const isMain = stored !== undefined && url === mainUrl;
    const file = isMain ? main : fileURLToPath(url);
    if (isMain && begun !== undefined) {
      const again = begun; // node asks for an ES module twice, because it first takes every program for CommonJS
      begun = undefined;
      return again;
    }
    if (file.endsWith('.json')) return next(url, { ...context, importAttributes: { type: 'json' } }); // as tsc allows it
    if (!isMain && !TYPESCRIPT.test(file)) return next(url, context);
    const source = fs.readFileSync(isMain ? stored : file, 'utf8');
    let code;
    try {
      code = transpile(source, file);
    } catch (error) {
      if (!isMain || !isMainThread) throw error;
      fs.writeSync(2, `${error.stack}\n`); // without node's own stack frames
      process.exit(1);
    }
    const format = kind(code, file);
    if (format === 'module') lendCommonJs(source);
    const loaded = { format, source: code, shortCircuit: true };
    if (isMain && format === 'module' && !asked) begun = loaded;
    if (isMain) asked = true;
    return loaded;
  },
});

// The warm part begins its main program, waits for the run when it asks where that is, and goes on in a child.
if (isMainThread && process.argv[1] === path.join(__dirname, 'warm.cjs')) {
  arrive = require(process.argv[1]).begin({ find, transpile, kind });
} else find();
