// The command /setup-sandbox-mcp of this repository in the real Claude Code, whose scripted model does what the command
// says. The tools that the command allows must be enough, since nobody is there to be asked.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { cpSync, readFileSync } from 'node:fs'
import { text } from 'node:stream/consumers'
import { end, mcp, url } from './flow.mjs'
import { resultOf, scripted } from './model.mjs'

const project = `${process.env.HOME}/project`
cpSync(new URL('../../.claude', import.meta.url), `${project}/.claude`, { recursive: true })

// What the model runs next, and what it must see of it.
let steps = []
let heard = ''
let asked
const model = await scripted(({ messages }) => {
  heard = JSON.stringify(messages)
  if (asked) {
    const { is_error, texts } = resultOf(asked.id, messages)
    assert.match(texts.join('\n'), asked.sees, `of ${asked.command}`)
    assert.ok(!is_error, asked.command)
  }
  asked = steps.shift()
  if (!asked) return 'Done.'
  asked.id = `toolu_${messages.length}`
  return { id: asked.id, name: 'Bash', args: { command: asked.command, description: 'A step of the command' } }
})
const env = { PATH: process.env.PATH, HOME: process.env.HOME, ...model }

async function claude(...args) {
  const child = spawn('claude', args, { cwd: project, env, stdio: ['ignore', 'pipe', 'inherit'] })
  const [said, [code]] = await Promise.all([text(child.stdout), once(child, 'close')])
  return { said, code }
}

async function command(args, ...does) {
  steps = does.map(([command, sees]) => ({ command, sees }))
  const { said, code } = await claude('-p', `/setup-sandbox-mcp ${args}`, '--output-format', 'json')
  assert.equal(code, 0, said)
  assert.equal(JSON.parse(said).result, 'Done.', said)
  assert.deepEqual(JSON.parse(said).permission_denials, [], said)
  assert.ok(heard.includes(`What the user has already said: ${args}`), heard)
}

const scope = 'claude mcp add --transport http --scope user paddock'
await command(
  `on user ${url}`,
  [`curl -sS -m 5 -o /dev/null -w '%{http_code}\\n' -X POST ${mcp} -H 'Content-Type: application/json' \\
     -d '{"jsonrpc":"2.0","id":1,"method":"tools/list"}'`, /401/],
  [`${scope} ${mcp} --header "Authorization: Bearer ${process.env.PADDOCK_TOKEN}"`, /Added HTTP MCP server paddock/],
  ['claude mcp get paddock', /Connected/],
)
assert.match((await claude('mcp', 'get', 'paddock')).said, /User config[^]*Connected/)
await command('off user', ['claude mcp remove paddock --scope user', /Removed MCP server paddock/i])
assert.notEqual((await claude('mcp', 'get', 'paddock')).code, 0)

// The scope `project`, with a token that is made: the file is shared, so it names a variable.
await command(
  `on project ${url}`,
  ['openssl rand -hex 32', /^[0-9a-f]{64}\s*$/],
  [`claude mcp add --transport http --scope project paddock ${mcp} --header 'Authorization: Bearer \${PADDOCK_TOKEN}'`,
    /Added HTTP MCP server paddock/],
)
const shared = JSON.parse(readFileSync(`${project}/.mcp.json`, 'utf8')).mcpServers.paddock
assert.deepEqual([shared.url, shared.headers], [mcp, { Authorization: 'Bearer ${PADDOCK_TOKEN}' }])
// Claude Code asks each user for approval of a shared file, at the next start; nobody is there to give it.
assert.match((await claude('mcp', 'get', 'paddock')).said, /Project config[^]*Pending approval/)
await command('off project', ['claude mcp remove paddock --scope project', /Removed MCP server paddock/i])
assert.ok(!readFileSync(`${project}/.mcp.json`, 'utf8').includes('paddock'))
end()
