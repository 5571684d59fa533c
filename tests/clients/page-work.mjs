// The page in use: runs, live output, images, uploads, cancelling, the token. It must never ask the daemon
// instead of the page: something that the page does not show does not exist.
import assert from 'node:assert/strict'
import { mkdirSync, writeFileSync } from 'node:fs'
import { request as forward, createServer } from 'node:http'
import { restart } from './flow.mjs'
import { ended, enter, fits, listed, run, says, token, visit, write } from './page-drive.mjs'

// The first visit, to a daemon without a token: a program, a button, and the pool beside it.
export async function first({ browser, url }) {
  const page = await visit(browser, url)
  await page.waitForSelector('#language option[value="python"]', { state: 'attached' })
  assert.equal(await page.isVisible('#access'), false)
  assert.equal(await page.inputValue('#language'), 'python', 'the first language with an example')
  assert.match(await page.inputValue('#conversation'), /^page-[a-z0-9]{10}$/)
  assert.match(await page.textContent('#editor .cm-content'), /savefig/)
  assert.equal(await page.isVisible('#access-toggle'), false, 'no button for a token that nobody needs')
  await says(page, '#pool', 'python')
  await says(page, '#engine-text', 'ready')
  const languages = await page.locator('#language option').allTextContents()
  assert.deepEqual(languages, ['python', 'sh', 'typescript'])
  for (const language of ['sh', 'typescript']) {
    await page.selectOption('#language', language)
    assert.match(await run(page), /^Done: exit code 0, /, language)
  }
  assert.match(await page.textContent('#stdout'), /^hay +54\.00\n/)
  await page.waitForFunction(() => document.querySelectorAll('#file-list li').length === 2)
  assert.deepEqual((await listed(page)).toSorted(), ['orders.json', 'when.txt'])
  // The example of Python brings the file that it reads, and replaces nobody's.
  await page.selectOption('#language', 'python')
  assert.match(await run(page), /^Done: exit code 0, /)
  assert.match(await page.textContent('#stdout'), /^36 rows, revenue [\d,]+\n/)
  assert.equal(await page.locator('#figures img').count(), 1)
  await page.waitForFunction(() => document.querySelectorAll('#file-list li').length === 5)
  assert.deepEqual((await listed(page)).toSorted(), ['orders.json', 'regions.csv', 'sales.csv', 'sales.png', 'when.txt'])
  await write(page, 'open("/data/sales.csv", "w").write("month,region,units,revenue\\n2026-01-01,East,1,2\\n")')
  assert.match(await run(page), /^Done/)
  await page.reload()
  await page.waitForFunction(() => document.querySelectorAll('#history li').length === 4)
  assert.equal(await page.locator('#file-list li').count(), 5, 'the conversation is in the address')
  assert.match(await page.textContent('#history li:nth-child(1)'), /open\("\/data\/sales\.csv"/, 'the first line of its code')
  assert.match(await page.textContent('#recent'), /A year of sales.*What a stable orders.*Both streams/s)
  assert.match(await run(page), /^Done: exit code 0, /)
  assert.match(await page.textContent('#stdout'), /^1 rows, revenue 2\n/)
  return page
}

export async function runs({ browser, url }) {
  const page = await visit(browser, url, { expected: [/401/] })
  await enter(page)
  const steps = 'import time\nfor step in range(1, 6):\n    print(f"step {step}", flush=True)\n    time.sleep(0.15)\n'
  assert.match(await run(page, steps), /^Done: exit code 0, /)
  assert.match(await page.textContent('#stdout'), /^step 1\n(.*\n){3}step 5\n$/)
  assert.equal(await page.isVisible('#stderr-pane'), false)
  await says(page, '#badges', 'exit code 0')
  const words = await page.textContent('#timing')
  for (const part of ['program', 'paddock', 'network', 'queue', 'files in', 'files out']) assert.ok(words.includes(part), words)
  const [, total, program] = words.match(/^\s*([\d.]+ m?s) · program ([\d.]+ m?s) ·/) ?? assert.fail(words)
  const ms = time => parseFloat(time) * (time.endsWith('ms') ? 1 : 1000)
  const parts = (await page.locator('#timing-legend li').allTextContents()).map(part => ms(part.match(/[\d.]+ m?s$/)?.[0] ?? ''))
  assert.ok(Math.abs(parts.reduce((sum, part) => sum + part, 0) - ms(total)) < 20 + ms(total) / 50, `${parts} are not ${total}`)
  assert.ok(ms(program) > 700 && ms(total) >= ms(program) && ms(total) < 30_000, words)

  assert.match(await run(page, 'import sys\nprint("to err", file=sys.stderr)\nsys.exit(3)'), /^Failed: exit code 3, /)
  await says(page, '#stderr', 'to err')
  await says(page, '#badges', 'exit code 3')
  assert.equal(await page.isVisible('#stdout-pane'), false)

  // The history contains both runs, with the daemon's details; the runs of this page can be displayed and
  // loaded again.
  await page.waitForFunction(() => document.querySelectorAll('#history li').length === 2)
  assert.match(await page.textContent('#history li:nth-child(1)'), /import sys.*exit 3/)
  await page.click('#history li:nth-child(2) button.link')
  assert.match(await page.textContent('#stdout'), /step 5/)
  await page.click('#history li:nth-child(2) button.small')
  assert.match(await page.textContent('#editor .cm-content'), /time\.sleep\(0\.15\)/)
  await says(page, '#recent', 'exit 3')
  await page.click('#conversation-new')
  await says(page, '#history-empty', 'No run yet.')
  assert.deepEqual(await listed(page), [])
  await page.click('#recent li:nth-child(1) button')
  await page.waitForFunction(() => document.querySelectorAll('#history li').length === 2)

  assert.match(await run(page, ' \n'), /no code/)
  return page
}

// A run has a network only if its box is checked; what it reached and what was blocked is displayed.
export async function network({ browser, url }) {
  const page = await visit(browser, url, { expected: [/401/] })
  await enter(page)
  const code = `import urllib.request
for url in ("http://api.example/", "http://10.0.0.1/"):
    try: print(urllib.request.urlopen(url, timeout=20).read().decode())
    except OSError as error: print(error)`
  assert.match(await run(page, code), /^Done: exit code 0, /)
  assert.doesNotMatch(await page.textContent('#stdout'), /through/)
  assert.equal(await page.isVisible('#problem'), false)
  await page.check('#network')
  assert.match(await run(page, code), /^Done: exit code 0, /)
  assert.match(await page.textContent('#stdout'), /^through\n/)
  await says(page, '#problem', '10.0.0.1:80 was blocked: a private address')
  assert.doesNotMatch(await page.textContent('#problem'), /api\.example/)
  await says(page, '#output-note', 'Reached api.example:80 (')
  return page
}

// Output is displayed while the program runs, each stream in its place.
export async function live({ browser, url }) {
  const page = await visit(browser, url, { expected: [/401/] })
  await enter(page)
  await write(page, `import sys, time
print("one", flush=True)
print("two", file=sys.stderr, flush=True)
time.sleep(1000)`)
  await page.click('#run')
  await says(page, '#stdout', 'one')
  await says(page, '#stderr', 'two')
  await says(page, '#badges', 'running')
  assert.equal(await page.textContent('#stdout'), 'one\n')
  assert.equal(await page.textContent('#stderr'), 'two\n')
  assert.equal(await page.getAttribute('#run', 'aria-disabled'), 'true')
  await says(page, '#history', 'import sys, time')
  await page.click('#cancel')
  assert.match(await ended(page), /^Cancelled/)
  assert.equal(await page.textContent('#stdout'), 'one\n', 'what had come stays')
  // A line that is written over shows its latest text, as on a terminal.
  assert.match(await run(page, 'for n in range(3): print(f"\\r{n} of 2", end="", flush=True)'), /^Done/)
  assert.equal(await page.textContent('#stdout'), '2 of 2')
  return page
}

// An image is displayed; all links begin with the page's own address, whatever the public URL and the path
// behind a proxy.
export async function plot({ browser, url }) {
  const proxy = createServer((asked, answer) => {
    const to = asked.url.replace(/^\/tools\/paddock/, '')
    if (to === asked.url) return answer.writeHead(404).end()
    const passed = forward(new URL(to, url), { method: asked.method, headers: asked.headers }, got => {
      answer.writeHead(got.statusCode, got.headers)
      got.pipe(answer)
    })
    asked.pipe(passed)
  })
  await new Promise(done => proxy.listen(0, '127.0.0.1', done))
  const below = `http://127.0.0.1:${proxy.address().port}/tools/paddock/`
  let page
  for (const at of [url, below]) {
    page = await visit(browser, at, { expected: [/401/] })
    await enter(page)
    for (const colour of ['red', 'blue']) {
      assert.match(await run(page, `from PIL import Image
Image.new("RGB", (40, 30), "${colour}").save("/data/one.png")
open("/data/two.svg", "w").write('<svg xmlns="http://www.w3.org/2000/svg" width="20" height="20"><rect width="9" height="9"/></svg>')
open("/data/table.csv", "w").write("a,b\\n1,2\\n")`), /^Done/)
      await page.waitForFunction(() => {
        const all = [...document.querySelectorAll('#figures img')]
        return all.length === 2 && all.every(image => image.complete && image.naturalWidth > 0)
      })
      const pixel = await page.evaluate(() => {
        const canvas = Object.assign(document.createElement('canvas'), { width: 1, height: 1 }).getContext('2d')
        canvas.drawImage(document.querySelector('#figures img'), 0, 0)
        return [...canvas.getImageData(0, 0, 1, 1).data]
      })
      assert.deepEqual(pixel, { red: [255, 0, 0, 255], blue: [0, 0, 255, 255] }[colour], 'not one of before')
    }
    assert.equal(await page.getAttribute('#figures img >> nth=0', 'alt'), 'Preview of one.png')
    await says(page, '#made-list', '8 B · text/csv')
    await page.waitForFunction(() => document.querySelectorAll('#file-list li').length === 3)
    const [download] = await Promise.all([page.waitForEvent('download'), page.click('#made-list a[download]')])
    assert.equal(download.suggestedFilename(), 'table.csv')
    const hrefs = await page.locator('main a').evaluateAll(links => links.map(link => link.href))
    assert.ok(hrefs.length >= 9 && hrefs.every(href => href.startsWith(`${new URL('files/', at)}`)), hrefs.join('\n'))
    await page.fine()
  }
  return page
}

export async function upload({ browser, url, home }) {
  const page = await visit(browser, url, { expected: [/401/, /412/, /413/] })
  const chosen = page.waitForEvent('filechooser') // asked for early: it takes the browser a while to do as it is told
  await enter(page)
  mkdirSync(`${home}/folder/inner`, { recursive: true })
  writeFileSync(`${home}/dropped.csv`, 'a,b\n1,2\n')
  writeFileSync(`${home}/folder/inner/deep.txt`, 'deep')
  writeFileSync(`${home}/chosen ü#?%.bin`, Buffer.alloc(3 << 20, 'x'))

  // A drop as a browser receives it from the desktop: a file and a folder.
  const devtools = await page.context().newCDPSession(page)
  const data = { items: [], files: [`${home}/dropped.csv`, `${home}/folder`], dragOperationsMask: 1 }
  for (const type of ['dragEnter', 'dragOver']) {
    await devtools.send('Input.dispatchDragEvent', { type, x: 300, y: 300, data })
  }
  assert.equal(await page.isVisible('#drop'), true)
  await devtools.send('Input.dispatchDragEvent', { type: 'drop', x: 300, y: 300, data })
  await page.waitForFunction(() => document.querySelectorAll('#file-list li').length === 2)
  assert.equal(await page.isVisible('#drop'), false)
  assert.deepEqual(await listed(page), ['dropped.csv', 'folder/inner/deep.txt'])

  // The button, by keyboard.
  await page.focus('#add-files')
  await page.keyboard.press('Enter')
  const chooser = await chosen
  await chooser.setFiles(`${home}/chosen ü#?%.bin`)
  await page.waitForFunction(() => document.querySelectorAll('#file-list li').length === 3)
  assert.match(await run(page, `import os
print(sorted((f, os.path.getsize(os.path.join(d, f))) for d, _, fs in os.walk("/data") for f in fs))
print(open("/data/dropped.csv").read())`), /^Done/)
  assert.equal(await page.textContent('#stdout'),
    "[('chosen ü#?%.bin', 3145728), ('deep.txt', 4), ('dropped.csv', 8)]\na,b\n1,2\n\n")

  // An existing file is not replaced without confirmation.
  writeFileSync(`${home}/dropped.csv`, 'new')
  await page.setInputFiles('#file-input', `${home}/dropped.csv`)
  await says(page, '#uploads', 'already exists')
  await page.click('#uploads button:has-text("Replace")')
  await says(page, '#file-list', '3 B')
  assert.equal(await page.locator('#uploads li').count(), 0)

  // A file that is too large is reported.
  await page.setInputFiles('#file-input', { name: 'large.bin', mimeType: '', buffer: Buffer.alloc(5 << 20) })
  await page.waitForSelector('#uploads .bad')
  await page.click('#uploads button:has-text("Dismiss")')

  // Deleting a file needs confirmation.
  const remove = page.locator('#file-list li', { hasText: 'deep.txt' }).getByRole('button', { name: /elete/ })
  await remove.click()
  assert.equal(await remove.textContent(), 'Really?')
  await page.focus('#run')
  assert.equal(await remove.textContent(), 'Delete')
  await remove.click()
  await remove.click()
  await page.waitForFunction(() => document.querySelectorAll('#file-list li').length === 2)

  // The focus stays on a file's link while the files around it change.
  const held = page.locator('#file-list li', { hasText: 'dropped.csv' }).locator('a[download]')
  await held.focus()
  await page.keyboard.press('Control+Enter')
  await ended(page)
  await page.setInputFiles('#file-input', [`${home}/folder/inner/deep.txt`])
  await page.waitForFunction(() => document.querySelectorAll('#file-list li').length === 3)
  assert.equal(await held.evaluate(link => document.activeElement === link), true)
  return page
}

// The program and its processes are gone; its files are kept.
export async function cancel({ browser, url }) {
  const page = await visit(browser, url, { expected: [/401/] })
  await enter(page)
  await write(page, `import subprocess, time
subprocess.Popen(["sleep", "98765"], start_new_session=True)
open("/data/kept.txt", "w").write("kept")
print("made", flush=True)
time.sleep(98765)`)
  await page.click('#run')
  await says(page, '#stdout', 'made')
  await page.focus('#cancel')
  await page.keyboard.press('Enter')
  assert.match(await ended(page), /^Cancelled/)
  await says(page, '#badges', 'cancelled')
  await says(page, '#file-list', 'kept.txt')
  await page.waitForSelector('#history .mark.cancelled')
  assert.match(await run(page, `import glob
alive = [open(p, "rb").read() for p in glob.glob("/proc/[0-9]*/cmdline")]
print(sum(b"987" + b"65" in line for line in alive), open("/data/kept.txt").read())`), /^Done/)
  assert.equal(await page.textContent('#stdout'), '0 kept\n')
  assert.equal(await page.locator('#history li').count(), 2)
  return page
}

// Every container in the count is drawn, also when there are many of them beside a lot of text.
export async function pool({ browser, url }) {
  let now = {}
  const prepare = page => page.route(({ pathname }) => pathname.endsWith('/status'), async route => {
    const answer = await route.fetch()
    if (!answer.ok()) return route.fulfill({ response: answer })
    const json = await answer.json()
    for (const one of json.pool ?? []) Object.assign(one, one.language === 'python' ? now : {})
    return route.fulfill({ response: answer, json })
  })
  const page = await visit(browser, url, { expected: [/401/], prepare })
  await enter(page)
  const line = page.locator('#pool li', { hasText: 'python' })
  for (const width of [1280, 390]) {
    await page.setViewportSize({ width, height: 900 })
    for (const [idle, leased, starting] of [[0, 10, 0], [2, 10, 3], [1, 1, 1], [0, 64, 0]]) {
      now = { idle, leased, starting, waiting: leased > 9 ? 12 : 0 }
      await says(page, '#pool', `${leased} in use`)
      const drawn = idle + leased + starting
      await page.waitForFunction(drawn => [...document.querySelectorAll('#pool li')].some(
        one => one.textContent.includes('python') && one.querySelectorAll('.dot').length === drawn), drawn)
      await line.scrollIntoViewIfNeeded()
      const seen = await line.locator('.dot').evaluateAll(dots => dots.filter(dot => {
        const { left, top, width, height } = dot.getBoundingClientRect()
        const at = document.elementFromPoint(left + width / 2, top + height / 2)
        return width > 0 && at === dot
      }).length)
      assert.equal(seen, drawn, `${width} px: ${JSON.stringify(now)}`)
      await fits(page, `${width} px: ${JSON.stringify(now)}`)
    }
  }
  return page
}

// A run is reported only in its conversation; and sizes are shown in readable units.
export async function elsewhere({ browser, url }) {
  const page = await visit(browser, url, { expected: [/401/] })
  await enter(page)
  assert.match(await run(page, 'print(1)'), /^Done/)
  await page.click('#conversation-new')
  await says(page, '#output-empty', 'appears here')
  assert.equal(await page.textContent('#status'), '', 'the other conversation says nothing of this one')
  // A run that ends while another conversation is open.
  await write(page, 'import time\nprint("begun", flush=True)\ntime.sleep(6)')
  await page.click('#run')
  await says(page, '#stdout', 'begun')
  await page.click('#conversation-new')
  await says(page, '#status', 'A run of another conversation is in progress.')
  assert.equal(await ended(page), '')
  // A limit in bytes.
  assert.doesNotMatch(await run(page, '#'.repeat(10_001)), /\b\d{5,} bytes/)
  await says(page, '#problem', 'iB')
  assert.doesNotMatch(await page.textContent('#problem'), /\b\d{5,} bytes/)
  const words = await page.evaluate(async () => {
    const { sized } = await import('/page/text.js')
    return [sized('memory: 536870912 bytes'), sized('it has 700 bytes'), sized('`a` has 100001 bytes, the limit is 9')]
  })
  assert.deepEqual(words, [
    'memory: 536,870,912 bytes (512 MiB)', 'it has 700 bytes', '`a` has 100,001 bytes (98 KiB), the limit is 9',
  ])
  return page
}

// The daemon disappears during a run, and returns: the page says so, and continues.
export async function gone({ browser, url }) {
  const page = await visit(browser, url, { expected: [/401/, /ERR_/] })
  await enter(page)
  assert.match(await run(page, 'open("/data/kept.txt", "w").write("kept")'), /^Done/)
  await write(page, 'import time\nprint("begun", flush=True)\ntime.sleep(1000)')
  await page.click('#run')
  await says(page, '#stdout', 'begun')
  await restart()
  assert.match(await ended(page), /^No answer: the connection ended/)
  await says(page, '#problem', 'the connection ended before the answer came')
  assert.equal(await page.textContent('#stdout'), 'begun\n')
  await says(page, '#engine-text', 'ready')
  assert.match(await run(page, 'print(open("/data/kept.txt").read())'), /^Done/)
  assert.equal(await page.textContent('#stdout'), 'kept\n')
  await says(page, '#problem', 'an earlier run')
  return page
}

export async function access({ browser, url }) {
  const page = await visit(browser, url, { expected: [/401/] })
  await page.waitForSelector('#access')
  await says(page, '#access-problem', 'needs a token')
  const focused = () => page.evaluate(() => document.activeElement.id)
  assert.equal(await focused(), 'token')
  for (const wrong of ['not-the-token', 'nicht der Schlüssel']) {
    await page.fill('#token', wrong)
    await page.click('#access button')
    await page.waitForFunction(() => document.getElementById('access-problem').textContent.match(/does not accept|ASCII/))
    assert.equal(await focused(), 'token')
    assert.equal(await page.getAttribute('#token', 'aria-invalid'), 'true')
  }
  // A user who presses Run anyway is told again.
  await page.click('#run')
  await says(page, '#status', 'needs a token first')
  await page.waitForFunction(() => document.activeElement.id === 'token')

  const kept = () => page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }) + document.cookie + location.href)
  await write(page, 'print("written before")')
  await enter(page)
  assert.equal(await page.isVisible('#access'), false)
  assert.match(await run(page), /^Done/)
  assert.equal(await page.textContent('#stdout'), 'written before\n', 'what was written stays')
  assert.ok(!(await kept()).includes(token), 'in memory only')
  await page.reload()
  await says(page, '#access-problem', 'needs a token')
  await page.check('#remember')
  await enter(page)
  assert.ok((await kept()).includes(token))
  await page.reload()
  await page.waitForSelector('#language option[value="python"]', { state: 'attached' })
  assert.equal(await page.isVisible('#access'), false)
  await page.click('#access-toggle')
  await page.uncheck('#remember')
  assert.ok(!(await kept()).includes(token), 'forgotten')
  await page.reload()
  await says(page, '#access-problem', 'needs a token')
  return page
}
