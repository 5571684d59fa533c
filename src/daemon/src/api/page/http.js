// Requests to the daemon that served this page. They must never go to another server, whatever an address in an answer says,
// and the token must only ever be in a header.

// A reverse proxy may serve the page below any path.
const base = new URL('.', document.baseURI)

let token = ''
const listeners = new Set()

export function setToken(value) {
  token = value
}

export const hasToken = () => token !== ''

// `listener` is called when the daemon asks for a token, or for another one.
export function onUnauthorized(listener) {
  listeners.add(listener)
}

// A refused request: the daemon's message and its code.
export class Refused extends Error {
  constructor(message, { status = 0, code = '' } = {}) {
    super(message)
    Object.assign(this, { name: 'Refused', status, code })
  }
}

// The path of a session's files, or of the file `name`. A `/` separates folders in a name; in an id it is an ordinary letter.
export const filesOf = (id, name) =>
  `sessions/${encodeURIComponent(id)}/files${name === undefined ? '' : `/${name.split('/').map(encodeURIComponent).join('/')}`}`

// The address of `where`, a path with its query.
export const address = where => new URL(where, base).href

export const authorization = () => (token ? { Authorization: `Bearer ${token}` } : {})

// Why a request failed, from the status and the document of the answer.
export function refusal(status, text) {
  if (status === 401) listeners.forEach(listener => listener(token !== ''))
  let said = {}
  try {
    said = JSON.parse(text) ?? {}
  } catch {
    // The answer is not the daemon's: a proxy sent it.
  }
  const message = said.error?.message ?? said.message ?? `the daemon answered ${status}`
  return new Refused(message, { status, code: typeof said.error === 'string' ? said.error : '' })
}

// A successful response.
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

// A link from an answer, rewritten to the address of this page, since the public URL may differ. `fresh` changes the address
// with the content, so that the browser does not show an old version.
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
