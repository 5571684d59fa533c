// The parts of the page around a run: where they are on a window, what a run is given beside its code, what ended it, and
// previews of files. It must never be satisfied by a place on the screen that nobody can see without scrolling.
import assert from 'node:assert/strict'
import { enter, fits, run, says, visit, write } from './page-drive.mjs'

// The layout on a desktop: the output is beside the code, a picture is first and the timing last, the editor is as tall as
// its code.
export async function layout({ browser, url }) {
  const page = await visit(browser, url, { expected: [/401/], viewport: { width: 1440, height: 900 } })
  await enter(page)
  for (let runs = 0; runs < 8; runs++) assert.match(await run(page, `print(${runs})`), /^Done/) // a list that scrolls
  await page.click('#example')
  assert.match(await run(page), /^Done/)
  const box = async selector => (await page.locator(selector).boundingBox()) ?? assert.fail(selector)
  await page.waitForFunction(() => document.querySelector('#figures img')?.naturalHeight > 0)
  for (const width of [1440, 1200, 1700]) {
    await page.setViewportSize({ width, height: 900 })
    const [editor, output, picture] = [await box('#editor'), await box('#output'), await box('#figures img')]
    assert.ok(output.x >= editor.x + editor.width, `beside the code at ${width} px`)
    assert.ok(picture.y + picture.height <= 900, `the picture is seen without scrolling at ${width} px`)
    await fits(page, `${width} px`)
    const { tall, end } = await page.evaluate(() => ({
      tall: document.documentElement.scrollHeight, end: document.querySelector('.bottom').getBoundingClientRect().bottom + scrollY,
    }))
    assert.ok(tall <= Math.max(900, end + 1), `nothing is below its end at ${width} px: ${tall}, ${end}`)
  }
  const tops = []
  for (const id of ['#figures', '#stdout-pane', '#made', '#timing']) tops.push((await box(id)).y)
  assert.deepEqual(tops, tops.toSorted((one, other) => one - other), 'the picture first, the timing last')
  assert.equal(await page.isVisible('#timing-legend'), false, 'its parts are folded')
  await page.setViewportSize({ width: 1100, height: 900 })
  assert.ok((await box('#output')).y >= (await box('#editor')).y + (await box('#editor')).height, 'below it on a smaller window')
  await write(page, 'print(1)')
  const least = (await box('#editor')).height
  await write(page, 'print(1)\n'.repeat(17))
  const more = (await box('#editor')).height
  await write(page, 'print(1)\n'.repeat(500))
  const most = (await box('#editor')).height
  assert.ok(least >= 120 && more > least + 100 && most > more && most <= 900 * 0.7, `${least} ${more} ${most}`)
  return page
}

// What a run may be given beside its code, what ended it, and the beginning of its files.
export async function given({ browser, url }) {
  const page = await visit(browser, url, { expected: [/401/] })
  await enter(page)
  await page.click('#options-summary')
  await page.fill('#stdin', 'one\ntwo')
  assert.match(await run(page, 'import sys\nprint(sys.stdin.read().split())'), /^Done/)
  assert.equal(await page.textContent('#stdout'), "['one', 'two']\n")
  await page.fill('#timeout', '1')
  assert.match(await run(page, 'import time\ntime.sleep(30)'), /^Timed out/)
  await says(page, '#options-summary', 'timeout 1 s, input of 7 B')
  await page.fill('#timeout', '')
  await page.fill('#stdin', '')

  assert.match(await run(page, 'def f(x):\n    return 1 / x\nf(0)'), /^Failed/)
  assert.equal(await page.textContent('#exception'), 'ZeroDivisionError: division by zero')
  const size = await page.evaluate(() =>
    ['exception', 'stderr'].map(id => parseFloat(getComputedStyle(document.getElementById(id)).fontSize)))
  assert.ok(size[0] > size[1], `larger than its traceback: ${size}`)
  assert.match(await run(page, 'import sys\nprint("ValueError: no", file=sys.stderr)'), /^Done/)
  assert.equal(await page.isVisible('#exception'), false, 'nothing ended it')
  const found = await page.evaluate(async () => {
    const { exceptionOf } = await import('/page/exception.js')
    const handled = 'KeyError: 1\n\nDuring handling\n\n'
    const trace = 'Traceback (most recent call last):\n  File "x"\n'
    return [
      `${trace}${handled}${trace}my.Boom: a\nb\n`,
      '  File "x", line 1\n    x x\n      ^\nSyntaxError: invalid syntax\n',
      'file:///data/x.ts:1\nthrow 1\n\nTypeError: x is not a function\n    at f (x:1)\n    at g\n\nNode.js v24\n',
      'not found\n', 'Error\n', '', 'A'.repeat(1 << 20),
    ].map(exceptionOf)
  })
  assert.deepEqual(found, ['my.Boom: a', 'SyntaxError: invalid syntax', 'TypeError: x is not a function', '', 'Error', '', ''])

  // A table with everything that CSV allows, and hostile cells; a text; a table that is larger than what is loaded.
  assert.match(await run(page, `open("/data/a.csv", "w").write(
    'a,"b ""c""\\nd"\\r\\n<img src=x onerror=globalThis.pwned=1>,\\u202e1\\n\\n2\\n')
open("/data/b.json", "w").write('{"a": "<script>globalThis.pwned=2</script>"}')
open("/data/c.csv", "w").write("n,m\\n" + "".join(f"{n},{'x' * 500}\\n" for n in range(9000)))`), /^Done/)
  const open = name => page.locator('#made-list li', { hasText: name }).getByRole('button', { name: 'Preview' }).click()
  const cells = at => page.locator(`#made-list li:nth-child(${at}) tr`)
    .evaluateAll(rows => rows.map(row => [...row.children].map(cell => cell.textContent)))
  await open('a.csv')
  await page.waitForSelector('#made-list td')
  assert.deepEqual(await cells(1), [['a', 'b "c"␊d'], ['<img src=x onerror=globalThis.pwned=1>', '‹U+202E›1'], ['2', '']])
  await open('b.json')
  await page.waitForSelector('#made-list .preview pre')
  assert.equal(await page.textContent('#made-list .preview pre'), '{"a": "<script>globalThis.pwned=2</script>"}')
  await open('c.csv')
  await page.waitForFunction(() => document.querySelectorAll('#made-list li:nth-child(3) td').length > 50)
  assert.equal((await cells(3)).length, 51)
  await says(page, '#made-list li:nth-child(3) .hint', 'The first 50 rows.')
  await page.setViewportSize({ width: 360, height: 740 })
  await fits(page, 'previews')
  await page.setViewportSize({ width: 1280, height: 900 })

  // A PDF in the browser's viewer; a page that calls itself one does not run.
  assert.match(await run(page, `from reportlab.pdfgen.canvas import Canvas
canvas = Canvas("/data/a.pdf"); canvas.drawString(99, 700, "Hello"); canvas.save()
open("/data/b.pdf", "w").write("<script>top.pwned = 3; parent.pwned = 4</script>")`), /^Done/)
  for (const name of ['a.pdf', 'b.pdf']) {
    const viewer = page.waitForEvent('framenavigated', frame => frame.url().startsWith('chrome-extension:'))
    await open(name)
    await viewer
    assert.ok(page.frames().some(frame => frame.url().includes(`/${name}?`)))
  }
  return page
}
