// The lines that the page gives people to connect their clients: each is taken from the page and used as it stands, by the
// client itself where it is installed here. It must never help a line along, but by the variable that the page names.
import assert from 'node:assert/strict'
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { symlinkSync } from 'node:fs'
import { text } from 'node:stream/consumers'
import { Client, StreamableHTTPClientTransport } from '@modelcontextprotocol/client'
import { resultOf, scripted } from './model.mjs'
import { accessible, enter, fits, says, token, visit } from './page-drive.mjs'

export const connect = given => connects(given, true)
export const connectOpen = given => connects(given, false)

async function connects({ browser, url, home }, isLocked) {
  const page = await visit(browser, url, isLocked ? { expected: [/401/] } : {})
  if (isLocked) await enter(page)
  await page.waitForSelector('#language option[value="python"]', { state: 'attached' })
  await page.click('#connect-toggle')
  const lines = async client => {
    await page.click(`#connect-${client}`)
    return page.textContent('#connect-lines')
  }
  const all = {}
  for (const tab of await page.locator('#connect-tabs button').evaluateAll(tabs => tabs.map(tab => tab.id.replace('connect-', '')))) {
    all[tab] = await lines(tab)
    assert.ok(!all[tab].includes(token), `${tab} does not contain the token`)
    assert.equal(/MCP_API_TOKEN|Bearer \$/.test(all[tab]), isLocked && !['stdio', 'n8n'].includes(tab), all[tab])
    await fits(page, tab)
  }
  assert.deepEqual(Object.keys(all), ['claude', 'stdio', 'cursor', 'vscode', 'n8n', 'python', 'curl'])
  await accessible(page, 'the lines')
  await page.keyboard.press('Escape')
  assert.equal(await page.evaluate(() => document.activeElement.id), 'connect-toggle')

  // `paddock` is on the PATH, as the page says.
  symlinkSync(process.env.PADDOCK_PROGRAM, `${home}/paddock`)
  const env = {
    PATH: `${home}:${process.env.PATH}`, HOME: home, SANDBOX_ROOT: process.env.SANDBOX_ROOT, ...(isLocked && { MCP_API_TOKEN: token }),
  }
  const said = async (more, program, ...args) => {
    const child = spawn(program, args, { env: { ...env, ...more }, stdio: ['ignore', 'pipe', 'inherit'] })
    const [out, [code]] = await Promise.all([text(child.stdout), once(child, 'close')])
    assert.equal(code, 0, `${program} ${args}: ${out}`)
    return out
  }

  const answer = JSON.parse(await said({}, 'bash', '-c', all.curl))
  assert.equal(answer.result.structuredContent.stdout, '42\n')
  const { PYTHON = 'python' } = process.env
  assert.equal((await said({}, PYTHON, '-c', all.python)).trim(), '42')

  // Claude Code, with each of its lines: its model calls the tool.
  let tools
  const model = await scripted(({ messages, tools: offered }) => {
    tools = offered.map(tool => tool.name)
    const name = tools.find(name => name.endsWith('run_code'))
    assert.ok(name, `Claude Code offers its model ${tools}`)
    if (!JSON.stringify(messages).includes('tool_result')) return { id: 'toolu_1', name, args: { language: 'python', code: 'print(6 * 7)' } }
    const { is_error, texts } = resultOf('toolu_1', messages)
    return is_error ? `failed: ${texts}` : `it answered ${texts.join('').match(/\b42\b/)}`
  })
  for (const [client, name] of [['claude', 'paddock'], ['stdio', 'paddock-local']]) {
    await said(model, 'bash', '-c', all[client])
    const ran = await said(model, 'claude', '-p', 'What is it?', '--output-format', 'json', '--tools', '', '--allowedTools', `mcp__${name}__*`)
    assert.equal(JSON.parse(ran).result, 'it answered 42')
    assert.ok(tools.includes(`mcp__${name}__run_code`), String(tools))
    await said(model, 'claude', 'mcp', 'remove', name)
  }

  // The files of Cursor and VS Code: an MCP client that fills in the variables as they do.
  const cursor = JSON.parse(all.cursor).mcpServers.paddock
  const { servers: { paddock: code }, inputs = [] } = JSON.parse(all.vscode)
  assert.equal(code.type, 'http')
  assert.equal(inputs.length, isLocked ? 1 : 0)
  for (const { url: to, headers = {} } of [cursor, code]) {
    const filled = Object.entries(headers).map(([name, value]) =>
      [name, value.replace('${env:MCP_API_TOKEN}', token).replace(`\${input:${inputs[0]?.id}}`, token)])
    const client = new Client({ name: 'editor', version: '1' })
    await client.connect(new StreamableHTTPClientTransport(new URL(to), { requestInit: { headers: Object.fromEntries(filled) } }))
    const { structuredContent } = await client.callTool({ name: 'run_code', arguments: { language: 'python', code: 'print(6 * 7)' } })
    assert.equal(structuredContent.stdout, '42\n')
    await client.close()
  }

  // n8n's node: the request that it sends.
  const { nodes: [node] } = JSON.parse(all.n8n)
  assert.equal(node.parameters.genericAuthType, isLocked ? 'httpBearerAuth' : undefined)
  const sent = await fetch(node.parameters.url, {
    method: node.parameters.method, body: node.parameters.jsonBody,
    headers: {
      'content-type': 'application/json', accept: 'application/json,text/html,*/*;q=0.8',
      ...Object.fromEntries(node.parameters.headerParameters.parameters.map(({ name, value }) => [name, value])),
      ...(isLocked && { authorization: `Bearer ${token}` }),
    },
  })
  assert.equal((await sent.json()).result.structuredContent.stdout, '42\n')
  await says(page, '#engine-text', 'ready')
  return page
}
