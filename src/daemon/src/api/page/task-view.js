// A task as people see it: what its agent does, and what came of it. Whatever comes from an agent is shown as text only, and
// never more of it than a bound.
import { $, el, say } from './dom.js'
import { draw as drawDiff, load as loadDiff, note as diffNote, stat } from './diff.js'
import { ownLink } from './http.js'
import { figure, row } from './made.js'
import { count, named, shown, size, sized, took } from './text.js'

// Pictures that are shown alone, and rows of files, denials and destinations.
const FIGURES = 6
const ROWS = 200
const CLOCK = 500

const STATES = {
  starting: ['starting', 'live'], running: ['running', 'live'], completed: ['completed', 'good'], failed: ['failed', 'bad'],
  timeout: ['out of time', 'bad'], cancelled: ['cancelled', 'warn'], refused: ['not started', 'bad'],
}

let current = null
let drawn = 0
let waits = false
let loading = new AbortController()

setInterval(() => current?.state === 'running' && figures(current), CLOCK)

const statusOf = task => (task.state === 'ended' ? task.document?.status ?? 'failed' : task.state)

// How a task ended, in one sentence.
export function ending(task) {
  const words = { completed: 'Done', failed: 'Failed', timeout: 'Out of time', cancelled: 'Cancelled' }[statusOf(task)] ?? 'Ended'
  const seconds = Number(task.document?.duration_seconds)
  return `${words}${Number.isFinite(seconds) ? `, ${took(seconds * 1000)}` : ''}.`
}

// Shows another task, or that there is none.
export function show(task) {
  if (task !== current) {
    loading.abort()
    loading = new AbortController()
    drawn = 0
    $('task-log').replaceChildren()
    for (const id of ['task-pictures', 'task-made-list', 'task-denied-list', 'task-diff-files']) $(id).replaceChildren()
    for (const id of ['task-made', 'task-denied', 'task-diff', 'task-steps', 'task-answer']) $(id).hidden = true
    delete $('task-made').dataset.of
    delete $('task-diff').dataset.of
  }
  current = task
  draw()
}

// The task has changed; drawn once a frame.
export function changed(task) {
  if (task !== current || waits) return
  waits = true
  requestAnimationFrame(() => {
    waits = false
    if (current) draw()
  })
}

function draw() {
  const task = current
  $('task-empty').hidden = task !== null && (task.entries.length > 0 || task.state === 'ended' || task.state === 'refused')
  say($('task-empty'), task ? 'The agent starts.' : 'What the agent says and does appears here.')
  const [words, kind] = task ? STATES[statusOf(task)] ?? STATES.failed : []
  const badges = task ? [[words, kind], [named(task.agent ?? task.document?.agent ?? ''), 'plain']] : []
  if (task?.document?.yolo_level) badges.push([`level ${Number(task.document.yolo_level)}`, 'plain'])
  const text = badges.map(([word]) => word).join('|')
  if ($('task-badges').dataset.words !== text) {
    $('task-badges').dataset.words = text
    $('task-badges').replaceChildren(...badges.map(([word, kind]) => el('span', { class: `badge ${kind}` }, word)))
  }
  figures(task)
  const isLive = task?.state === 'running'
  const doing = isLive && (task.document?.doing ?? lastTool(task))
  $('task-doing').hidden = !doing
  if (doing) say($('task-doing'), `Now: ${named(doing)}`)
  log(task)
  problem(task)
  answer(task)
  denied(task)
  made(task)
  diff(task)
  note(task)
}

const lastTool = task => task.entries.findLast(({ type }) => type === 'tool')?.what ?? ''

const elapsed = seconds => (seconds < 60 ? `${seconds} s` : `${Math.floor(seconds / 60)} min ${seconds % 60} s`)

// Time, cost and turns.
function figures(task) {
  const document = task?.document
  const parts = []
  if (task?.state === 'running') parts.push(elapsed(Math.floor((performance.now() - task.began) / 1000)))
  else if (Number.isFinite(document?.duration_seconds)) parts.push(took(document.duration_seconds * 1000))
  const cost = Number(document?.cost_usd)
  if (document?.cost_usd !== undefined && Number.isFinite(cost)) parts.push(`$${cost.toFixed(cost < 0.1 ? 4 : 2)}`)
  if (Number.isFinite(document?.turns)) parts.push(count(document.turns, 'turn'))
  const tokens = document?.tokens
  if (tokens && Number.isFinite(tokens.input + tokens.output)) {
    const all = [tokens.input, tokens.cache_read, tokens.cache_write].reduce((sum, one) => sum + (Number(one) || 0), 0)
    parts.push(`${all.toLocaleString('en')} tokens in, ${tokens.output.toLocaleString('en')} out`)
  }
  say($('task-figures'), parts.join(' · '))
}

// What the agent said and did, a line for each event. Only new ones are added.
function log(task) {
  const box = $('task-log')
  const total = task ? task.dropped + task.entries.length : 0
  $('task-steps').hidden = total === 0
  if (total === 0) return
  const steps = task.entries.filter(({ type }) => type === 'tool').length
  say($('task-steps-count'), `What it said and did${task.dropped ? ', the end of it' : ''}: ${count(steps, 'step')}`)
  if (box.dataset.state !== task.state) {
    box.dataset.state = task.state
    $('task-steps').open = task.state === 'running'
  }
  const follows = box.scrollTop + box.clientHeight >= box.scrollHeight - 24
  const from = Math.max(0, drawn - task.dropped)
  for (const event of task.entries.slice(from)) box.append(entry(event))
  while (box.childElementCount > task.entries.length) box.firstElementChild.remove()
  drawn = total
  if (follows) box.scrollTop = box.scrollHeight
}

