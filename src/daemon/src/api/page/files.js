// The files of this conversation, as the daemon has them saved. It must never ask for a file that nobody wants to see, and
// never delete one at a single press.
import { $, el, reconcile, say } from './dom.js'
import { conversation } from './conversation.js'
import { filesOf, json, ownLink, request } from './http.js'
import { pathOf, row } from './made.js'
import { named } from './text.js'

// Files of a page of the listing.
const PAGE = 100

let files = []
let total = 0
let next = null
// How often the listing was asked for: what came of an earlier question is of no interest.
let asked = 0
// How often what is there may have changed: a picture's address changes with it.
let generation = 0

const listing = cursor =>
  `${filesOf(conversation.id)}?limit=${PAGE}${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ''}`

// Asks for the listing, as it is now.
export async function refresh() {
  generation++
  await load(null)
}

export function initFiles() {
  $('files-more').addEventListener('click', () => load(next))
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
  $('files-empty').hidden = files.length > 0
  $('files-more').hidden = next === null
  say($('files-count'), total ? String(total) : '')
  // Names that are not UTF-8 can read alike; their links differ.
  reconcile($('file-list'), files, file => new URL(file.download_url).pathname, create)
}

const controls = element => [...element.querySelectorAll('a, button')]

// A row that stays the same element while its file changes, with the focus where it was.
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

// The path as its link has it: the text of a name that is not UTF-8 is not the name.
function encodedPath(file) {
  const link = new URL(ownLink(file.download_url)).pathname
  return link.slice(link.search(/(?<=\/files\/[^/]*\/)/))
}
