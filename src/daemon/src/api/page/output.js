// The output of a run, live and complete; how the run ended, how long it took, and the files that it made. Output must only
// be shown as text, and never more of it than a bound.
import { $, el, say } from './dom.js'
import { exceptionOf } from './exception.js'
import { ownLink } from './http.js'
import { figure, row } from './made.js'
import { status } from './runs.js'
import { count, named, shown, size, sized } from './text.js'
import { showTiming } from './timing.js'

// The most characters of one stream that the page shows.
const SHOWN = 256 * 1024
// The most pictures of a run that are shown alone.
const FIGURES = 6

const STREAMS = ['stdout', 'stderr']
const FOLLOW = 24

let current = null
let drawing = false

export function initOutput() {
  for (const stream of STREAMS) {
    const copy = $(`${stream}-copy`)
    copy.hidden = !navigator.clipboard
    copy.addEventListener('click', async () => {
      const text = current?.document?.[stream] ?? current?.live[stream] ?? ''
      const done = await navigator.clipboard.writeText(text).then(() => true, () => false)
      say(copy, done ? 'Copied' : 'Not copied')
    })
  }
}

// Shows a run in its current state.
export function show(run) {
  current = run
  for (const stream of STREAMS) $(stream).textContent = ''
  draw()
}

// The run has changed. Fast changes are drawn once per frame.
export function changed(run) {
  if (run !== current || drawing) return
  drawing = true
  requestAnimationFrame(() => {
    drawing = false
    if (current) draw()
  })
}

// Scrolls to the output if too little of it is visible.
export function reveal() {
  const { top, bottom } = $('output').getBoundingClientRect()
  if (top < innerHeight - 220 && bottom > 120) return
  const isStill = matchMedia('(prefers-reduced-motion: reduce)').matches
  $('output').scrollIntoView({ block: 'start', behavior: isStill ? 'auto' : 'smooth' })
}

export const isShown = run => run === current

export function clear() {
  current = null
  for (const id of ['exception', 'problem', 'stdout-pane', 'stderr-pane', 'output-note', 'timing', 'made']) $(id).hidden = true
  $('figures').replaceChildren()
  for (const stream of STREAMS) $(stream).textContent = ''
  $('badges').replaceChildren()
  delete $('made').dataset.run
  delete $('badges').dataset.words
  $('output-empty').hidden = false
}

function draw() {
  const run = current
  const { document: answer } = run
  const isLive = !answer
  $('output-empty').hidden = run.state !== 'running' || run.live.stdout !== '' || run.live.stderr !== ''
  say($('output-empty'), run.state === 'running' ? 'No output yet.' : 'The output of the program appears here while it runs.')
  for (const stream of STREAMS) pane(stream, isLive ? run.live[stream] : written(answer, stream), isLive)
  badges(run)
  exception(answer)
  problem(run)
  note(run)
  showTiming(run.timing, run.wall, answer?.duration_ms)
  made(run)
}

// The output of the program. The daemon's message, which it appends to stderr, is shown elsewhere.
function written(answer, stream) {
  const text = answer[stream] ?? ''
  const { message } = answer
  return stream === 'stderr' && message && text.endsWith(message) ? text.slice(0, -message.length) : text
}

function pane(stream, text, isLive) {
  const pre = $(stream)
  const follows = pre.scrollTop + pre.clientHeight >= pre.scrollHeight - FOLLOW
  $(`${stream}-pane`).hidden = text === ''
  const cut = text.length > SHOWN ? text.slice(0, SHOWN) : text
  const next = shown(cut)
  const node = pre.firstChild
  if (node && node.data !== next && next.startsWith(node.data)) node.appendData(next.slice(node.data.length))
  else say(pre, next)
  if (isLive && follows) pre.scrollTop = pre.scrollHeight
  say($(`${stream}-copy`), 'Copy')
}

