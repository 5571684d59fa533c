// A real n8n imports and runs the workflows of deploy/n8n by its command line, with a daemon that requires a
// token or none. `make n8n` installs it. It must never change anything in a workflow but the daemon's
// address, except where a comment says so.
//  n8n-real.mjs open|token
import assert from 'node:assert/strict'
import { execFile } from 'node:child_process'
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { end, url } from './flow.mjs'

const [kind] = process.argv.slice(2)
const shipped = new URL('../../deploy/n8n/', import.meta.url)
const installed = fileURLToPath(new URL('n8n', import.meta.url))
// The number of items that n8n sends at once.
const ITEMS = 200

const home = process.cwd()
const environment = {
  ...process.env,
  N8N_USER_FOLDER: home,
  N8N_DIAGNOSTICS_ENABLED: 'false',
  N8N_VERSION_NOTIFICATIONS_ENABLED: 'false',
  N8N_TEMPLATES_ENABLED: 'false',
  N8N_PERSONALIZATION_ENABLED: 'false',
}

async function n8n(...args) {
  const program = `${installed}/node_modules/n8n/bin/n8n`
  const options = { env: environment, maxBuffer: 256 << 20, timeout: 240_000 }
  return promisify(execFile)(process.execPath, [program, ...args], options)
    .then(ended => ({ ...ended, code: 0 }), ({ stdout, stderr, code }) => ({ stdout, stderr, code }))
}

// A model that requests a tool once, and then repeats what the tool answered.
const model = createServer(async (request, answer) => {
  let text = ''
  for await (const piece of request) text += piece
  const { messages, tools, stream } = JSON.parse(text || '{}')
  const told = messages?.findLast(({ role }) => role === 'tool')
  const called = { index: 0, id: 'call_1', type: 'function', function: {
    name: tools?.map(tool => tool.function.name).find(name => name.includes('run_code')) ?? 'none',
    arguments: JSON.stringify({ language: 'python', code: 'print(6 * 7)' }),
  } }
  const message = told
    ? { role: 'assistant', content: `It printed: ${JSON.stringify(told.content)}` }
    : { role: 'assistant', content: null, tool_calls: [called] }
  const finish_reason = told ? 'stop' : 'tool_calls'
  const usage = { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 }
  const about = { id: 'one', created: 1, model: 'none', usage }
  if (stream) {
    answer.setHeader('content-type', 'text/event-stream')
    const object = 'chat.completion.chunk'
    const say = choice => answer.write(`data: ${JSON.stringify({ ...about, object, choices: [choice] })}\n\n`)
    say({ index: 0, delta: message, finish_reason: null })
    say({ index: 0, delta: {}, finish_reason })
    answer.end('data: [DONE]\n\n')
  } else {
    answer.setHeader('content-type', 'application/json')
    answer.end(JSON.stringify({ ...about, object: 'chat.completion', choices: [{ index: 0, message, finish_reason }] }))
  }
})
await new Promise(done => model.listen(0, '127.0.0.1', done))

const read = name => readFileSync(new URL(name, shipped), 'utf8').replaceAll('http://127.0.0.1:8080', url)
const names = readdirSync(new URL(`${kind}/`, shipped))
const workflows = Object.fromEntries(names.map(name => [name, JSON.parse(read(`${kind}/${name}`))]))

// Two more workflows, made from the first: one whose program fails, and one with many items.
const http = workflows['http-request.json']
function changed(id, code) {
  const other = structuredClone(http)
  Object.assign(other, { id, name: id })
  other.nodes.find(({ name }) => name === 'Code from anywhere').parameters.jsCode = code
  return other
}
workflows['fails.json'] = changed('paddockFailures0', `return [{ json: { code: 'raise KeyError("sales")' } }]`)
workflows['many.json'] = changed('paddockManyItems', `return Array.from({ length: ${ITEMS} }, (_, n) => (
  { json: { code: \`open('/data/n.txt', 'w').write('\${n}'); print(\${n})\` } }))`)

mkdirSync('workflows')
for (const [name, workflow] of Object.entries(workflows)) writeFileSync(`workflows/${name}`, JSON.stringify(workflow))
const credentials = JSON.parse(read('credentials.json'))
credentials.find(({ type }) => type === 'httpBearerAuth').data.token = process.env.PADDOCK_TOKEN
credentials.push({
  id: 'paddockModel0001', name: 'a model', type: 'openAiApi',
  data: { apiKey: 'none', url: `http://127.0.0.1:${model.address().port}/v1` },
})
writeFileSync('credentials.json', JSON.stringify(kind === 'token' ? credentials : credentials.slice(1)))
const imports = [['import:credentials', '--input=credentials.json'], ['import:workflow', '--separate', '--input=workflows']]
for (const args of imports) {
  const { stdout, stderr, code } = await n8n(...args)
  assert.equal(code, 0, `${args[0]}: ${stdout}${stderr}`)
}

// Runs a workflow; returns its outcome, and the output of each node.
async function execute(name) {
  const began = performance.now()
  const { stdout, stderr } = await n8n('execute', `--id=${workflows[name].id}`, '--rawOutput')
  const at = stdout.indexOf('\n{') + 1
  let ran
  try {
    ran = JSON.parse(stdout.slice(at))
  } catch {
    ran = { status: 'error', data: { resultData: { runData: {}, error: { message: stdout + stderr } } } }
  }
  const { runData, error } = ran.data.resultData
  const items = node => (runData[node]?.[0].data?.main.flat() ?? []).filter(Boolean)
  console.log(`${kind}/${name}: ${ran.status}, ${Math.round(performance.now() - began)} ms`)
  return { status: ran.status, error: error?.message, items, all: JSON.stringify(runData) }
}

async function succeeds(name) {
  const ran = await execute(name)
  assert.equal(ran.status, 'success', `${name}: ${ran.error}`)
  return ran
}

const first = await succeeds('http-request.json')
assert.equal(first.items('Run code')[0].json.result.structuredContent.stdout, '{"a": {"b": {"c": 1}}}\n')
assert.equal(first.items('Download the file')[0].binary.data.fileName, 'report.txt')

const upload = await succeeds('upload.json')
assert.equal(upload.items('Run code')[0].json.result.structuredContent.stdout, '1200\n')
assert.equal(upload.items('Download the file')[0].binary.data.fileName, 'report.csv')

const client = await succeeds('mcp-client.json')
assert.match(JSON.stringify(client.items('MCP Client')), /1200\\n/)

const agent = await succeeds('ai-agent.json')
assert.match(agent.items('AI Agent')[0].json.output, /42/)

const failed = await execute('fails.json')
assert.equal(failed.status, 'error', 'a program that fails fails its workflow')
assert.match(failed.error, /KeyError/)

const many = await succeeds('many.json')
const answers = many.items('Run code').map(({ json }) => json.result.structuredContent)
assert.equal(answers.length, ITEMS)
answers.forEach((answer, n) => assert.deepEqual([answer.success, answer.stdout], [true, `${n}\n`]))
assert.equal(many.items('Download the file').length, ITEMS)

model.close()
end()
