// A model for Claude Code that answers as its test says: an endpoint that implements as much of Anthropic's Messages API
// as needed. Nothing is sent to another machine.
import { once } from 'node:events'
import { createServer } from 'node:http'
import { text } from 'node:stream/consumers'

// Starts it. `next` gets the body of each request, and returns the call that the model makes, {id, name, args}, or a
// text that ends its turn. The result is the environment that makes Claude Code use it.
export async function scripted(next) {
  const server = createServer(async (request, response) => {
    const body = await text(request)
    const isTurn = request.url.startsWith('/v1/messages') && request.method === 'POST'
    if (isTurn) answer(response, JSON.parse(body), await next(JSON.parse(body)))
    else response.writeHead(404).end()
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')
  return {
    ANTHROPIC_BASE_URL: `http://127.0.0.1:${server.address().port}`,
    ANTHROPIC_API_KEY: 'x',
    CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
  }
}

function answer(response, { messages, model }, said) {
  const event = (type, data) => response.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`)
  const block = (content_block, delta) => {
    event('content_block_start', { index: 0, content_block })
    event('content_block_delta', { index: 0, delta })
    event('content_block_stop', { index: 0 })
  }
  const isCall = typeof said !== 'string'
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  const message = { id: `msg_${messages.length}`, type: 'message', role: 'assistant', model, content: [] }
  event('message_start', { message: { ...message, stop_reason: null, usage: { input_tokens: 1, output_tokens: 1 } } })
  if (isCall) {
    const partial_json = JSON.stringify(said.args)
    block({ type: 'tool_use', id: said.id, name: said.name, input: {} }, { type: 'input_json_delta', partial_json })
  } else {
    block({ type: 'text', text: '' }, { type: 'text_delta', text: said })
  }
  const stop_reason = isCall ? 'tool_use' : 'end_turn'
  event('message_delta', { delta: { stop_reason, stop_sequence: null }, usage: { output_tokens: 1 } })
  event('message_stop')
  response.end()
}

// The result of a call, as its model receives it: its texts.
export function resultOf(id, messages) {
  const blocks = messages.flatMap(message => message.role === 'user' ? message.content : [])
  const { is_error, content } = blocks.findLast(block => block.type === 'tool_result' && block.tool_use_id === id)
  return { is_error, texts: typeof content === 'string' ? [content] : content.map(block => block.text) }
}
