// The wiring of the page: what keys and buttons do, and which part of the page they affect. It must never start a run that
// the user did not ask for.
import { initAccess } from './access.js'
import { initConnect } from './connect.js'
import { conversation, initConversation } from './conversation.js'
import { $, el, say } from './dom.js'
import { createEditor } from './editor.js'
import { example, sampleOf } from './examples.js'
import * as files from './files.js'
import * as history from './history.js'
import { call } from './mcp.js'
import * as output from './output.js'
import { showEngine, showPool } from './pool.js'
import * as runs from './runs.js'
import * as status from './status.js'
import { initTabs } from './tabs.js'
import * as task from './task.js'
import { count, named, size, sized, took } from './text.js'
import { initUpload, settled } from './upload.js'

const CLOCK = 100
const RETRY = 3000

const editor = createEditor($('editor'), {
  label: 'Code. Tab indents; Escape, then Tab, leaves the editor. Control and Enter runs it.',
  onChange: () => {},
  onRun: run,
})
// The text in the editor, for each language.
const drafts = new Map()
let language = ''
let libraries = new Map()
// Ends the run in progress.
let under = null
// The conversations that have the file of an example, as far as this page knows.
const supplied = new Set()
// When to ask the daemon again after it did not answer.
let again = 0

// An example to show before the daemon has listed its languages.
const BEFORE = example('python')
editor.language = 'python'
editor.text = BEFORE

const tell = text => say($('status'), text)
// Messages of a run are only shown in its own conversation; in another one they would be misleading.
const tellOf = (one, text) => one.conversation === conversation.id && tell(text)

// Asks for the languages; returns whether the daemon answered.
async function connect() {
  status.stop()
  clearTimeout(again)
  let answer
  try {
    answer = await call('list_runners', {})
  } catch (error) {
    if (error.status === 401) {
      showEngine('warn', 'token needed')
      tell('This daemon needs a token first.')
    } else {
      showEngine('bad', 'no answer')
      tell(`No answer: ${error.message}.`)
      again = setTimeout(connect, RETRY)
    }
    return false
  }
  const found = answer.document.languages ?? []
  libraries = new Map(found.map(one => [one.language, one.libraries ?? []]))
  $('language').replaceChildren(...found.map(one => el('option', { value: one.language }, named(one.language))))
  choose(libraries.has(language) ? language : found[0]?.language ?? '')
  tell(found.length ? '' : 'No runner image was found: the daemon has no language to run.')
  status.start()
  files.refresh()
  task.find()
  return true
}

function choose(name) {
  if (language && language !== name) drafts.set(language, editor.text)
  if (language !== name) {
    const isUntouched = language !== '' || editor.text === BEFORE
    language = name
    editor.language = name
    if (isUntouched) editor.text = drafts.get(name) ?? example(name)
  }
  $('language').value = name
  $('example').disabled = !example(name)
  $('language-hint').hidden = name === '' || example(name) !== ''
  const installed = libraries.get(name) ?? []
  $('libraries').hidden = installed.length === 0
  say($('libraries-count'), `${count(installed.length, 'library', 'libraries')} installed`)
  say($('libraries-list'), installed.map(one => named(one.replace('=', ' '))).join(' · '))
}

function busy(is) {
  $('run').setAttribute('aria-disabled', String(is))
  $('cancel').setAttribute('aria-disabled', String(!is))
  document.title = is ? '● paddock' : 'paddock'
}

async function run() {
  if (under) return
  if (!language) {
    connect()
    return
  }
  const network = $('network').checked && !$('network-field').hidden
  const asked = {
    language, code: editor.text, conversation: conversation.id, network, timeout: Number($('timeout').value) || undefined,
    stdin: $('stdin').value || undefined,
  }
  if (!asked.code.trim()) {
    tell('There is no code to run.')
    editor.focus()
    return
  }
  under = new AbortController()
  const { signal } = under
  busy(true)
  tell('Running…')
  await Promise.race([settled(), new Promise(done => signal.addEventListener('abort', done))])
  const one = runs.begin(asked)
  one.before = history.ids()
  output.show(one)
  output.reveal()
  history.draw()
  status.soon()
  const begun = performance.now()
  const clock = setInterval(() => say($('clock'), took(performance.now() - begun)), CLOCK)
  try {
    signal.throwIfAborted()
    await supply(one, signal)
    const { document: answer, meta } = await call('run_code', {
      language: one.language, code: one.code, conversationId: one.conversation,
      ...(one.network && { network: true }), timeout_seconds: one.timeout, stdin: one.stdin,
    }, {
      signal,
      onOutput: (stream, text) => {
        runs.wrote(one, stream, text)
        output.changed(one)
      },
    })
    Object.assign(one, {
      state: answer.run_id ? 'ended' : 'failed', document: answer, timing: meta['paddock/timing'] ?? null,
      wall: answer.run_id ? performance.now() - begun : undefined,
    })
    if (answer.run_id && one.conversation === conversation.id) conversation.used()
    tellOf(one, ending(one))
  } catch (error) {
    if (signal.aborted) {
      one.state = 'cancelled'
      tellOf(one, 'Cancelled. The program has ended; the files that it made are kept.')
    } else {
      Object.assign(one, { state: 'failed', problem: error.message, problemStatus: error.status || error.code })
      tellOf(one, `${error.status || error.code ? 'Not run' : 'No answer'}: ${error.message}.`)
    }
  } finally {
    clearInterval(clock)
    say($('clock'), '')
    under = null
    busy(false)
    output.changed(one)
    history.draw()
    status.soon()
    if (one.conversation === conversation.id) files.refresh()
    else tell('')
  }
}

