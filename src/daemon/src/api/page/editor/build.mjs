// Bundles entry.mjs and the packages of package-lock.json into one file: ../editor.js, or the file that is named.
//   npm ci --ignore-scripts && node build.mjs [FILE]
// The same sources make the same bytes, which a test compares. It must never write a bundle that lacks a package's licence.
import { readFileSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { build } from 'esbuild'

const here = dirname(fileURLToPath(import.meta.url))
const target = process.argv[2] ?? join(here, '../editor.js')

const { outputFiles: [bundle], metafile } = await build({
  absWorkingDir: here,
  entryPoints: ['entry.mjs'],
  bundle: true,
  minify: true,
  charset: 'utf8',
  format: 'esm',
  target: 'es2022',
  legalComments: 'none',
  metafile: true,
  write: false,
  logLevel: 'warning',
})

// Each package that is in the bundle, with its copyright; all of them have the MIT licence, with the same text.
const names = Object.keys(metafile.inputs).flatMap(path => path.match(/node_modules\/((?:@[^/]+\/)?[^/]+)\//)?.[1] ?? [])
const text = name => readFileSync(join(here, 'node_modules', name, 'LICENSE'), 'utf8').replaceAll(/\s+/g, ' ')
const permission = name => text(name).slice(text(name).indexOf('Permission is hereby granted'))
const lines = new Map()
let terms
for (const name of [...new Set(names)].sort()) {
  const { version, license } = JSON.parse(readFileSync(join(here, 'node_modules', name, 'package.json'), 'utf8'))
  terms ??= permission(name).trim()
  if (license !== 'MIT' || permission(name).trim() !== terms) throw new Error(`the licence of ${name} is not the others'`)
  const [copyright] = text(name).match(/Copyright.*?(?= Permission)/)
  lines.set(copyright, [...(lines.get(copyright) ?? []), `${name} ${version}`])
}
const banner = [
  'Made by editor/build.mjs; do not edit. It has these packages, under the MIT licence:',
  ...[...lines].map(([copyright, packages]) => `${copyright}\n  ${packages.join(', ')}`),
  terms,
].join('\n\n').replaceAll(/(.{1,110})( |$)/gm, '$1\n').replaceAll(/\n{3,}/g, '\n\n').trim()
writeFileSync(target, `/*!\n${banner}\n*/\n${bundle.text}`)
