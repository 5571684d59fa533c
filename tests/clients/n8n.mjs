// What n8n's MCP Client node does: the SDK that it is built on, used as it does. It connects, lists, calls, and goes away
// without ending its session. The workflow that we offer for import is run the same way.
import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { Client } from 'n8n-sdk/client/index.js'
import { StreamableHTTPClientTransport } from 'n8n-sdk/client/streamableHttp.js'
import { authorization, document, end, flow, mcp } from './flow.mjs'

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

const workflow = JSON.parse(readFileSync(new URL('../../deploy/n8n/mcp-client.json', import.meta.url)))
const nodes = workflow.nodes.filter(node => node.type === '@n8n/n8n-nodes-langchain.mcpClient')
assert.equal(nodes.length, 1)
const { parameters } = nodes[0]
assert.equal(new URL(parameters.endpointUrl).pathname, '/mcp')
const ran = await call(parameters.tool.value, JSON.parse(parameters.jsonInput))
assert.equal(ran.stdout, '1200\n')
await client.close()

const [initialize] = sent
assert.deepEqual([initialize.message.id, initialize.message.params.protocolVersion], [0, '2025-11-25'])
assert.equal(sent[1].message.method, 'notifications/initialized')
assert.ok(sent.some(({ method }) => method === 'GET'), 'it listens')
assert.ok(sent.every(({ method }) => method !== 'DELETE'), 'it does not end its session')
end()
