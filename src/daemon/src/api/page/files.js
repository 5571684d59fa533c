// The saved files of this conversation. The page must never load a file that the user did not ask to see, and never delete
// one at a single press.
import { $, el, reconcile, say } from './dom.js'
import { conversation } from './conversation.js'
import { filesOf, json, ownLink, request } from './http.js'
import { pathOf, row } from './made.js'
import { count, named } from './text.js'

// Files in one page of the list.
const PAGE = 100
// Where coding agents keep what is theirs: listed on request.
const AGENT = '.agent/'

let files = []
let total = 0
let next = null
let hasAgents = false
// The number of the last request for the list: answers to earlier requests are ignored.
let asked = 0
// How often the files may have changed; the address of a picture contains this number, so that it is loaded again.
let generation = 0

const listing = cursor =>
  `${filesOf(conversation.id)}?limit=${PAGE}${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ''}`

// Requests the current list.
export async function refresh() {
  generation++
  await load(null)
}

export function initFiles() {
  $('files-more').addEventListener('click', () => load(next))
  $('files-agent').addEventListener('click', () => {
    hasAgents = !hasAgents
    draw()
  })
}

async function load(cursor) {
  const ask = ++asked
  if (!conversation.isKnown) {
    files = []
    total = 0
    next = null
    return draw()
  }
  try {
    const page = await json(listing(cursor))
    if (ask !== asked) return
    files = cursor ? [...files, ...page.artifacts] : page.artifacts
    total = page.total
    next = page.next_cursor ?? null
    say($('files-problem'), '')
  } catch (error) {
    if (ask !== asked) return
    if (error.code === 'session_not_found') [files, total, next] = [[], 0, null]
    else if (error.status !== 401) say($('files-problem'), `The files cannot be listed: ${error.message}`)
  }
  draw()
}

function draw() {
  const own = files.filter(file => pathOf(file).startsWith(AGENT)).length
  const listed = hasAgents ? files : files.filter(file => !pathOf(file).startsWith(AGENT))
  $('files-agent').hidden = own === 0
  $('files-agent').setAttribute('aria-expanded', String(hasAgents))
  say($('files-agent'), `${hasAgents ? 'Hide' : 'Show'} ${count(own, 'file')} of the agent’s own`)
  $('files-empty').hidden = files.length > 0
  $('files-more').hidden = next === null
  say($('files-count'), total > own ? String(total - own) : '')
  // Two names that are not UTF-8 can look the same; their links differ.
  reconcile($('file-list'), listed, file => new URL(file.download_url).pathname, create)
}

const controls = element => [...element.querySelectorAll('a, button')]

// A row stays the same element while its file changes, so it keeps the focus.
function create() {
  const element = el('li')
  let drawn = ''
  return {
    element,
    update(file) {
      const state = JSON.stringify([file, file.mime_type.startsWith('image/') ? generation : 0])
      if (state === drawn) return
      drawn = state
      const at = controls(element).indexOf(document.activeElement)
      const button = el('button', {
        type: 'button', class: 'small quiet', 'aria-label': `Delete ${named(pathOf(file))}`,
        onclick: () => remove(file, button), onblur: () => unarm(button, file),
      }, 'Delete')
      element.replaceChildren(...row(file, { fresh: String(generation), thumbnail: true, actions: [button] }).childNodes)
      controls(element)[at]?.focus()
    },
  }
}

function unarm(button, file) {
  button.classList.remove('danger')
  button.textContent = 'Delete'
  button.setAttribute('aria-label', `Delete ${named(pathOf(file))}`)
}

async function remove(file, button) {
  if (!button.classList.contains('danger')) {
    button.classList.add('danger')
    button.textContent = 'Really?'
    button.setAttribute('aria-label', `Really delete ${named(pathOf(file))}?`)
    return
  }
  try {
    await request(`${filesOf(conversation.id)}/${encodedPath(file)}`, { method: 'DELETE' })
    say($('files-problem'), '')
  } catch (error) {
    say($('files-problem'), `${named(pathOf(file))} is not deleted: ${error.message}`)
  }
  await refresh()
}

// The path from the file's link, because the text of a name that is not UTF-8 is not the name itself.
function encodedPath(file) {
  const link = new URL(ownLink(file.download_url)).pathname
  return link.slice(link.search(/(?<=\/files\/[^/]*\/)/))
}
