// The lines that connect a client to this daemon, to copy. They must never contain the token: where the daemon wants one, they
// name the variable MCP_API_TOKEN, or ask for it.
import { $, el, say } from './dom.js'
import { address, hasToken } from './http.js'
import { initTabs } from './tabs.js'

const CODE = 'print(6 * 7)'
const BEARER = 'Authorization: Bearer $MCP_API_TOKEN'

const body = {
  jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name: 'run_code', arguments: { language: 'python', code: CODE } },
}

const json = value => JSON.stringify(value, null, 2)

// Each client: its name, where its lines go, and the lines, by the address for MCP and whether it wants a token.
const CLIENTS = [
  ['claude', 'Claude Code', 'In a terminal. Claude Code connects to this daemon by HTTP.', (url, token) =>
    `claude mcp add --transport http paddock ${url}${token ? ` --header "${BEARER}"` : ''}`],
  ['stdio', 'Claude Code, stdio',
    'In a terminal of the machine on which paddock is installed. It connects to the running daemon, or becomes it.',
    () => 'claude mcp add paddock-local -- paddock stdio'],
  ['cursor', 'Cursor', 'Into ~/.cursor/mcp.json, or .cursor/mcp.json of a project. Other clients read the same form.', (url, token) =>
    json({ mcpServers: { paddock: { url, ...(token && { headers: { Authorization: 'Bearer ${env:MCP_API_TOKEN}' } }) } } })],
  ['vscode', 'VS Code', 'Into .vscode/mcp.json of a folder.', (url, token) => json({
    ...(token && { inputs: [{ type: 'promptString', id: 'paddock-token', description: 'Token of paddock', password: true }] }),
    servers: { paddock: { type: 'http', url, ...(token && { headers: { Authorization: 'Bearer ${input:paddock-token}' } }) } },
  })],
  ['n8n', 'n8n',
    'Paste it into a workflow: a node that runs code. With a token, choose a credential of type Bearer Auth in the node.',
    (url, token) => json({
      nodes: [{
        parameters: {
          method: 'POST', url,
          ...(token && { authentication: 'genericCredentialType', genericAuthType: 'httpBearerAuth' }),
          sendHeaders: true, headerParameters: { parameters: [{ name: 'Prefer', value: 'http-status' }] },
          sendBody: true, contentType: 'json', specifyBody: 'json', jsonBody: JSON.stringify(body), options: {},
        },
        id: '2f0ab5a4-6b0e-4c35-9c0e-5d7c1f0f7a11', name: 'Run code in paddock',
        type: 'n8n-nodes-base.httpRequest', typeVersion: 4.2, position: [0, 0],
      }],
      connections: {},
    })],
  ['python', 'Python', 'After pip install fastmcp.', (url, token) => `import asyncio, os
from fastmcp import Client

async def main():
    async with Client("${url}"${token ? ', auth=os.environ["MCP_API_TOKEN"]' : ''}) as paddock:
        ran = await paddock.call_tool("run_code", {"language": "python", "code": "${CODE}"})
        print(ran.structured_content["stdout"])

asyncio.run(main())`],
  ['curl', 'curl', 'In a terminal: one call, without a session.', (url, token) =>
    `curl -s ${url} -H 'Content-Type: application/json'${token ? ` -H "${BEARER}"` : ''} -d '${JSON.stringify(body)}'`],
]

let current = CLIENTS[0][0]

function draw() {
  const [id, , hint, lines] = CLIENTS.find(([id]) => id === current)
  $('connect-panel').setAttribute('aria-labelledby', `connect-${id}`)
  const variable = hasToken() && !['stdio', 'vscode', 'n8n'].includes(id)
  say($('connect-hint'), `${hint}${variable ? ' The variable MCP_API_TOKEN has your token.' : ''}`)
  say($('connect-lines'), lines(address('mcp'), hasToken()))
  say($('connect-copy'), 'Copy')
}

export function initConnect() {
  $('connect-tabs').replaceChildren(...CLIENTS.map(([id, name], at) => el('button', {
    type: 'button', role: 'tab', id: `connect-${id}`, 'aria-controls': 'connect-panel', 'aria-selected': String(at === 0),
    tabindex: at === 0 ? '0' : '-1',
  }, name)))
  initTabs(() => [...$('connect-tabs').children], id => {
    current = id.replace('connect-', '')
    draw()
  })
  const open = is => {
    $('connect').hidden = !is
    $('connect-toggle').setAttribute('aria-expanded', String(is))
    if (is) draw()
  }
  $('connect-toggle').addEventListener('click', () => open($('connect').hidden))
  $('connect').addEventListener('keydown', event => {
    if (event.key !== 'Escape') return
    open(false)
    $('connect-toggle').focus()
  })
  $('connect-copy').hidden = !navigator.clipboard
  $('connect-copy').addEventListener('click', async () => {
    const done = await navigator.clipboard.writeText($('connect-lines').textContent).then(() => true, () => false)
    say($('connect-copy'), done ? 'Copied' : 'Not copied')
  })
}
