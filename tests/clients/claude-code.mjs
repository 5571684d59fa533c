// Claude Code with a scripted model. README's own command tells it the daemon's address. The model is an
// endpoint in this file that implements as much of Anthropic's Messages API as needed: it answers with the
// next call of the flow, receives that call's result in Claude Code's next request, and ends its turn when
// the flow has ended. Nothing is sent to another machine.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { text } from 'node:stream/consumers'
import { end, flow, url } from './flow.mjs'

// The server's name in README's commands.
const TOOL = process.argv[2] === 'stdio' ? 'mcp__paddock-local__' : 'mcp__paddock__'

// The flow requests calls; the model's requests take them one by one, and bring the result of the previous
// one.
let wanted = Promise.withResolvers()
let called
function call(name, args) {
  const next = { name, args, ...Promise.withResolvers() }
  wanted.resolve(next)
  return next.promise
}

// The result of a call as its model receives it: the compact document, and links to the files of the call.
function answerToCall(messages) {
  const blocks = messages.flatMap(message => message.role === 'user' ? message.content : [])
  const { is_error, content } = blocks.findLast(block => block.type === 'tool_result' && block.tool_use_id === called.id)
  assert.ok(!is_error, JSON.stringify(content))
  const texts = typeof content === 'string' ? [content] : content.map(block => block.text)
  const document = JSON.parse(texts.find(text => text?.startsWith('{')))
  return { ...document, stdout: document.stdout ?? document.output }
}

async function turn({ messages, tools, model }, response) {
  assert.ok(tools.some(tool => tool.name === `${TOOL}run_code`), `Claude Code offers its model ${JSON.stringify(tools)}`)
  called?.resolve(answerToCall(messages))
  called = await wanted.promise
  wanted = Promise.withResolvers()

  const event = (type, data) => response.write(`event: ${type}\ndata: ${JSON.stringify({ type, ...data })}\n\n`)
  const block = (content_block, delta) => {
    event('content_block_start', { index: 0, content_block })
    event('content_block_delta', { index: 0, delta })
    event('content_block_stop', { index: 0 })
  }
  response.writeHead(200, { 'content-type': 'text/event-stream' })
  const message = { id: `msg_${messages.length}`, type: 'message', role: 'assistant', model, content: [] }
  event('message_start', { message: { ...message, stop_reason: null, usage: { input_tokens: 1, output_tokens: 1 } } })
  if (called) {
    called.id = `toolu_${messages.length}`
    const partial_json = JSON.stringify(called.args)
    block({ type: 'tool_use', id: called.id, name: TOOL + called.name, input: {} }, { type: 'input_json_delta', partial_json })
  } else {
    block({ type: 'text', text: '' }, { type: 'text_delta', text: 'The bytes are the same.' })
  }
  const stop_reason = called ? 'tool_use' : 'end_turn'
  event('message_delta', { delta: { stop_reason, stop_sequence: null }, usage: { output_tokens: 1 } })
  event('message_stop')
  response.end()
}

const model = createServer(async (request, response) => {
  const body = await text(request)
  if (request.url.startsWith('/v1/messages') && request.method === 'POST') await turn(JSON.parse(body), response)
  else response.writeHead(404).end()
}).listen(0, '127.0.0.1')
await once(model, 'listening')

const env = {
  PATH: process.env.PATH,
  HOME: process.env.HOME,
  MCP_API_TOKEN: process.env.PADDOCK_TOKEN,
  ANTHROPIC_BASE_URL: `http://127.0.0.1:${model.address().port}`,
  ANTHROPIC_API_KEY: 'x',
  CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: '1',
}
async function run(program, ...args) {
  const child = spawn(program, args, { env, stdio: ['ignore', 'pipe', 'inherit'] })
  const [said, [code]] = await Promise.all([text(child.stdout), once(child, 'close')])
  assert.equal(code, 0, said)
  return said
}

// With README's own commands: the first is for HTTP, the other for a server that Claude Code starts itself.
const readme = readFileSync(new URL('../../README.md', import.meta.url), 'utf8')
const [http, stdio] = readme.match(/^claude mcp add .*$/mg)
const [program, store] = [process.env.PADDOCK_PROGRAM, process.env.SANDBOX_ROOT]
const add = process.argv[2] === 'stdio'
  ? stdio.replace('-- paddock', `--env SANDBOX_ROOT=${store} -- ${program}`)
  : http.replace('http://127.0.0.1:8080', url)
await run('bash', '-c', add)

const flowed = flow(call).then(() => wanted.resolve())
const ran = run('claude', '-p', 'Turn the file round.', '--output-format', 'json', '--tools', '', '--allowedTools', `${TOOL}*`)
await Promise.all([flowed, ran])
assert.equal(JSON.parse(await ran).result, 'The bytes are the same.')
end()
