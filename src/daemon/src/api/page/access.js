// Asks for the token. It stays in memory, and on the device only while that box is ticked. The token must never be shown,
// logged, or put into an address.
import { $, say } from './dom.js'
import { onUnauthorized, setToken } from './http.js'

const KEY = 'paddock.token'

const stored = () => {
  try {
    return localStorage.getItem(KEY) ?? ''
  } catch {
    return ''
  }
}

function store(token) {
  try {
    if (token) localStorage.setItem(KEY, token)
    else localStorage.removeItem(KEY)
    return true
  } catch {
    return false
  }
}

// A daemon that wants no token shows no button for one.
const offer = () => ($('access-toggle').hidden = false)

function open(is) {
  $('access').hidden = !is
  $('access-toggle').setAttribute('aria-expanded', String(is))
}

function problem(text) {
  say($('access-problem'), text)
  if (text) $('token').setAttribute('aria-invalid', 'true')
  else $('token').removeAttribute('aria-invalid')
}

// Calls `connect` with every new token; `connect` throws if the daemon refuses it.
export function initAccess(connect) {
  const token = stored()
  setToken(token)
  if (token) offer()
  $('token').value = token
  $('remember').checked = token !== ''

  onUnauthorized(given => {
    offer()
    open(true)
    problem(given ? 'The daemon does not accept this token. Check it and try again.' : 'This daemon needs a token.')
    $('token').focus()
    $('token').select()
  })
  $('access-toggle').addEventListener('click', () => {
    open($('access').hidden)
    if (!$('access').hidden) $('token').focus()
  })
  $('access').addEventListener('keydown', event => {
    if (event.key !== 'Escape') return
    open(false)
    $('access-toggle').focus()
  })
  $('remember').addEventListener('change', () => {
    const kept = store($('remember').checked ? $('token').value.trim() : '')
    if (!kept) problem('This browser does not let the page store anything.')
  })
  $('access-form').addEventListener('submit', async event => {
    event.preventDefault()
    const token = $('token').value.trim()
    if (!/^[\x21-\x7e]*$/.test(token)) {
      problem('A token has only letters, digits and signs of ASCII, and no space.')
      $('token').focus()
      return
    }
    problem('')
    setToken(token)
    if (!await connect()) return
    if ($('remember').checked) store(token)
    open(false)
    $('access-toggle').focus()
  })
}
