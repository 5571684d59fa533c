// Which conversation this is: its id is in the field, and, once something was sent for it, in the address's fragment, which no
// server sees. It must never ask the daemon about one that was just made up.
import { $ } from './dom.js'

const ALPHABET = 'abcdefghjkmnpqrstuvwxyz23456789'
const LETTERS = 10
const FRAGMENT = '#conversation='

let id = ''
// Whether the daemon may know it: nobody asks for the files of one that was just made up.
let isKnown = false
let listener = () => {}

function madeUp() {
  // 31 letters from a byte: some come a little more often, which is no matter here.
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

// The rest of the address stays as it is.
const address = fragment =>
  history.replaceState(null, '', `${location.pathname}${location.search}${fragment && FRAGMENT + encodeURIComponent(fragment)}`)

export const conversation = {
  get id() {
    return id
  },
  get isKnown() {
    return isKnown
  },
  // A run or a file was sent for it.
  used() {
    if (!isKnown) address(id)
    isKnown = true
  },
  // Goes on in this one; a new one, if it is empty.
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

// `onChange` hears of every change of the id.
export function initConversation(onChange) {
  listener = onChange
  conversation.open(fromAddress())
  $('conversation').addEventListener('change', () => conversation.open($('conversation').value.trim()))
  $('conversation-new').addEventListener('click', () => conversation.open(''))
  addEventListener('hashchange', () => fromAddress() && conversation.open(fromAddress()))
}