// An example reads a file: it is put into the conversation, unless there is one of that name.
async function supply(one, signal) {
  const sample = sampleOf(one.language, one.code)
  if (!sample || supplied.has(one.conversation)) return
  const { document: answer } = await call('upload_file', {
    conversationId: one.conversation, filename: sample.name, text: sample.text, overwrite: false,
  }, { signal })
  if (answer.success || answer.error === 'file_exists') supplied.add(one.conversation)
}

// What is set apart from the defaults can be seen while its fields are folded.
function options() {
  const parts = []
  if ($('timeout').value) parts.push(`timeout ${named($('timeout').value)} s`)
  if ($('stdin').value) parts.push(`input of ${size(new Blob([$('stdin').value]).size)}`)
  say($('options-summary'), parts.length > 0 ? parts.join(', ') : 'Timeout and input')
}

function ending(one) {
  const { document: answer } = one
  if (!answer.run_id) return `Not run: ${sized(answer.message ?? answer.error ?? 'the daemon did not say why')}`
  const how = { timeout: 'Timed out', lost: 'Lost', failed: answer.limit ? 'Ended by a limit' : 'Failed' }[runs.status(one)] ?? 'Done'
  return `${how}: exit code ${answer.exit_code}, ${took(one.wall)}.`
}

function cancel() {
  under?.abort()
}

// The files of a cancelled run are saved a moment later; the list of runs shows when.
const isSettling = () => under !== null || runs.of(conversation.id).some(one =>
  one.state === 'cancelled' && Date.now() - one.began < 600_000 && !one.settled)

function heard(answer) {
  showPool(answer)
  $('network-field').hidden = !['restricted', 'open'].includes(answer.network)
  const agents = answer.agents ?? []
  $('tabs').hidden = agents.length === 0
  if (agents.length === 0 && $('tab-task').getAttribute('aria-selected') === 'true') chooseTab('tab-code')
  task.offer(agents, answer.network)
  if (agents.length > 0) task.heard(answer.recent ?? [])
  history.update(answer).then(() => {
    const open = new Set((answer.recent ?? []).filter(({ status: how }) => how === 'running').map(({ id }) => id))
    for (const one of runs.of(conversation.id)) one.settled ||= one.state === 'cancelled' && one.id && !open.has(one.id)
  })
}

$('language').addEventListener('change', () => choose($('language').value))
$('example').addEventListener('click', () => {
  editor.text = example(language)
  editor.focus()
})
$('skip').addEventListener('click', event => {
  event.preventDefault() // the address has the conversation
  $('run').focus()
})
$('run').addEventListener('click', run)
$('cancel').addEventListener('click', cancel)
// A run ends when its page is closed, so the browser asks first.
addEventListener('beforeunload', event => under && event.preventDefault())
document.addEventListener('keydown', event => {
  if (event.key === 'Enter' && (event.ctrlKey || event.metaKey) && !event.defaultPrevented) {
    event.preventDefault()
    if ($('panel-code').hidden) $('task-form').requestSubmit()
    else run()
  }
})
if (/Mac|iP(hone|ad)/.test(navigator.platform)) say($('run-key'), '⌘ ⏎')

for (const id of ['timeout', 'stdin']) $(id).addEventListener('input', options)
const chooseTab = initTabs(() => [$('tab-code'), $('tab-task')], id => {
  const isTask = id === 'tab-task'
  for (const part of ['panel-code', 'output', 'language-field']) $(part).hidden = isTask
  for (const part of ['panel-task', 'task']) $(part).hidden = !isTask
})
for (const panel of ['panel-code', 'panel-task']) {
  $(panel).setAttribute('role', 'tabpanel')
  $(panel).setAttribute('aria-labelledby', panel.replace('panel', 'tab'))
}

initConnect()
output.initOutput()
files.initFiles()
initUpload({ changed: files.refresh, say: tell })
history.initHistory({
  show: one => {
    output.show(one)
    history.draw()
    output.reveal()
  },
  load: one => {
    choose(one.language)
    editor.text = one.code
    editor.focus()
  },
  changed: files.refresh,
})
task.initTask({
  changed: () => {
    files.refresh()
    status.soon()
  },
  found: () => chooseTab('tab-task'),
})
initConversation(() => {
  output.clear()
  task.reset()
  history.reset()
  tell(under ? 'A run of another conversation is in progress.' : '')
  if (!language) return // not connected yet
  files.refresh()
  status.soon()
  task.find()
})
status.initStatus({
  status: heard,
  failed: error => error.status === 401 || showEngine('bad', 'no answer'),
  quick: isSettling,
})
initAccess(connect)
connect()
