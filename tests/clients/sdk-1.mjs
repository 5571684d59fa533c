// The TypeScript SDK, 1.x, which most clients of today are made of: a session, and a conversation that goes with it.
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { authorization, document, end, flow, mcp } from './flow.mjs'

const client = new Client({ name: 'sdk-1', version: '1.0.0' })
const transport = new StreamableHTTPClientTransport(new URL(mcp), { requestInit: { headers: { authorization } } })
await client.connect(transport)
// No conversation is named.
await flow(async (name, args) => document(await client.callTool({ name, arguments: args })), {})
await transport.terminateSession()
await client.close()
end()
