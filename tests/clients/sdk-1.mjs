// The TypeScript SDK 1.x, which most current clients use: a session, and a conversation that belongs to it.
import { Client } from '@modelcontextprotocol/sdk/client/index.js'
import { StreamableHTTPClientTransport } from '@modelcontextprotocol/sdk/client/streamableHttp.js'
import { authorization, document, end, flow, mcp } from './flow.mjs'

const client = new Client({ name: 'sdk-1', version: '1.0.0' })
const transport = new StreamableHTTPClientTransport(new URL(mcp), { requestInit: { headers: { authorization } } })
await client.connect(transport)
// Without a name for the conversation.
await flow(async (name, args) => document(await client.callTool({ name, arguments: args })), {})
await transport.terminateSession()
await client.close()
end()
