// Tasks for coding agents: the form, the task that is followed, and its end. A task goes on without the page; a page that is
// loaded again finds it by its conversation. The page must never start a task twice, nor one that nobody asked for.
import { $, el, say } from './dom.js'
import { conversation } from './conversation.js'
import { call } from './mcp.js'
import * as view from './task-view.js'
import { named, sized } from './text.js'
import { settled } from './upload.js'

const LEVELS = [
  ['Files', 'Reads and writes the files of this conversation. It runs nothing.'],
  ['Files and web', 'Also reads public web pages.'],
  ['Commands', 'Also runs commands and installs packages, except docker, ssh, sudo and a few more.'],
  ['Everything', 'Runs every command. Its container stays the same.'],
]
const LEVEL = 3
const RAIL = 'A level is a guard rail. The boundary is the container, which is the same at every level, and its network.'
const NO_MODEL = 'its operator sets ANTHROPIC_API_KEY for the daemon, or configures [models.NAME].'
const NO_WEB = 'This server gives no level a network: an agent reaches its model only.'

// Between two looks at what a task has cost, and before another try when the daemon does not answer.
const LOOK = 2000
const AGAIN = [1000, 2000, 5000, 10_000]
// Events that are kept: the last ones.
const KEPT = 500

// The task on the page, of the conversation that is open; null if it had none.
let task = null
// Ends the requests that follow it.
let following = new AbortController()
// Whether the page has been loaded and has not learned yet what its conversation has.
let isNew = true
let told = { changed: () => {}, found: () => {} }

const wait = (ms, signal) => new Promise(done => {
  const timer = setTimeout(done, ms)
  signal.addEventListener('abort', () => (clearTimeout(timer), done()))
})

const tell = text => say($('task-status'), text)

// `changed` is called when a task began or ended, `found` when a running one was found after the page was loaded.
export function initTask(listeners) {
  told = listeners
  for (const [at, [name, words]] of LEVELS.entries()) {
    $('levels').append(el('label', {},
      el('input', { type: 'radio', name: 'level', value: String(at + 1), checked: at + 1 === LEVEL }),
      ' ', el('span', {}, el('strong', {}, `${at + 1} ${name}`), ` ${words}`)))
  }
  $('task-form').addEventListener('submit', event => {
    event.preventDefault()
    start()
  })
  $('task-words').addEventListener('keydown', event => {
    if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) {
      event.preventDefault()
      event.stopPropagation()
      $('task-form').requestSubmit()
    }
  })
  $('task-cancel').addEventListener('click', cancel)
  $('task-files').addEventListener('click', () => $('file-input').click())
}

// The agents that the daemon has, and whether its network is off.
export function offer(agents, network) {
  const usable = agents.filter(({ model }) => model)
  const names = usable.map(({ agent }) => agent).join(' ')
  if ($('task-agent').dataset.names !== names) {
    $('task-agent').dataset.names = names
    $('task-agent').replaceChildren(...usable.map(({ agent }) => el('option', { value: agent }, named(agent))))
  }
  $('task-form').hidden = usable.length === 0
  $('task-none').hidden = agents.length === 0 || usable.length > 0
  const agent = named(agents[0]?.agent ?? '')
  say($('task-none'), `The agent ${agent} has no model here: ${NO_MODEL}`)
  say($('levels-hint'), network === 'none' ? `${RAIL} ${NO_WEB}` : RAIL)
}

// The conversation has changed.
export function reset() {
  following.abort()
  following = new AbortController()
  task = null
  tell('')
  show()
}

// Looks for the last task of the conversation, and follows it if it runs.
export async function find() {
  isNew &&= conversation.isKnown
  if (!conversation.isKnown || task) return
  const { signal } = following
  const id = conversation.id
  const answer = await call('get_sandbox_status', { session_id: id }, { signal }).catch(() => null)
  const document = answer?.document
  if (signal.aborted || task || id !== conversation.id || !document) return
  const isFirst = isNew
  isNew = false
  if (!document.execution_id) return
  task = begun(document.execution_id, document.agent)
  task.document = document
  show()
  if (isFirst && document.status === 'running') told.found()
  follow(task, signal)
}

// Another client's task in this conversation is followed as well; `recent` are the daemon's last executions.
export function heard(recent) {
  if (task?.state === 'running' || task?.state === 'starting') return
  const isNew = ({ kind, id, session_id: session, status: how }) =>
    kind === 'task' && how === 'running' && session === conversation.id && id !== task?.id
  if (!recent.some(isNew)) return
  task = null
  conversation.used()
  find()
}

const begun = (id, agent) => ({
  id, agent, conversation: conversation.id, state: 'running', entries: [], dropped: 0, since: 0, document: null, problem: '',
  began: performance.now(),
})

