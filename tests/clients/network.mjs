// The network as S2's and S4's documents have it, by bare calls with the headers of n8n's HTTP Request node. A proxy of the
// test's own answers for every name. It must never reach another machine.
import assert from 'node:assert/strict'
import { authorization, end, mcp } from './flow.mjs'

const headers = {
  accept: 'application/json,text/html,application/xhtml+xml,application/xml,text/*;q=0.9, image/*;q=0.8, */*;q=0.7',
  'content-type': 'application/json', 'user-agent': 'n8n', authorization,
}

async function call(name, args) {
  const body = JSON.stringify({ jsonrpc: '2.0', id: 1, method: 'tools/call', params: { name, arguments: args } })
  const answer = await fetch(mcp, { method: 'POST', headers, body })
  assert.match(answer.headers.get('content-type'), /^application\/json/)
  return (await answer.json()).result.structuredContent
}

const python = `import os, urllib.request
for url in os.environ["URLS"].split():
    try: print(url, urllib.request.urlopen(url, timeout=20).status)
    except OSError as error: print(url, error)
`
const typescript = `for (const url of process.env.URLS!.split(' '))
  await fetch(url).then(answer => console.log(url, answer.status), error => console.log(url, String(error)))
`
const URLS = 'http://pypi.org/simple/ http://api.example.com/ http://10.0.0.1/ http://172.16.0.1/ http://192.168.1.1/ ' +
  'http://169.254.169.254/latest/'

for (const [language, code] of Object.entries({ python, typescript })) {
  // S2: `network` is false unless it is asked for.
  const args = { conversationId: 'user-123-session-456', language, code, environment: { URLS } }
  for (const network of [undefined, false]) {
    const ran = await call('run_code', { ...args, network })
    assert.equal(ran.network, undefined)
    assert.ok(ran.stdout.trim().split('\n').every(line => /rror/.test(line)), ran.stdout)
  }
  // S4, level 3: outbound HTTP is allowed, private ranges are blocked, each with its reason.
  const ran = await call('run_code', { ...args, network: true })
  const lines = ran.stdout.trim().split('\n')
  assert.deepEqual(lines.slice(0, 2).map(line => line.split(' ')[1]), ['200', '200'], ran.stdout)
  assert.ok(lines.slice(2).every(line => /rror|403/.test(line)), ran.stdout)
  const told = Object.fromEntries(ran.network.map(({ host, ...entry }) => [host, entry]))
  for (const host of ['pypi.org', 'api.example.com']) assert.equal(told[host].allowed, true, host)
  for (const host of ['10.0.0.1', '172.16.0.1', '192.168.1.1']) {
    assert.equal(told[host].allowed, false, host)
    assert.match(told[host].reason, /private address/, host)
  }
  assert.match(told['169.254.169.254'].reason, /link-local/)
}
end()
