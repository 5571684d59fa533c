// The beginning of a file, as a table or as text, or a PDF in the browser's own viewer, when its user asks for it. It must never
// load more than a bound, and never show content as anything but text, but for a PDF in a frame: the daemon sends every file
// with the policy `sandbox`, so nothing of it runs there.
import { el } from './dom.js'
import { ownLink } from './http.js'
import { count, named, shown } from './text.js'

// Bytes that are loaded; rows, columns and characters of a cell that are shown.
const LOADED = 64 * 1024
const ROWS = 50
const COLUMNS = 20
const CELL = 200
// The largest PDF, in bytes, that is shown.
const PDF = 32 << 20

const TABLES = new Map([['text/csv', ','], ['text/tab-separated-values', '\t']])
const TEXTS = new Set(['application/json', 'application/xml', 'application/x-ndjson', 'application/yaml'])

const isTable = artifact => TABLES.has(artifact.mime_type)
const isPdf = ({ mime_type: type, size_bytes: bytes }) => type === 'application/pdf' && bytes <= PDF
const isText = ({ mime_type: type }) => String(type).startsWith('text/') || TEXTS.has(type)

// A button that shows and hides the beginning of a file, and its place; null if there is no preview of such a file.
export function preview(artifact, name) {
  const href = ownLink(artifact.download_url)
  if (!href || ![isTable, isText, isPdf].some(is => is(artifact)) || !(artifact.size_bytes > 0)) return null
  const place = el('div', { class: 'preview', hidden: true })
  const button = el('button', {
    type: 'button', class: 'small', 'aria-expanded': 'false', 'aria-label': `Preview of ${name}`,
    onclick: async () => {
      const is = place.hidden
      place.hidden = !is
      button.setAttribute('aria-expanded', String(is))
      if (!is) return
      place.replaceChildren(el('p', { class: 'hint' }, 'Loading…'))
      place.replaceChildren(...await content(artifact, href, name))
    },
  }, 'Preview')
  return { button, place }
}

async function content(artifact, href, name) {
  if (isPdf(artifact)) return [el('iframe', { src: href, title: `Preview of ${name}`, referrerpolicy: 'no-referrer' })]
  let text
  try {
    const got = await fetch(href, {
      headers: { Range: `bytes=0-${LOADED - 1}` }, cache: 'no-store', credentials: 'omit', redirect: 'error',
      referrerPolicy: 'no-referrer',
    })
    if (!got.ok) throw new Error(`the daemon answered ${got.status}`)
    text = new TextDecoder().decode((await got.arrayBuffer()).slice(0, LOADED))
  } catch (error) {
    return [el('p', { class: 'problem' }, `It cannot be shown: ${error.message}`)]
  }
  const isCut = artifact.size_bytes > LOADED
  const note = words => el('p', { class: 'hint' }, words)
  if (!isTable(artifact)) {
    const pre = el('pre', { tabindex: '0', role: 'region', 'aria-label': `Beginning of ${name}`, dir: 'auto' }, shown(text))
    return isCut ? [pre, note('This is the beginning.')] : [pre]
  }
  const rows = table(text, TABLES.get(artifact.mime_type), isCut)
  const cut = rows.more || isCut ? `The first ${count(rows.body.length, 'row')}.` : count(rows.body.length, 'row')
  const columns = rows.columns > COLUMNS ? ` ${COLUMNS} of ${rows.columns} columns are shown.` : ''
  return [
    el('div', { class: 'table', tabindex: '0', role: 'region', 'aria-label': `Beginning of ${name}` },
      el('table', {},
        el('thead', {}, el('tr', {}, ...rows.head.map(cell => el('th', { scope: 'col' }, cell)))),
        el('tbody', {}, ...rows.body.map(row => el('tr', {}, ...row.map(cell => el('td', {}, cell))))))),
    note(`${cut}${columns}`),
  ]
}

// The head and the first rows of a table, every cell fit to be shown.
export function table(text, separator, isCut) {
  const all = records(text, separator, ROWS + 2)
  if (isCut && all.length <= ROWS + 1) all.pop() // the last one may be a part
  const more = all.length > ROWS + 1
  const columns = Math.max(1, ...all.slice(0, ROWS + 1).map(row => row.length))
  const fit = row => Array.from({ length: Math.min(columns, COLUMNS) }, (_, at) => {
    const cell = row[at] ?? ''
    return named(cell.length > CELL ? `${cell.slice(0, CELL)}…` : cell)
  })
  const [head = [], ...body] = all.slice(0, ROWS + 1)
  return { head: fit(head), body: body.map(fit), columns, more }
}

// At most `most` records (RFC 4180: quotes, and newlines within them).
function records(text, separator, most) {
  const all = []
  let row = []
  let cell = ''
  let isQuoted = false
  for (let at = 0; at < text.length && all.length < most; at++) {
    const char = text[at]
    if (isQuoted) {
      if (char !== '"') cell += char
      else if (text[at + 1] === '"') cell += text[++at]
      else isQuoted = false
    } else if (char === '"' && cell === '') isQuoted = true
    else if (char === separator) {
      row.push(cell)
      cell = ''
    } else if (char === '\n') {
      row.push(cell.replace(/\r$/, ''))
      if (row.length > 1 || row[0] !== '') all.push(row)
      row = []
      cell = ''
    } else cell += char
  }
  if (all.length < most && (cell !== '' || row.length > 0)) all.push([...row, cell])
  return all
}
