// Uploads files to /data: files and folders dropped anywhere on the page, or chosen with the buttons. One after the other, with
// progress. It must never replace a file of the conversation unless the user says so.
import { $, el } from './dom.js'
import { conversation } from './conversation.js'
import { Refused, address, authorization, filesOf, refusal } from './http.js'
import { count, named, size, sized } from './text.js'

// The most files of one drop. For more, send a tar.
const MAX = 500

const queue = []
let working = null
let told = { changed: () => {}, say: () => {} }

// Resolves when nothing is being sent.
export const settled = async () => {
  while (working) await working
}

// `changed` is called when files have arrived, `say` with a text for the status line.
export function initUpload(listeners) {
  told = listeners
  for (const [button, input] of [['add-files', 'file-input'], ['add-folder', 'folder-input']]) {
    $(button).addEventListener('click', () => $(input).click())
    $(input).addEventListener('change', () => {
      add(Array.from($(input).files, file => ({ file, name: file.webkitRelativePath || file.name })))
      $(input).value = ''
    })
  }
  let depth = 0
  const brings = event => event.dataTransfer?.types.includes('Files')
  const over = is => {
    $('drop').hidden = !is
    if (!is) depth = 0
  }
  // In the capture phase, because the editor would otherwise insert the text of a dropped file.
  const on = (name, listener) => document.addEventListener(name, event => {
    if (!brings(event)) return
    event.preventDefault()
    event.stopPropagation()
    listener(event)
  }, true)
  on('dragenter', () => over(++depth > 0))
  on('dragleave', () => --depth <= 0 && over(false))
  on('dragover', event => (event.dataTransfer.dropEffect = 'copy'))
  on('drop', async event => {
    over(false)
    add(await dropped(event.dataTransfer))
  })
}

// The dropped files, those in folders included. The entries must be read before the first await.
async function dropped(transfer) {
  const entries = Array.from(transfer.items, item => item.webkitGetAsEntry?.()).filter(Boolean)
  if (!entries.length) return Array.from(transfer.files, file => ({ file, name: file.name }))
  const found = []
  const walk = async entry => {
    if (found.length > MAX) return
    if (entry.isFile) {
      const file = await new Promise((done, failed) => entry.file(done, failed))
      found.push({ file, name: entry.fullPath.replace(/^\//, '') })
    } else {
      const reader = entry.createReader()
      for (;;) {
        const some = await new Promise((done, failed) => reader.readEntries(done, failed))
        if (!some.length) break
        for (const one of some) await walk(one)
      }
    }
  }
  for (const entry of entries) await walk(entry).catch(() => told.say('Some of the dropped files cannot be read.'))
  return found
}

function add(files) {
  if (files.length > MAX) {
    told.say(`At most ${MAX} files can be sent at a time.`)
    return
  }
  if (!files.length) return
  for (const { file, name } of files) queue.push(item(file, name))
  told.say(`Sending ${count(files.length, 'file')}.`)
  working ??= work().finally(() => (working = null))
}

function item(file, name) {
  const bar = el('progress', { max: '1', value: '0', 'aria-label': `Sending ${named(name)}` })
  const words = el('span', { class: 'meta' }, `${size(file.size)}, waiting`)
  const actions = el('span', { class: 'actions' })
  const element = el('li', {}, el('span', { class: 'name' }, el('bdi', {}, named(name))), bar, words, actions)
  $('uploads').append(element)
  return { file, name, conversation: conversation.id, replace: false, bar, words, actions, element, abort: null }
}

async function work() {
  let sent = 0
  for (let one = queue.shift(); one; one = queue.shift()) {
    const stop = el('button', { type: 'button', class: 'small quiet', 'aria-label': `Stop sending ${named(one.name)}`,
      onclick: () => one.abort?.() }, 'Stop')
    one.actions.replaceChildren(stop)
    try {
      await put(one)
      one.element.remove()
      sent++
      if (one.conversation === conversation.id) conversation.used()
    } catch (error) {
      failed(one, error)
    }
  }
  if (sent) told.say(`${count(sent, 'file')} saved in /data.`)
  told.changed()
}

function failed(one, error) {
  one.bar.hidden = true
  const isThere = error.code === 'file_exists' && error.status === 412
  one.words.textContent = isThere ? 'already exists' : sized(error.message)
  one.words.classList.add('bad')
  told.say(`${named(one.name)}: ${one.words.textContent}`)
  const dismiss = el('button', { type: 'button', class: 'small quiet', onclick: () => one.element.remove(),
    'aria-label': `Dismiss ${named(one.name)}` }, 'Dismiss')
  const again = el('button', { type: 'button', class: 'small', onclick: () => {
    one.replace = true
    one.bar.hidden = false
    one.words.classList.remove('bad')
    queue.push(one)
    working ??= work().finally(() => (working = null))
  }, 'aria-label': `Replace ${named(one.name)}` }, 'Replace')
  one.actions.replaceChildren(...(error.status === 412 ? [again] : []), dismiss)
}

// XMLHttpRequest, because only it reports the progress of an upload.
function put(one) {
  return new Promise((done, fail) => {
    const sending = new XMLHttpRequest()
    one.abort = () => sending.abort()
    sending.open('PUT', address(filesOf(one.conversation, one.name)))
    const headers = { 'Content-Type': 'application/octet-stream', ...authorization() }
    if (!one.replace) headers['If-None-Match'] = '*'
    for (const [name, value] of Object.entries(headers)) sending.setRequestHeader(name, value)
    sending.upload.onprogress = ({ loaded, total }) => {
      one.bar.value = total ? loaded / total : 1
      one.words.textContent = `${size(loaded)} of ${size(total)}`
    }
    sending.onload = () =>
      sending.status < 300 ? done() : fail(refusal(sending.status, sending.responseText))
    sending.onerror = () => fail(new Refused('was not taken: too large, or the daemon went away'))
    sending.onabort = () => fail(new Refused('stopped'))
    sending.send(one.file)
  })
}