function show() {
  const isRunning = task?.state === 'running' || task?.state === 'starting'
  $('task-start').setAttribute('aria-disabled', String(isRunning))
  $('task-cancel').setAttribute('aria-disabled', String(task?.state !== 'running'))
  $('task-resume').hidden = !task || isRunning || task.state === 'refused'
  say($('task-start'), task && !isRunning ? 'Start the next task' : 'Start the task')
  view.show(task)
}

const number = id => ($(id).value.trim() === '' ? undefined : Number($(id).value))

async function start() {
  if (task?.state === 'running' || task?.state === 'starting') return
  const words = $('task-words').value
  if (!words.trim()) {
    tell('Say first what is to be done.')
    $('task-words').focus()
    return
  }
  const minutes = number('task-timeout')
  const asked = {
    task_description: words, session_id: conversation.id, wait_for_completion: false,
    agent: $('task-agent').value,
    yolo_level: Number($('task-form').elements.level.value),
    resume: $('task-form').elements.resume.value === 'on',
    model: $('task-model').value.trim() || undefined,
    timeout: minutes === undefined ? undefined : Math.round(minutes * 60),
    max_turns: number('task-turns'), max_budget_usd: number('task-budget'),
  }
  const { signal } = following
  task = begun('', asked.agent)
  const own = task
  own.state = 'starting'
  tell('Starting…')
  show()
  await Promise.race([settled(), new Promise(done => signal.addEventListener('abort', done))])
  if (signal.aborted) return
  try {
    // Not with `signal`: a task that the daemon has taken goes on, whichever conversation is open by then.
    const { document } = await call('execute_task', asked)
    if (own.conversation === conversation.id) conversation.used()
    if (task !== own) return
    if (document.error === 'session_busy' && document.execution_id) {
      task = null
      tell(sized(document.message ?? 'A task is running in this conversation.'))
      return find()
    }
    if (!document.execution_id || typeof document.status !== 'string') {
      Object.assign(own, { state: 'refused', problem: document.message ?? document.error ?? 'the daemon did not say why' })
      tell(`Not started: ${sized(own.problem)}`)
      return show()
    }
    Object.assign(own, { id: document.execution_id, state: 'running', document })
  } catch (error) {
    if (task !== own) return
    Object.assign(own, { state: 'refused', problem: error.message })
    tell(`Not started: ${sized(error.message)}.`)
    return show()
  }
  tell('')
  show()
  told.changed()
  follow(own, signal)
}

async function cancel() {
  if (task?.state !== 'running' || !task.id) return
  const own = task
  tell('Cancelling…')
  try {
    await call('cancel_execution', { execution_id: own.id })
  } catch (error) {
    if (task === own) tell(`Not cancelled: ${sized(error.message)}.`)
  }
}

// Reads a task to its end: its events as they come, and now and then what it costs.
async function follow(own, signal) {
  look(own, signal)
  let failures = 0
  let hasMore = true
  for (;;) {
    if (signal.aborted) return
    let page
    try {
      page = (await call('get_execution_output', { execution_id: own.id, since: own.since, wait: !hasMore }, { signal })).document
      failures = 0
    } catch (error) {
      if (signal.aborted) return
      tell(`No answer: ${sized(error.message)}. The task goes on without this page.`)
      await wait(AGAIN[Math.min(failures++, AGAIN.length - 1)], signal)
      continue
    }
    if (page.error === 'execution_not_found' || !Array.isArray(page.output)) {
      Object.assign(own, { state: 'ended', problem: page.message ?? 'the daemon no longer has this task' })
      break
    }
    const next = Number(page.next_since)
    hasMore = page.more === true && next > own.since
    if (next > own.since) own.since = next
    keep(own, page.output)
    if (task === own) view.changed(own)
    if (page.status !== 'running' && !hasMore) break
    hasMore ||= page.status !== 'running'
  }
  own.state = 'ended'
  await lookOnce(own, signal)
  if (signal.aborted) return
  tell(view.ending(own))
  show()
  told.changed()
}

function keep(own, events) {
  for (const event of events) {
    const kind = event.type
    if (kind === 'result' || kind === 'ready' || kind === 'exit') continue
    own.entries.push(event)
  }
  const over = own.entries.length - KEPT
  if (over > 0) {
    own.entries.splice(0, over)
    own.dropped += over
  }
}

async function look(own, signal) {
  while (!signal.aborted && own.state === 'running') {
    if (!document.hidden) await lookOnce(own, signal)
    await wait(LOOK, signal)
  }
}

// How the task stands; the answer is about the last task of the conversation, which may be another one by now.
async function lookOnce(own, signal) {
  const answer = await call('get_sandbox_status', { session_id: own.conversation }, { signal }).catch(() => null)
  if (signal.aborted || answer?.document.execution_id !== own.id) return
  own.document = answer.document
  own.began = performance.now() - 1000 * (Number(answer.document.duration_seconds) || 0)
  if (task === own) view.changed(own)
}