function entry({ type, text, what, tool, data, message }) {
  if (type === 'message') return el('p', { class: 'said-by-agent', dir: 'auto' }, shown(text ?? ''))
  if (type === 'tool') return el('p', { class: 'tool' }, named(what ?? tool ?? ''))
  if (type === 'denied') return el('p', { class: 'tool no' }, el('strong', {}, 'denied '), named(what ?? tool ?? ''))
  return el('p', { class: 'stray', dir: 'auto' }, shown(data ?? message ?? type ?? ''))
}

function problem(task) {
  const lines = []
  if (task?.problem) lines.push(task.problem)
  if (task?.state === 'ended' && task.document?.error) lines.push(task.document.error)
  for (const { host, port, allowed, reason } of (task?.document?.network ?? []).slice(0, ROWS)) {
    if (!allowed) lines.push(`${named(host)}${port ? `:${port}` : ''} was blocked: ${named(reason ?? '')}`)
  }
  $('task-problem').hidden = lines.length === 0
  const texts = lines.map(line => sized(shown(line)))
  if ($('task-problem').textContent !== texts.join('')) $('task-problem').replaceChildren(...texts.map(text => el('p', {}, text)))
}

function answer(task) {
  const text = task?.state === 'ended' ? task.document?.output ?? '' : ''
  // A task that failed has its last words as its error.
  $('task-answer').hidden = text === '' || text === task.document?.error
  say($('task-words-back'), shown(text))
}

function denied(task) {
  const all = task?.state === 'ended' ? task.document?.denied ?? [] : []
  $('task-denied').hidden = all.length === 0
  const lines = all.slice(0, ROWS).map(({ tool, what }) => `${named(tool ?? '')}: ${named(what ?? '')}`)
  if (lines.join('\n') !== [...$('task-denied-list').children].map(one => one.textContent).join('\n')) {
    $('task-denied-list').replaceChildren(...lines.map(line => el('li', {}, line)))
  }
}

function made(task) {
  const artifacts = task?.state === 'ended' ? task.document?.artifacts ?? [] : []
  const of = `${task?.id} ${artifacts.length}`
  if ($('task-made').dataset.of === of) return
  $('task-made').dataset.of = of
  const pictures = []
  const rest = []
  for (const artifact of artifacts.slice(0, ROWS)) {
    const picture = pictures.length < FIGURES && figure(artifact, task.id)
    if (picture) pictures.push(picture)
    else rest.push(row(artifact))
  }
  if (artifacts.length > ROWS) rest.push(el('li', {}, `and ${count(artifacts.length - ROWS, 'file')} more, in the list of files`))
  $('task-made').hidden = rest.length === 0
  $('task-pictures').replaceChildren(...pictures)
  $('task-made-list').replaceChildren(...rest)
}

async function diff(task) {
  const link = task?.state === 'ended' ? task.document?.diff_url : undefined
  if (!link || $('task-diff').dataset.of === task.id) return
  $('task-diff').dataset.of = task.id
  $('task-diff').hidden = false
  const { files_changed: changed, insertions, deletions } = task.document.diff_stat ?? {}
  $('task-diff-stat').replaceChildren(...(Number.isFinite(changed)
    ? [`${count(changed, 'file')} `, ...stat(Number(insertions) || 0, Number(deletions) || 0)] : []))
  const note = $('task-diff-note')
  note.hidden = false
  note.replaceChildren('Loading the diff…')
  const { signal } = loading
  try {
    const { text, isWhole } = await loadDiff(link, signal)
    if (signal.aborted) return
    $('task-diff-files').replaceChildren(...drawDiff(text))
    const leftOut = task.document.diff_note ? [`${sized(shown(task.document.diff_note))}. `] : []
    note.replaceChildren(...leftOut, ...diffNote(link, isWhole))
  } catch (error) {
    if (!signal.aborted) note.replaceChildren(`The diff cannot be shown: ${error.message}`)
  }
}

function note(task) {
  const parts = []
  const document = task?.state === 'ended' ? task.document : null
  const reached = (document?.network ?? []).filter(({ allowed, bytes_in, bytes_out }) => allowed && bytes_in + bytes_out > 0)
  if (reached.length > 0) {
    const each = reached.slice(0, ROWS).map(({ host, port, bytes_in, bytes_out }) =>
      `${named(host)}:${port} (${size(bytes_in)} in, ${size(bytes_out)} out)`)
    parts.push(`Reached ${each.join(', ')}. `)
  }
  const href = document?.log_url && ownLink(document.log_url)
  if (href) parts.push(el('a', { href, target: '_blank', rel: 'noopener noreferrer' }, 'The agent’s conversation, as JSON'))
  $('task-note').hidden = parts.length === 0
  const text = parts.map(part => part.textContent ?? part).join('')
  if ($('task-note').textContent !== text) $('task-note').replaceChildren(...parts)
}
