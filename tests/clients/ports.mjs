// A hostile page of a program's server in a real browser: by its link on the listener of ports, and at the
// daemon's own address, where a browser comes only if the daemon needs no token. It must find nothing of the
// daemon's.
//  ports.mjs LINK DAEMON PATH_BY_TOKEN token|open
import assert from 'node:assert/strict'
import { browser as launch, token } from './page-drive.mjs'
import { end } from './flow.mjs'

const [link, daemon, byToken, kind] = process.argv.slice(2)
const browser = await launch()
try {
  const context = await browser.newContext()
  // Somebody who uses the daemon's page in the same browser, and a proxy in front of it that sets a cookie.
  const owner = await context.newPage()
  await owner.goto(`${daemon}/`)
  await owner.evaluate(secret => localStorage.setItem('secret', secret), token)
  await context.addCookies([{ name: 'proxy', value: 'secret', url: daemon, httpOnly: true }])

  const page = await context.newPage()
  await page.goto(link)
  await page.waitForFunction(() => document.title === 'over')
  const found = await page.evaluate(() => globalThis.found)
  console.log(JSON.stringify(found))
  const prefix = new URL('.', link).pathname
  assert.deepEqual(found, {
    cookie: '',
    storage: '{}',
    opener: 'null',
    parent: 'true',
    'own /mcp': '404',
    'own /status': '404',
    'own /': '404',
    'daemon /mcp': 'failed: TypeError',
    'daemon simple /mcp': 'failed: TypeError',
    'daemon /status': 'failed: TypeError',
    'daemon /status with cookies': 'failed: TypeError',
    'wide worker': 'failed: SecurityError',
    worker: prefix,
    frame: 'failed: SecurityError',
    window: 'failed: SecurityError',
    websocket: 'hello',
    'own cookie': 'id=7 ',
  })

  // At the daemon's own address nothing of the page runs, if a browser is served there at all.
  const there = await context.newPage()
  const answer = await there.goto(byToken)
  assert.equal(answer.status(), kind === 'open' ? 200 : 401)
  assert.equal(answer.headers()['content-security-policy'], 'sandbox')
  assert.equal(await there.evaluate(() => globalThis.origin), 'null', 'it has no origin')
  assert.equal(await there.evaluate(() => globalThis.found), undefined, 'nothing of it ran')
  assert.notEqual(await there.title(), 'over')
} finally {
  await browser.close()
}
end()
