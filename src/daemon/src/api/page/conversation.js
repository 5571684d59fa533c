// The conversation of this page. Its id is in the field and, once something was sent for it, in the fragment of the address,
// which no server sees. The page must never ask the daemon about an id that it has just generated.
import { $ } from './dom.js'

const ALPHABET = 'abcdefghjkmnpqrstuvwxyz23456789'
const LETTERS = 10
const FRAGMENT = '#conversation='

let id = ''
// Whether the daemon may know the conversation: the page does not ask for the files of an id that it has just generated.
let isKnown = false
let listener = () => {}

function madeUp() {
  // 31 letters from a byte: some are a little more frequent, which does not matter here.
  const letters = crypto.getRandomValues(new Uint8Array(LETTERS))
  return `page-${Array.from(letters, byte => ALPHABET[byte % ALPHABET.length]).join('')}`
}

function fromAddress() {
  if (!location.hash.startsWith(FRAGMENT)) return ''
  try {
    return decodeURIComponent(location.hash.slice(FRAGMENT.length)).slice(0, 256)
  } catch {
    return ''
  }
}

// The rest of the address does not change.
const address = fragment =>
  history.replaceState(null, '', `${location.pathname}${location.search}${fragment && FRAGMENT + encodeURIComponent(fragment)}`)

export const conversation = {
  get id() {
    return id
  },
  get isKnown() {
    return isKnown
  },
  // Called when a run or a file was sent for this conversation.
  used() {
    if (!isKnown) address(id)
    isKnown = true
  },
  // Continues with this id, or with a new one if it is empty.
  open(wanted) {
    const next = wanted || madeUp()
    $('conversation').value = next
    if (next === id) return
    id = next
    isKnown = wanted !== ''
    address(isKnown ? id : '')
    listener(id)
  },
}

// Calls `onChange` after every change of the id.
export function initConversation(onChange) {
  listener = onChange
  conversation.open(fromAddress())
  $('conversation').addEventListener('change', () => conversation.open($('conversation').value.trim()))
  $('conversation-new').addEventListener('click', () => conversation.open(''))
  addEventListener('hashchange', () => fromAddress() && conversation.open(fromAddress()))
}
