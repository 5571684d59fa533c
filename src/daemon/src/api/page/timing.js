// How long a run took, divided into the program, paddock, and the network to this page. It must never show a part that was
// not measured.
import { $, el } from './dom.js'
import { took } from './text.js'

const PARTS = [
  ['program', 'program'],
  ['queue', 'queue'],
  ['in', 'files in'],
  ['out', 'files out'],
  ['rest', 'other'],
  ['network', 'network'],
]

// The parts of a run, in milliseconds. `timing` is the daemon's, `wall` was measured by this page; null if the daemon sent no
// timing.
export function parts(timing, wall) {
  const numbers = ['queued_ms', 'files_in_ms', 'program_ms', 'files_out_ms', 'total_ms'].map(key => timing?.[key])
  if (!numbers.every(Number.isFinite)) return null
  const [queue, filesIn, program, filesOut, total] = numbers
  const overhead = Math.max(0, total - program)
  return {
    program, queue, in: filesIn, out: filesOut, overhead,
    rest: Math.max(0, overhead - queue - filesIn - filesOut),
    network: Math.max(0, wall - total),
    all: Math.max(wall, total),
  }
}

// Shows the time of an ended run, or nothing.
export function showTiming(timing, wall, duration) {
  $('timing').hidden = wall === undefined
  if (wall === undefined) return
  const known = parts(timing, wall)
  $('timing-total').textContent = took(known ? known.all : wall)
  $('timing-legend').replaceChildren()
  $('timing-track').replaceChildren()
  if (!known) {
    $('timing-words').textContent = Number.isFinite(duration) ? `· ${took(duration)} of it in the container` : ''
    return
  }
  $('timing-words').textContent =
    `· program ${took(known.program)} · paddock ${took(known.overhead)} · network ${took(known.network)}`
  for (const [key, name] of PARTS) {
    const ms = known[key]
    if (key === 'rest' && ms < 0.05) continue
    const segment = el('span', { class: `segment t-${key}` })
    segment.style.flexGrow = String(ms)
    $('timing-track').append(segment)
    $('timing-legend').append(el('li', {}, el('span', { class: `swatch t-${key}`, 'aria-hidden': 'true' }), `${name} ${took(ms)}`))
  }
}
