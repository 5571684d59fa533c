// The page against hostile code: names of files and output that try to be markup or script, or are too large.
// It must never be satisfied because nothing ran: the displayed text must be right, and every link must work.
import assert from 'node:assert/strict'
import { enter, ended, fits, listed, run, says, visit, write } from './page-drive.mjs'

// The displayed form of a name, if it differs from the name.
const NAMES = new Map([
  ['<img src=x onerror=globalThis.pwned=1>.png', null],
  ['"><script>globalThis.pwned=2<\\script>.svg', null],
  ["' onmouseover='globalThis.pwned=3.html", null],
  ['javascript:globalThis.pwned=4', null],
  ['data:text;html,<b>x', null],
  ['line\nbreak\ttab.txt', 'line␊break␉tab.txt'],
  ['\u202egnp.exe', '‹U+202E›gnp.exe'],
  ['zero\u200bwidth\u2028.txt', 'zero‹U+200B›width‹U+2028›.txt'],
  ['\x1b[31mred\x07.txt', '␛[31mred␇.txt'],
  ['a b+c%41&d=e#f?g.txt', null],
  ['%2e%2e%2f..\\..\\etc', null],
  [`${'w'.repeat(196)}.txt`, null],
  ['مرحبا.txt', null],
  ['constructor', null],
])

export async function names({ browser, url }) {
  // 404: the page asks for a conversation by its name, and is told that there is none.
  const page = await visit(browser, url, { expected: [/401/, /404 .*%3Cb%3E/] })
  await enter(page)
  await page.fill('#conversation', '<b>"\u202e/../x')
  await page.press('#conversation', 'Enter')
  const code = `import json
for name in json.loads(${JSON.stringify(JSON.stringify([...NAMES.keys()]))}):
    open("/data/" + name, "w").write('<svg xmlns="http://www.w3.org/2000/svg" onload="top.pwned=5"><script>top.pwned=6</script></svg>' + name)
`
  assert.match(await run(page, code), /^Done/)
  await page.waitForFunction(count => document.querySelectorAll('#file-list li').length === count, NAMES.size)
  const shown = [...NAMES].map(([name, as]) => as ?? name)
  assert.deepEqual((await listed(page)).toSorted(), shown.toSorted())
  assert.deepEqual((await page.locator('#figures .name, #made .name').allTextContents()).toSorted(), shown.toSorted())
  await says(page, '#recent', '<b>"‹U+202E›/../x')
  const foreign = await page.evaluate(() => [...document.querySelectorAll('main, aside')].flatMap(part =>
    [...part.querySelectorAll('script, iframe, object, embed, b, [onerror], [onload], [onmouseover], [style*="url"]')].map(one => one.outerHTML)))
  assert.deepEqual(foreign, [])
  await page.setViewportSize({ width: 360, height: 740 })
  await fits(page, 'long names')
  await page.setViewportSize({ width: 1280, height: 900 })

  // Every link downloads its own file, and every button deletes its own.
  for (const [name, as] of NAMES) {
    const row = page.locator('#file-list li', { has: page.locator('.name', { hasText: as ?? name }) })
    const link = await row.locator('a.name').evaluate(link => link.href)
    const got = await page.context().request.get(link)
    assert.equal(got.status(), 200, link)
    assert.ok((await got.text()).endsWith(`</svg>${name}`), link)
  }
  for (let left = NAMES.size; left > 0; left--) {
    const remove = page.locator('#file-list li').nth(0).getByRole('button', { name: /elete/ })
    await remove.click()
    await remove.click()
    await page.waitForFunction(count => document.querySelectorAll('#file-list li').length === count, left - 1)
  }
  assert.equal(await page.textContent('#files-problem'), '')
  return page
}

export async function output({ browser, url }) {
  const page = await visit(browser, url, { expected: [/401/] })
  await enter(page)
  const hostile = '<script>globalThis.pwned=1</script><img src=x onerror=globalThis.pwned=2>\u2028\u202edrow\x1b]0;title\x07\x1b[31mred\x1b[0m\0end'
  assert.match(await run(page, `import sys
print(${JSON.stringify(hostile)})
print(${JSON.stringify(hostile)}, file=sys.stderr)
sys.stdout.buffer.write(b"\\xff\\xfe")`), /^Done/)
  const shown = '<script>globalThis.pwned=1</script><img src=x onerror=globalThis.pwned=2>‹U+2028›‹U+202E›drow␛]0;title␇red␀end'
  assert.equal(await page.textContent('#stdout'), `${shown}\n\ufffd\ufffd`)
  assert.equal(await page.textContent('#stderr'), `${shown}\n`)
  assert.equal(await page.locator('#stdout *, #stderr *').count(), 0)
  await says(page, '#output-note', 'not UTF-8')

  // 10 MB: the page keeps a limited part, stays responsive, and links to all of it.
  assert.match(await run(page, 'for n in range(100_000): print(f"{n:099}")'), /^Done/)
  const held = () => page.evaluate(() => document.getElementById('stdout').textContent.length)
  assert.ok(await held() <= 256 * 1024 && await held() > 250_000, String(await held()))
  const log = await page.locator('#output-note a').evaluate(link => link.href)
  assert.equal((await (await page.context().request.get(log)).body()).length, 10_000_000)

  // A line without an end, until somebody has seen enough.
  await write(page, 'import sys\nwhile True: sys.stdout.write("y" * 997)')
  await page.click('#run')
  await page.waitForFunction(() => document.getElementById('stdout').textContent.length > 60_000)
  assert.ok(await held() <= 64 * 1024, String(await held()))
  await page.click('#cancel')
  await ended(page)
  await page.setViewportSize({ width: 360, height: 740 })
  await fits(page, 'one long line')
  return page
}
