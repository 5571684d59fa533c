// Requests to the daemon that this page came from. It must never go anywhere else, whatever an address in an answer says, and
// never put the token anywhere but into a header.

// The page may stand below any path of a reverse proxy.
const base = new URL('.', document.baseURI)

let token = ''
const listeners = new Set()

export function setToken(value) {
  token = value
}

// `listener` hears when the daemon wants a token, or another.
export function onUnauthorized(listener) {
  listeners.add(listener)
}

// A request that was not served: what the daemon said, and its code.
export class Refused extends Error {
  constructor(message, { status = 0, code = '' } = {}) {
    super(message)
    Object.assign(this, { name: 'Refused', status, code })
  }
}

// Where the files of a session are; with `name`, where that one is. A `/` is one between folders in a name, and none in an id.
export const filesOf = (id, name) =>
  `sessions/${encodeURIComponent(id)}/files${name === undefined ? '' : `/${name.split('/').map(encodeURIComponent).join('/')}`}`

// The address of `where`, a path with its query.
export const address = where => new URL(where, base).href

export const authorization = () => (token ? { Authorization: `Bearer ${token}` } : {})

// Why an answer is no success, from its status and its document.
export function refusal(status, text) {
  if (status === 401) listeners.forEach(listener => listener(token !== ''))
  let said = {}
  try {
    said = JSON.parse(text) ?? {}
  } catch {
    // Not the daemon's own: a proxy in front of it.
  }
  const message = said.error?.message ?? said.message ?? `the daemon answered ${status}`
  return new Refused(message, { status, code: typeof said.error === 'string' ? said.error : '' })
}

// A response that is a success.
export async function request(where, { method = 'GET', headers = {}, body, signal } = {}) {
  let response
  try {
    response = await fetch(address(where), {
      method, body, signal, headers: { ...headers, ...authorization() }, cache: 'no-store', credentials: 'omit',
      redirect: 'error', referrerPolicy: 'no-referrer',
    })
  } catch (error) {
    if (error.name === 'AbortError') throw error
    throw new Refused('the daemon does not answer')
  }
  if (!response.ok) throw refusal(response.status, await response.text().catch(() => ''))
  return response
}

export const json = async (where, options) => (await request(where, options)).json()

// A link of an answer, as one of this daemon at the page's own address: the public URL may be another. `fresh` makes it
// another address for each content, so that what was loaded once is not shown for what is there by now.
export function ownLink(link, fresh) {
  const url = new URL(link, base)
  const at = url.pathname.startsWith(base.pathname) && /^(files|logs)\//.test(url.pathname.slice(base.pathname.length))
    ? base.pathname.length
    : url.pathname.search(/(?<=\/)(files|logs)\//)
  if (at < 0) return null
  const own = new URL(base)
  own.pathname = base.pathname + url.pathname.slice(at)
  own.search = url.search
  if (fresh) own.searchParams.append('v', fresh)
  return own.href
}
