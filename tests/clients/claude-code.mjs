// Claude Code with a scripted model. README's own command tells it the daemon's address. The model answers with the
// next call of the flow, receives that call's result in Claude Code's next request, and ends its turn when the flow
// has ended.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { text } from 'node:stream/consumers'
import { end, flow, url } from './flow.mjs'
import { resultOf, scripted } from './model.mjs'

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
  const { is_error, texts } = resultOf(called.id, messages)
  assert.ok(!is_error, JSON.stringify(texts))
  const document = JSON.parse(texts.find(text => text?.startsWith('{')))
  return { ...document, stdout: document.stdout ?? document.output }
}

async function turn({ messages, tools }) {
  assert.ok(tools.some(tool => tool.name === `${TOOL}run_code`), `Claude Code offers its model ${JSON.stringify(tools)}`)
  called?.resolve(answerToCall(messages))
  called = await wanted.promise
  wanted = Promise.withResolvers()
  if (!called) return 'The bytes are the same.'
  called.id = `toolu_${messages.length}`
  return { id: called.id, name: TOOL + called.name, args: called.args }
}

const model = await scripted(turn)
const env = { PATH: process.env.PATH, HOME: process.env.HOME, MCP_API_TOKEN: process.env.PADDOCK_TOKEN, ...model }
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
