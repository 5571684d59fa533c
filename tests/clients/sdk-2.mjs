// The TypeScript SDK 2.x: `auto` requests the newest revision, which has no sessions; `legacy` is its
// default.
import assert from 'node:assert/strict'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { authorization, document, end, flow, mcp } from './flow.mjs'

const mode = process.argv[2]
const client = new Client({ name: 'sdk-2', version: '1.0.0' }, { versionNegotiation: { mode } })
await client.connect(new StreamableHTTPClientTransport(new URL(mcp), { requestInit: { headers: { authorization } } }))
assert.equal(client.getNegotiatedProtocolVersion(), { auto: '2026-07-28', legacy: '2025-11-25' }[mode])
await flow(async (name, args) => document(await client.callTool({ name, arguments: args })))
await client.close()
end()
