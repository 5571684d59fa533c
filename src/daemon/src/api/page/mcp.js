// The part of MCP that the page needs: tool calls of revision 2026-07-28, without a session, with live output. It must never
// assume that a stream ends well: a missing answer is an error.
import { Refused, request } from './http.js'

const VERSION = '2026-07-28'
const INFO = {
  'io.modelcontextprotocol/protocolVersion': VERSION,
  'io.modelcontextprotocol/clientInfo': { name: 'paddock-page', version: '1' },
  'io.modelcontextprotocol/clientCapabilities': {},
}

// The largest event, in bytes; an answer contains its output twice.
const MAX_EVENT = 64 << 20

const ENDED = 'the connection ended before the answer came; what became of the call is in the history'

let calls = 0

// Calls a tool; returns its document and its `_meta`. `onOutput(stream, text)` receives output while the program runs.
// Aborting `signal` ends the call and its program.
export async function call(name, args, { signal, onOutput } = {}) {
  const id = ++calls
  const meta = onOutput ? { ...INFO, progressToken: id } : INFO
  const response = await request('mcp', {
    method: 'POST',
    signal,
    headers: {
      'Content-Type': 'application/json',
      Accept: 'application/json, text/event-stream',
      'MCP-Protocol-Version': VERSION,
      'Mcp-Method': 'tools/call',
      'Mcp-Name': name,
    },
    body: JSON.stringify({
      jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: args, _meta: meta },
    }),
  })
  const type = response.headers.get('Content-Type') ?? ''
  if (!type.startsWith('text/event-stream')) return result(await response.json().catch(broken))
  for await (const data of events(response.body)) {
    const message = JSON.parse(data)
    if (message.id === id) return result(message)
    if (message.method !== 'notifications/progress' || message.params?.progressToken !== id) continue
    const stream = message.params._meta?.['paddock/stream']
    if (stream === 'stdout' || stream === 'stderr') onOutput?.(stream, String(message.params.message ?? ''))
  }
  throw new Refused(ENDED)
}

function broken(error) {
  if (error.name === 'AbortError') throw error
  throw new Refused(ENDED)
}

function result(message) {
  if (message.error) throw new Refused(message.error.message, { code: message.error.code })
  return { document: message.result.structuredContent ?? {}, meta: message.result._meta ?? {} }
}

// The data of each event in a stream of server-sent events.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader()
  let rest = []
  let held = 0
  let data = []
  try {
    for (;;) {
      const { done, value } = await reader.read().catch(broken)
      if (done) return
      const lines = value.split('\n')
      for (const [at, piece] of lines.entries()) {
        rest.push(piece)
        held += piece.length
        if (held > MAX_EVENT) throw new Refused('the daemon sent more than the page can hold')
        if (at === lines.length - 1) break
        const line = rest.join('').replace(/\r$/, '')
        rest = []
        if (line.startsWith('data:')) data.push(line.slice(line[5] === ' ' ? 6 : 5))
        if (line !== '') continue
        if (data.some(part => part !== '')) yield data.join('\n')
        data = []
        held = 0
      }
    }
  } finally {
    reader.cancel().catch(() => {})
  }
}
