// Does what n8n's MCP Client node does, with the same SDK used in the same way: it connects, lists, calls,
// and leaves without ending its session. It also checks and runs the workflows that paddock offers for
// import, with the requests of their HTTP Request nodes; `make n8n` runs them in a real n8n.
import assert from 'node:assert/strict'
import { readFileSync, readdirSync } from 'node:fs'
import { Client } from 'n8n-sdk/client/index.js'
import { StreamableHTTPClientTransport } from 'n8n-sdk/client/streamableHttp.js'
import { authorization, document, end, flow, mcp, url } from './flow.mjs'
import { check, run, withoutToken } from './workflow.mjs'

const sent = []
const client = new Client({ name: '@n8n/n8n-nodes-langchain.mcpClient', version: '1.1' }, { capabilities: {} })
const transport = new StreamableHTTPClientTransport(new URL(mcp), {
  async fetch(input, init) {
    sent.push({ method: init.method, message: init.body && JSON.parse(init.body) })
    const headers = new Headers(init.headers)
    headers.set('authorization', authorization)
    return await fetch(input, { ...init, headers })
  },
})
await client.connect(transport)
const { tools } = await client.listTools()
assert.ok(tools.some(tool => tool.name === 'run_code'))
const call = async (name, args) =>
  document(await client.callTool({ name, arguments: args }, undefined, { timeout: 60_000 }))
await flow(call)

const shipped = new URL('../../deploy/n8n/', import.meta.url)
const read = path => JSON.parse(readFileSync(new URL(path, shipped)))
const names = readdirSync(new URL('token/', shipped))
assert.deepEqual(names, readdirSync(new URL('open/', shipped)))
const workflows = {}
for (const name of names) {
  const [wanting, open] = [read(`token/${name}`), read(`open/${name}`)]
  check(wanting, true)
  check(open, false)
  assert.notEqual(wanting.id, open.id)
  assert.deepEqual(withoutToken(wanting), withoutToken(open), 'they differ by the token alone')
  workflows[name] = JSON.parse(JSON.stringify(wanting).replaceAll('http://127.0.0.1:8080', url))
}
const [credential] = read('credentials.json')
assert.deepEqual([credential.id, credential.type], ['paddockBearer001', 'httpBearerAuth'])

const { parameters } = workflows['mcp-client.json'].nodes.find(({ type }) => type.endsWith('.mcpClient'))
assert.equal(parameters.endpointUrl, mcp)
const ran = await call(parameters.tool.value, JSON.parse(parameters.jsonInput))
assert.equal(ran.stdout, '1200\n')
const agentTools = workflows['ai-agent.json'].nodes.find(({ type }) => type.endsWith('.mcpClientTool'))
const offered = agentTools.parameters.includeTools
assert.ok(offered.every(name => tools.some(tool => tool.name === name)), 'the agent is given tools that exist')

const http = workflows['http-request.json']
const first = await run(http, authorization)
assert.equal(first['Run code'][0].json.result.structuredContent.stdout, '{"a": {"b": {"c": 1}}}\n')
assert.equal(first['Download the file'][0].binary.data.bytes.toString(), 'made by n8n')
const upload = await run(workflows['upload.json'], authorization)
assert.equal(upload['Run code'][0].json.result.structuredContent.stdout, '1200\n')
assert.match(upload['Download the file'][0].binary.data.bytes.toString(), /north,700/)
const code = http.nodes.find(({ name }) => name === 'Code from anywhere').parameters
code.jsCode = `return [{ json: { code: 'raise KeyError("sales")' } }]`
await assert.rejects(run(http, authorization), /KeyError/, 'a program that fails fails its workflow')
http.nodes.find(({ name }) => name === 'Build the call').parameters.jsCode =
  `return [{ json: { call: { jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'none' } } } }]`
await assert.rejects(run(http, authorization), /^Error: 400: /, 'a call that is refused fails its node')
await client.close()

const [initialize] = sent
assert.deepEqual([initialize.message.id, initialize.message.params.protocolVersion], [0, '2025-11-25'])
assert.equal(sent[1].message.method, 'notifications/initialized')
assert.ok(sent.some(({ method }) => method === 'GET'), 'it listens')
assert.ok(sent.every(({ method }) => method !== 'DELETE'), 'it does not end its session')
end()
