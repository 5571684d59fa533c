// The runs of this conversation, joined with those that this page remembers, and the last runs under this token. It must
// never claim to have the code or the output of another client's run.
import { $, el, reconcile, say } from './dom.js'
import { conversation } from './conversation.js'
import { json } from './http.js'
import { isShown } from './output.js'
import * as runs from './runs.js'
import { ago, named, took } from './text.js'

const MARKS = {
  running: ['●', 'running'],
  completed: ['✓', 'completed'],
  failed: ['✕', 'failed'],
  timeout: ['◷', 'timed out'],
  cancelled: ['■', 'cancelled'],
  lost: ['?', 'lost'],
}

// The daemon's list for this conversation.
let told = []
let seen = null
let use = { show: () => {}, load: () => {}, changed: () => {} }

// `show` shows a run of this page again, `load` puts its code into the editor, and `changed` is called when something ran
// here.
export function initHistory(uses) {
  use = uses
}

// The conversation has changed.
export function reset() {
  told = []
  seen = null
  draw()
}

// Ids that the daemon has reported.
export const ids = () => new Set(told.map(({ id }) => id))

// The daemon's last answer.
export async function update(status) {
  const recent = status.recent ?? []
  reconcile($('recent'), recent.slice(0, 12), ({ id }) => id, another)
  $('recent-empty').hidden = recent.length > 0
  const here = recent.filter(({ session_id: id }) => id === conversation.id)
  const now = here.map(({ id, status: how }) => `${id} ${how}`).join('\n')
  if (now !== seen && (here.length || conversation.isKnown)) {
    seen = now
    const asked = conversation.id
    const answer = await json(`status?session=${encodeURIComponent(asked)}`).catch(() => null)
    if (answer && asked === conversation.id) {
      told = answer.recent ?? []
      if (told.length) {
        conversation.used()
        use.changed()
      }
    }
  }
  draw()
}

// A run of this page finds its entry by its id. A cancelled run never received its id, so it takes the first new entry.
function match() {
  const own = runs.of(conversation.id)
  const taken = new Set(own.map(run => run.document?.run_id ?? run.id).filter(Boolean))
  for (const run of own.toReversed()) {
    run.id = run.document?.run_id ?? run.id
    if (run.id || run.state === 'failed') continue
    const entry = told.findLast(({ id, kind }) => kind === 'run' && !taken.has(id) && !run.before?.has(id))
    if (!entry) continue
    run.id = entry.id
    taken.add(entry.id)
  }
  return own
}

export function draw() {
  const own = match()
  const byId = new Map(own.filter(({ id }) => id).map(run => [run.id, run]))
  const rows = told.map(entry => ({ key: byId.get(entry.id)?.key ?? entry.id, entry, run: byId.get(entry.id) }))
  const listed = new Set(rows.map(({ run }) => run).filter(Boolean))
  for (const run of own) if (!listed.has(run)) rows.push({ key: run.key, entry: null, run })
  const began = ({ run, entry }) => (run ? run.began : Date.parse(entry.began))
  rows.sort((one, other) => began(other) - began(one))
  reconcile($('history'), rows, ({ key }) => key, ({ run }) => (run ? mine(run) : another()))
  $('history-empty').hidden = rows.length > 0
}

const firstLine = code => code.split('\n').find(line => line.trim())?.trim().slice(0, 80) ?? ''

// The exit code, if the program ended by itself.
const exited = (status, code) => (['completed', 'failed'].includes(status) && Number.isInteger(code) ? `exit ${code}` : null)

function parts() {
  const mark = el('span', { class: 'mark', 'aria-hidden': 'true' })
  const how = el('span', { class: 'unseen' })
  const meta = el('span', { class: 'meta' })
  const set = (status, words) => {
    const [sign, name] = MARKS[status] ?? MARKS.lost
    mark.className = `mark ${status}`
    say(mark, sign)
    say(how, `${name}: `)
    say(meta, words.filter(Boolean).join(' · '))
  }
  return { mark, how, meta, set }
}

// A run of this page.
function mine(run) {
  const { mark, how, meta, set } = parts()
  const show = el('button', { type: 'button', class: 'link', title: 'Show its output again', onclick: () => use.show(run) },
    how, el('bdi', { class: 'mono' }, named(firstLine(run.code))))
  const load = el('button', { type: 'button', class: 'small quiet', title: 'Load this code into the editor',
    onclick: () => use.load(run) }, 'Load code')
  return {
    element: el('li', {}, mark, show, load, meta),
    update({ entry }) {
      const code = run.document?.exit_code ?? entry?.exit_code
      const ms = run.document?.duration_ms ?? entry?.duration_ms
      const status = run.state === 'running' ? 'running' : entry && run.state === 'cancelled' ? entry.status : runs.status(run)
      set(status, [
        named(run.language), exited(status, code), Number.isFinite(ms) ? took(ms) : null, ago(run.began),
      ])
      if (isShown(run)) show.setAttribute('aria-current', 'true')
      else show.removeAttribute('aria-current')
    },
  }
}

// A run that the daemon reported.
function another() {
  const { mark, how, meta, set } = parts()
  const title = el('span', { class: 'what' })
  const where = el('button', { type: 'button', class: 'link' })
  const element = el('li', {}, mark, el('span', { class: 'title' }, how, title, where), meta)
  return {
    element,
    update(item) {
      const entry = item.entry ?? item
      const isElsewhere = item === entry
      const words = named(entry.title || entry.id)
      const id = named(entry.session_id ?? '')
      say(title, isElsewhere ? '' : words)
      where.hidden = !isElsewhere
      say(where, isElsewhere ? words : '')
      where.title = `Open the conversation ${id}`
      where.onclick = () => conversation.open(entry.session_id)
      set(entry.status, [
        entry.kind === 'command' ? 'command' : named(entry.language ?? ''),
        isElsewhere ? id : null,
        entry.kind === 'task' ? null : exited(entry.status, entry.exit_code),
        Number.isFinite(entry.duration_ms) ? took(entry.duration_ms) : null, ago(Date.parse(entry.began)),
      ])
    },
  }
}
