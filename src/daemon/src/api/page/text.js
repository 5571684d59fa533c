// Text for display: names and output without harmful characters, sizes, times. Every function takes and returns text; it must
// never make markup, and its time must be linear in the length of the text.

// Characters that are invisible, or that change how the text around them reads: controls, marks of direction, line
// separators, spaces without width. Callers handle tab and newline.
const UNSEEN = /[\0-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff]/g

const picture = char => {
  const code = char.charCodeAt(0)
  if (code < 0x20) return String.fromCharCode(0x2400 + code)
  if (code === 0x7f) return '\u2421'
  return `‹U+${code.toString(16).toUpperCase().padStart(4, '0')}›`
}

// A name, on one line.
export function named(name) {
  return String(name).replace(UNSEEN, picture).replaceAll('\n', '\u240a').replaceAll('\t', '\u2409')
}

// Output as a terminal without colours shows it: of an overwritten line, the last version.
export function shown(output) {
  let text = String(output).replace(/\x1b\[[0-9;:]{0,64}m/g, '')
  if (text.includes('\r')) {
    text = text.replaceAll('\r\n', '\n').split('\n').map(line => {
      const end = line.endsWith('\r') ? line.length - 1 : line.length
      return line.slice(line.lastIndexOf('\r', end - 1) + 1, end)
    }).join('\n')
  }
  return text.replace(UNSEEN, picture)
}

// 1 and more units of 1024 bytes.
export function size(bytes) {
  if (!(bytes >= 1024)) return `${bytes} B`
  const units = ['KiB', 'MiB', 'GiB', 'TiB']
  let value = bytes / 1024
  let unit = 0
  for (; value >= 1023.95 && unit < units.length - 1; unit++) value /= 1024
  return `${value.toFixed(value < 10 ? 1 : 0)} ${units[unit]}`
}

// A sentence of the daemon with readable sizes; the daemon writes exact bytes.
export const sized = text => String(text).replace(/\b(\d{4,15}) bytes\b/g,
  (_, bytes) => `${Number(bytes).toLocaleString('en')} bytes (${size(Number(bytes))})`)

// A duration in a suitable unit.
export function took(ms) {
  if (ms < 999.5) return `${ms < 99.95 ? ms.toFixed(1) : ms.toFixed(0)} ms`
  if (ms < 59_950) return `${(ms / 1000).toFixed(ms < 9995 ? 2 : 1)} s`
  return `${Math.floor(ms / 60_000)} min ${Math.round(ms % 60_000 / 1000)} s`
}

// How long ago a time was; `now` is the time of the daemon's clock, if it is known.
export function ago(then, now = Date.now()) {
  const seconds = Math.max(0, (now - then) / 1000)
  if (!Number.isFinite(seconds)) return ''
  if (seconds < 5) return 'just now'
  if (seconds < 60) return `${Math.floor(seconds)} s ago`
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)} h ago`
  return `${Math.floor(seconds / 86_400)} d ago`
}

// `1 file`, `2 files`.
export const count = (number, one, many = `${one}s`) => `${number} ${number === 1 ? one : many}`
