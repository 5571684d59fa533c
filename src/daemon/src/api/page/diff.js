// A diff in git's form, read and drawn: folded by file, coloured by line. It must never show more of it than a bound, nor show
// it as anything but text; the whole is behind its link.
import { el } from './dom.js'
import { ownLink } from './http.js'
import { count, named, size } from './text.js'

// Bytes that are loaded; files, lines of a file and characters of a line that are shown.
const LOADED = 1 << 20
const FILES = 300
const LINES = 1500
const LINE = 1000
// Files are open from the beginning while all of them together have at most so many lines.
const OPEN = 300

// The beginning of the text behind a link, and whether that is all of it.
export async function load(link, signal) {
  const href = ownLink(link)
  if (!href) throw new Error('its link does not lead to this daemon')
  const got = await fetch(href, {
    signal, cache: 'no-store', credentials: 'omit', redirect: 'error', referrerPolicy: 'no-referrer',
  })
  if (!got.ok) throw new Error(`the daemon answered ${got.status}`)
  const reader = got.body.getReader()
  const pieces = []
  let bytes = 0
  let isWhole = false
  while (bytes < LOADED) {
    const { done, value } = await reader.read()
    if (done) {
      isWhole = true
      break
    }
    pieces.push(value)
    bytes += value.length
  }
  reader.cancel().catch(() => {})
  const text = new TextDecoder().decode(await new Blob(pieces).arrayBuffer())
  // What is cut is cut at the end of a line.
  return { text: isWhole ? text : text.slice(0, Math.min(LOADED, text.lastIndexOf('\n') + 1)), isWhole }
}

// A name as git quotes it: C's escapes, octal bytes of UTF-8.
function unquoted(name) {
  if (!/^".*"$/s.test(name)) return name
  const bytes = []
  const escapes = { n: 10, t: 9, r: 13, a: 7, b: 8, f: 12, v: 11 }
  for (const [part] of name.slice(1, -1).matchAll(/\\[0-7]{3}|\\.|[^\\]+/gs)) {
    if (/^\\[0-7]{3}$/.test(part)) bytes.push(parseInt(part.slice(1), 8) & 0xff)
    else if (part.startsWith('\\')) bytes.push(...(part[1] in escapes ? [escapes[part[1]]] : new TextEncoder().encode(part[1])))
    else bytes.push(...new TextEncoder().encode(part))
  }
  return new TextDecoder().decode(new Uint8Array(bytes))
}

const path = (line, prefix) => unquoted(line.replace(/\t$/, '')).replace(new RegExp(`^${prefix}/`), '')

// The files of a diff: {name, words, added, removed, lines}. Lines of a hunk are counted, so that none of them is taken for a
// header, whatever it says.
export function parse(text) {
  const files = []
  let file = null
  let [before, after] = [0, 0]
  for (const line of text.split('\n')) {
    if (file && (before > 0 || after > 0 || line.startsWith('\\'))) {
      if (line.startsWith('-')) [before, file.removed] = [before - 1, file.removed + 1]
      else if (line.startsWith('+')) [after, file.added] = [after - 1, file.added + 1]
      else if (!line.startsWith('\\')) [before, after] = [before - 1, after - 1]
      file.lines.push(line)
      continue
    }
    if (line.startsWith('diff --git ')) {
      const half = line.slice('diff --git '.length)
      file = { name: path(half.slice(0, (half.length - 1) / 2), 'a'), words: '', added: 0, removed: 0, lines: [] }
      files.push(file)
      continue
    }
    if (!file) continue
    const hunk = line.match(/^@@ -\d+(?:,(\d+))? \+\d+(?:,(\d+))? @@/)
    if (hunk) {
      ;[before, after] = [Number(hunk[1] ?? 1), Number(hunk[2] ?? 1)]
      file.lines.push(line)
    } else if (line.startsWith('+++ ') && line !== '+++ /dev/null') file.name = path(line.slice(4), 'b')
    else if (line.startsWith('--- ') && line !== '--- /dev/null') file.name = path(line.slice(4), 'a')
    else if (line.startsWith('rename from ')) file.words = `renamed from ${unquoted(line.slice(12))}`
    else if (line.startsWith('rename to ')) file.name = unquoted(line.slice(10))
    else if (line.startsWith('new file')) file.words = 'new'
    else if (line.startsWith('deleted file')) file.words = 'deleted'
    else if (line.startsWith('Binary files') || line.startsWith('GIT binary patch')) file.words = `${file.words} binary`.trim()
  }
  return files
}

const KINDS = { '+': 'plus', '-': 'minus', '@': 'hunk', '\\': 'hunk' }

// The same characters as in a name, but tabs stay.
const visible = line => line.split('\t').map(named).join('\t')

function lines(file) {
  const all = file.lines.slice(0, LINES).map(line => {
    const text = line.length > LINE ? `${line.slice(0, LINE)}…` : line
    return el('span', { class: KINDS[line[0]] ?? 'same' }, `${visible(text)}\n`)
  })
  const name = named(file.name)
  const pre = el('pre', { class: 'diff', tabindex: '0', role: 'region', 'aria-label': `Changes of ${name}`, dir: 'ltr' }, ...all)
  const rest = file.lines.length - LINES
  return rest > 0 ? [pre, el('p', { class: 'hint' }, `${count(rest, 'line')} more.`)] : [pre]
}

// An element for each file. The lines of a file are made when it is opened.
export function draw(text) {
  const files = parse(text)
  let left = OPEN
  const drawn = files.slice(0, FILES).map(file => {
    left -= file.lines.length
    const box = el('details', { class: 'change' },
      el('summary', {},
        el('bdi', { class: 'name' }, named(file.name)),
        file.words ? el('span', { class: 'meta' }, named(file.words)) : null,
        el('span', { class: 'stat' }, ...stat(file.added, file.removed))))
    let isMade = false
    const make = () => {
      if (isMade || !box.open) return
      isMade = true
      box.append(...(file.lines.length > 0 ? lines(file) : [el('p', { class: 'hint' }, 'No lines to show.')]))
    }
    box.addEventListener('toggle', make)
    box.open = left >= 0
    make()
    return box
  })
  if (files.length > FILES) drawn.push(el('p', { class: 'hint' }, `${count(files.length - FILES, 'file')} more.`))
  return drawn
}

// `+3 −1`, in colour, with words for assistive technology.
export const stat = (added, removed) => [
  el('span', { class: 'plus' }, `+${added}`, el('span', { class: 'unseen' }, ' lines added,')), ' ',
  el('span', { class: 'minus' }, `−${removed}`, el('span', { class: 'unseen' }, ' removed')),
]

// The link to the whole, and what is missing of it here.
export function note(link, isWhole) {
  const href = ownLink(link)
  const words = isWhole ? '' : `The diff is larger than ${size(LOADED)}: this is its beginning. `
  return [words, el('a', { href, download: '' }, isWhole ? 'Download the diff' : 'Download the whole')]
}
