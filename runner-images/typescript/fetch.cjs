'use strict';
// Fetches packages for programs: `node fetch.cjs NAME@VERSION...` leaves them, with what they need, in ./node_modules.
//
// ../README.md, "How packages are fetched", has the contract. npm does the work: without scripts, so that nothing of a package
// runs, and comparing each file with the hash that the registry gave for it. This file must never import or run anything that
// was fetched, and must leave only what belongs to the packages.

const fs = require('node:fs');
const { spawnSync } = require('node:child_process');

const NPM = '/usr/local/lib/sandbox/npm/bin/npm-cli.js';
const WRONG = 65; // EX_DATAERR
const UNAVAILABLE = 69; // EX_UNAVAILABLE

function end(code, sentence) {
  fs.writeSync(2, `${sentence.replace(/\s+/g, ' ').slice(0, 1500)}\n`);
  process.exit(code);
}

/** Ends with what npm said, in fewer words. */
function explain(said) {
  const lines = said.split('\n').map((line) => line.replace(/^npm (error|ERR!) ?/, '').trim()).filter(Boolean);
  const code = lines.find((line) => /^code E/.test(line))?.slice(5) ?? '';
  const words = lines.filter((line) => !/^(code |errno |syscall |A complete log|network )/.test(line)).join(' ');
  if (code === 'ENOSPC' || code === 'EFBIG') end(WRONG, 'the packages need more room than a fetch has');
  if (code === 'EINTEGRITY') end(UNAVAILABLE, `the registry serves a file that does not match its hash: ${words}`);
  if (code === 'E404') end(WRONG, `the registry has no package of this name: ${words}`);
  if (code === 'ETARGET') end(WRONG, `the registry has no such version: ${words}`);
  if (/^(E5\d\d|ECONN|ENOTFOUND|EAI_AGAIN|ETIMEDOUT|ERR_SOCKET|EACCES|EPERM|ENETUNREACH|EPIPE|CERT|UNABLE|SELF_SIGNED|FETCH_ERROR|ERR_)/.test(code)) {
    end(UNAVAILABLE, `the registry cannot be reached: ${code} ${words}`);
  }
  end(code === '' ? UNAVAILABLE : WRONG, words || said.slice(-600) || 'npm failed');
}

const scratch = fs.mkdtempSync('.fetch-');
const options = [
  '--ignore-scripts', '--no-bin-links', '--no-audit', '--no-fund', '--no-update-notifier', '--omit=dev', '--install-strategy=hoisted',
  '--no-progress', '--loglevel=error', '--fetch-retries=2', '--fetch-retry-mintimeout=500', '--fetch-retry-maxtimeout=3000', '--fetch-timeout=30000', `--cache=${process.cwd()}/${scratch}`,
  '--logs-max=0', '--allow-git=none', '--userconfig=/dev/null', `--globalconfig=${scratch}/npmrc`,
];
if (process.env.SANDBOX_INDEX) options.push(`--registry=${process.env.SANDBOX_INDEX}`);
fs.writeFileSync('package.json', '{"private": true}');
const npm = spawnSync(process.execPath, [NPM, 'install', ...options, '--save-exact', ...process.argv.slice(2)], {
  stdio: ['ignore', 'ignore', 'pipe'], encoding: 'utf8', maxBuffer: 1 << 24,
});
if (npm.status !== 0) explain(npm.stderr ?? '');

const { packages } = JSON.parse(fs.readFileSync('package-lock.json', 'utf8'));
const locked = [];
for (const [path, { version, integrity, resolved, inBundle }] of Object.entries(packages)) {
  // The lock file also has the optional packages of other systems, which npm leaves out.
  if (path === '' || !fs.existsSync(path)) continue;
  const name = path.slice(path.lastIndexOf('node_modules/') + 'node_modules/'.length);
  // What came in the archive of another package has no file and no hash of its own: the hash of that archive stands for it.
  const cameInArchive = inBundle && !resolved && !integrity;
  if (!cameInArchive && !/^sha(512|384|256)-/.test(integrity ?? '')) {
    end(UNAVAILABLE, `${name}@${version}: the registry gives no hash that can be trusted (${resolved ?? 'no file'})`);
  }
  locked.push(`${name}@${version}`);
}
for (const left of [scratch, 'package.json', 'package-lock.json', 'node_modules/.package-lock.json']) {
  fs.rmSync(left, { recursive: true, force: true });
}
console.log(JSON.stringify({ locked: [...new Set(locked)].sort() }));