function badges(run) {
  const { document: answer } = run
  const all = []
  const badge = (text, kind) => all.push(el('span', { class: `badge ${kind}` }, text))
  if (run.state === 'running') badge('running', 'live')
  else if (run.state === 'cancelled') badge('cancelled', 'warn')
  else if (!answer?.run_id) badge(answer || run.problemStatus ? 'not run' : 'no answer', 'bad')
  if (answer?.run_id) badge(`exit code ${answer.exit_code}`, answer.exit_code === 0 ? 'good' : 'bad')
  if (answer?.timed_out) badge('timed out', 'bad')
  else if (answer?.limit) badge(`limit: ${named(answer.limit)}`, 'bad')
  if (status(run) === 'lost') badge('lost', 'bad')
  badge(named(run.language), 'plain')
  const words = all.map(one => one.textContent).join('|')
  if ($('badges').dataset.words === words) return
  $('badges').dataset.words = words
  $('badges').replaceChildren(...all)
}

// What ended the program, by its own words.
function exception(answer) {
  const line = answer?.exit_code > 0 && !answer.limit ? exceptionOf(written(answer, 'stderr')) : ''
  $('exception').hidden = line === ''
  say($('exception'), named(line))
}

// Problems that the program did not cause.
function problem(run) {
  const { document: answer } = run
  const lines = []
  if (run.problem) lines.push(run.problem)
  if (answer?.message) lines.push(answer.message)
  for (const { host, port, allowed, reason } of answer?.network ?? []) {
    if (!allowed) lines.push(`${named(host)}${port ? `:${port}` : ''} was blocked: ${named(reason ?? '')}`)
  }
  for (const { path, reason } of answer?.not_saved ?? []) lines.push(`not saved: ${named(path)}: ${reason}`)
  for (const earlier of answer?.earlier_runs ?? []) {
    lines.push(`an earlier run, ${named(earlier.run_id)}, ended meanwhile: ${named(earlier.status ?? '')}`)
  }
  $('problem').hidden = lines.length === 0
  const texts = lines.map(line => el('p', {}, sized(shown(line))))
  if ($('problem').textContent !== texts.map(text => text.textContent).join('')) $('problem').replaceChildren(...texts)
}

function note(run) {
  const { document: answer } = run
  const parts = []
  if (!answer) {
    if (STREAMS.some(stream => run.missed[stream])) parts.push('This is the end of the output; its beginning is not shown.')
    if (run.state === 'cancelled') parts.push('This is the output up to the cancellation.')
  } else if (answer.stdout_truncated || answer.stderr_truncated || STREAMS.some(one => (answer[one] ?? '').length > SHOWN)) {
    parts.push('The output is longer than this. ')
    const href = answer.log_url && ownLink(answer.log_url)
    if (href) parts.push(el('a', { href, target: '_blank', rel: 'noopener noreferrer' }, 'Open the whole log'))
  }
  if (answer?.stdout_lossy || answer?.stderr_lossy) parts.push(' Bytes that are not UTF-8 are shown as \ufffd.')
  const reached = (answer?.network ?? []).filter(({ allowed, bytes_in, bytes_out }) => allowed && bytes_in + bytes_out > 0)
  if (reached.length > 0) {
    const each = reached.map(({ host, port, bytes_in, bytes_out }) =>
      `${named(host)}:${port} (${size(bytes_in)} in, ${size(bytes_out)} out)`)
    parts.push(`${parts.length > 0 ? ' ' : ''}Reached ${each.join(', ')}.`)
  }
  $('output-note').hidden = parts.length === 0
  $('output-note').replaceChildren(...parts)
}

function made(run) {
  const artifacts = run.document?.artifacts ?? []
  if ($('made').dataset.run === `${run.key} ${artifacts.length}`) return
  $('made').dataset.run = `${run.key} ${artifacts.length}`
  const figures = []
  const rest = []
  for (const artifact of artifacts) {
    const picture = figures.length < FIGURES && figure(artifact, run.document.run_id)
    if (picture) figures.push(picture)
    else rest.push(row(artifact))
  }
  if (run.document?.artifacts_truncated) rest.push(el('li', {}, `and more than these ${count(artifacts.length, 'file')}`))
  $('made').hidden = rest.length === 0
  $('figures').replaceChildren(...figures)
  $('made-list').replaceChildren(...rest)
}
