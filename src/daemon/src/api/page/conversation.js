// Which conversation this is: its id is in the field and in the address's fragment, which no server sees. It must never begin
// one that the daemon has not been told of by a run or a file.
import { $ } from './dom.js'

const ALPHABET = 'abcdefghjkmnpqrstuvwxyz23456789'
const LETTERS = 10

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
  try {
    return decodeURIComponent(location.hash.slice(1)).slice(0, 256)
  } catch {
    return ''
  }
}

export const conversation = {
  get id() {
    return id
  },
  get isKnown() {
    return isKnown
  },
  // A run or a file was sent for it.
  used() {
    isKnown = true
  },
  // Goes on in this one; a new one, if it is empty.
  open(wanted, known = true) {
    const next = wanted.trim() || madeUp()
    $('conversation').value = next
    history.replaceState(null, '', `#${encodeURIComponent(next)}`)
    if (next === id) return
    id = next
    isKnown = known && wanted.trim() !== ''
    listener(id)
  },
}

// `onChange` hears of every change of the id.
export function initConversation(onChange) {
  listener = onChange
  const given = fromAddress()
  conversation.open(given === 'run' || given === 'main' ? '' : given)
  $('conversation').addEventListener('change', () => conversation.open($('conversation').value))
  $('conversation-new').addEventListener('click', () => conversation.open(''))
  addEventListener('hashchange', () => fromAddress() && conversation.open(fromAddress()))
}
