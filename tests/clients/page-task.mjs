// The page's tab for coding agents. The test's model says what each scenario tells it to; everything else is real. It must
// never be satisfied by the form alone: what came of a task is looked for in the files of the conversation.
import assert from 'node:assert/strict'
import { writeFileSync } from 'node:fs'
import { ask } from './flow.mjs'
import { accessible, enter, fits, listed, says, visit } from './page-drive.mjs'

const turns = list => ask(`turns ${JSON.stringify(list)}`)
const bash = (command, more = {}) => ({ tools: [{ name: 'Bash', input: { command, description: 'a step' } }], ...more })
const put = (path, content, more = {}) => ({ tools: [{ name: 'Write', input: { file_path: `/workspace/${path}`, content } }], ...more })

const status = page => page.textContent('#task-status')
const state = page => page.textContent('#task-badges .badge:first-child')

async function open(browser, url, options = {}) {
  const page = await visit(browser, url, { expected: [/401/], ...options })
  await enter(page)
  await page.waitForSelector('#tabs', { state: 'visible' })
  await page.click('#tab-task')
  return page
}

async function begin(page, words) {
  await page.fill('#task-words', words)
  await page.click('#task-start')
}

async function ended(page) {
  try {
    await page.waitForFunction(() => /^(Done|Failed|Cancelled|Out of time|Ended|Not started)/.test(document.getElementById('task-status').textContent))
  } catch (error) {
    throw new Error(`it does not end: ${await status(page)}; ${await page.textContent('#task')}`, { cause: error })
  }
  return status(page)
}

// A task, its end, the next task of the same conversation, and one that starts anew.
export async function task({ browser, url, home }) {
  const page = await open(browser, url)
  assert.equal(await page.locator('#levels input').count(), 4)
  assert.equal(await page.isChecked('#levels input[value="3"]'), true)
  await says(page, '#levels-hint', 'guard rail')
  await says(page, '#levels-hint', 'no level a network')
  await page.click('#task-start')
  await says(page, '#task-status', 'Say first')

  writeFileSync(`${home}/numbers.txt`, '1\n2\n3\n')
  const chosen = page.waitForEvent('filechooser')
  await page.click('#task-files')
  await (await chosen).setFiles(`${home}/numbers.txt`)
  await page.waitForFunction(() => document.querySelectorAll('#file-list li').length === 1)

  await turns([
    { text: 'I add them up.', ...bash('paste -sd+ numbers.txt > sum.txt') },
    bash('docker ps'),
    put('table.csv', 'n\n1\n', { hold: true }),
    { text: 'The sum is in sum.txt.' },
  ])
  await page.click('#task-options summary')
  await page.fill('#task-turns', '9')
  await page.fill('#task-budget', '0.5')
  await page.fill('#task-timeout', '2')
  await page.fill('#task-model', 'claude-sonnet-5')
  await begin(page, 'Add up numbers.txt')
  await says(page, '#task-log', 'I add them up.')
  await says(page, '#task-log', 'runs paste -sd+ numbers.txt > sum.txt')
  await says(page, '#task-log', 'denied runs docker ps')
  await says(page, '#task-doing', 'Now: runs docker ps')
  assert.equal(await state(page), 'running')
  await says(page, '#task-figures', ' s · $0.0')
  assert.equal(await page.getAttribute('#task-start', 'aria-disabled'), 'true')
  await page.focus('#task-words')
  await page.keyboard.press('Control+Enter') // there is no second task
  await ask('release 1')
  assert.match(await ended(page), /^Done, [\d.]+ m?s\.$/)
  assert.equal(await page.textContent('#task-words-back'), 'The sum is in sum.txt.')
  assert.deepEqual(await page.locator('#task-denied-list li').allTextContents(), ['Bash: runs docker ps'])
  assert.deepEqual(await page.locator('#task-made-list .name').allTextContents(), ['sum.txt', 'table.csv'])
  await says(page, '#task-figures', '$0.0400 · 4 turns · 40 tokens in, 20 out')
  await says(page, '#task-steps-count', '3 steps')
  await says(page, '#task-note', 'Reached anthropic.paddock:80 (')
  await says(page, '#history', 'Add up numbers.txt')
  await page.waitForFunction(() => document.querySelectorAll('#file-list li').length === 3)
  assert.deepEqual(await listed(page), ['numbers.txt', 'sum.txt', 'table.csv'], 'without what is the agent’s own')
  await page.click('#files-agent')
  assert.ok((await listed(page)).some(name => name.startsWith('.agent/')))
  await page.click('#files-agent')
  const sum = await page.locator('#task-made-list a.name').first().evaluate(link => link.href)
  assert.equal(await (await page.context().request.get(sum)).text(), '1+2+3\n')

  // The model is told what was said before, or not.
  await says(page, '#task-start', 'Start the next task')
  assert.equal(await page.isChecked('#task-resume input[value="on"]'), true)
  await turns([{ text: 'It goes on.' }])
  await begin(page, 'And now?')
  await says(page, '#task-words-back', 'It goes on.')
  await ended(page)
  assert.match(await ask('told'), /I add them up\.[^]*And now\?/)
  await page.check('#task-resume input[value="anew"]')
  await turns([{ text: 'Afresh.' }])
  await begin(page, 'What is here?')
  await says(page, '#task-words-back', 'Afresh.')
  await ended(page)
  assert.doesNotMatch(await ask('told'), /I add them up/)

  // A level without commands, and values that the daemon refuses.
  await page.check('#levels input[value="1"]')
  await turns([bash('touch no.txt'), { text: 'I may not.' }])
  await begin(page, 'Touch it')
  await says(page, '#task-words-back', 'I may not.')
  await ended(page)
  await says(page, '#task-denied-list', 'touch no.txt')
  assert.ok(!(await listed(page)).includes('no.txt'))
  await page.fill('#task-model', '-x')
  await begin(page, 'With a wrong model')
  await says(page, '#task-status', 'Not started: `model` is "-x"')
  assert.equal(await state(page), 'not started')
  return page
}

// Holds back the first call of this tool until the function that is returned is called.
async function holdFirst(page, tool) {
  let release
  const released = new Promise(done => { release = done })
  let count = 0
  await page.route(({ pathname }) => pathname.endsWith('/mcp'), async route => {
    if (route.request().headers()['mcp-name'] === tool && count++ === 0) await released
    await route.continue()
  })
  return release
}

// A task goes on without its page, and is found by the next one, by another conversation and back, and by its end.
export async function taskAgain({ browser, url }) {
  const page = await open(browser, url)
  // Another page has the same conversation open. 404: the daemon does not know it yet.
  const id = await page.inputValue('#conversation')
  const other = await visit(browser, `${url}#conversation=${encodeURIComponent(id)}`, { expected: [/401/, /404/] })
  await enter(other)
  await turns([{ text: 'I begin.', ...bash('echo begun > begun.txt') }, bash('sleep 3'), bash('tail -f /dev/null'), { text: 'never' }])
  await begin(page, 'A long task')
  await says(page, '#task-log', 'I begin.')
  await says(other, '#task-log', 'I begin.')
  // The tab of a task that runs is opened, even if the page hears of the task before its own question is answered.
  const release = await holdFirst(page, 'get_sandbox_status')
  await page.reload()
  await enter(page)
  await says(page, '#task-log', 'I begin.')
  await page.waitForSelector('#task', { state: 'visible' })
  release()
  assert.equal(await state(page), 'running')
  await says(page, '#task-doing', 'Now: runs tail -f /dev/null')
  await page.click('#conversation-new')
  await says(page, '#task-empty', 'appears here')
  assert.equal(await page.isVisible('#task-steps'), false)
  assert.equal(await status(page), '')
  await page.fill('#conversation', id)
  await page.press('#conversation', 'Enter')
  await says(page, '#task-log', 'runs tail -f /dev/null')
  // A second one in this conversation cannot be started, on neither page.
  await says(other, '#task-log', 'runs tail -f /dev/null')
  assert.equal(await other.getAttribute('#task-start', 'aria-disabled'), 'true')
  await other.fine()
  await page.click('#task-cancel')
  assert.match(await ended(page), /^Cancelled/)
  assert.equal(await state(page), 'cancelled')
  assert.deepEqual(await page.locator('#task-made-list .name').allTextContents(), ['begun.txt'])
  assert.match(await ended(other), /^Cancelled/)
  await page.reload()
  await enter(page)
  await page.click('#tab-task')
  await says(page, '#task-log', 'runs tail -f /dev/null')
  await says(page, '#task-problem', 'cancelled')
  return page
}

const EVIL = '<img src=x onerror=globalThis.pwned=1><script>globalThis.pwned=2</script>\u202edrow\x1b[31mred\x07\u2028'
const SHOWN = '<img src=x onerror=globalThis.pwned=1><script>globalThis.pwned=2</script>‹U+202E›drow'

const DIFF = `diff --git a/src/app.py b/src/app.py
index 1111111..2222222 100644
--- a/src/app.py
+++ b/src/app.py
@@ -1,3 +1,4 @@ def f():
 same
--- looks like a header
+++ so does this
+${EVIL}
 same
\\ No newline at end of file
diff --git "a/\\303\\251 <b>.txt" "b/\\303\\251 <b>.txt"
new file mode 100644
index 0000000..3333333
--- /dev/null
+++ "b/\\303\\251 <b>.txt"
@@ -0,0 +1 @@
+diff --git a/fake b/fake
diff --git a/gone.bin b/gone.bin
deleted file mode 100644
index 3333333..0000000
Binary files a/gone.bin and /dev/null differ
diff --git a/old b/new
similarity index 100%
rename from old
rename to new
`

// What an agent says and what its diff contains is shown as text; of a large diff a bounded part.
export async function taskHostile({ browser, url }) {
  // The stand-in for a daemon that links to a diff.
  let diff = DIFF
  const prepare = async page => {
    await page.route(({ pathname }) => pathname.endsWith('/mcp'), async route => {
      const answer = await route.fetch()
      if (route.request().postDataJSON()?.params?.name !== 'get_sandbox_status') return route.fulfill({ response: answer })
      const json = await answer.json()
      const document = json.result?.structuredContent
      if (document?.status === 'completed') {
        document.diff_url = 'http://elsewhere.example/p/logs/x/stand-in.diff?sig=1'
        document.diff_stat = { files_changed: 4, insertions: 3, deletions: 1, left_out: 0 }
        document.diff_note = '<b>1 file</b> is left out'
      }
      return route.fulfill({ response: answer, json })
    })
    await page.route(({ pathname }) => pathname.endsWith('.diff'), route =>
      route.fulfill({ body: diff, contentType: 'text/plain; charset=utf-8' }))
  }
  const page = await open(browser, url, { prepare })
  await turns([
    { text: EVIL, ...bash(`echo '${EVIL.replaceAll('\x1b', '').replaceAll('\x07', '')}'`) },
    put('<img src=x onerror=globalThis.pwned=3>.html', '<script>top.pwned=4</script>'),
    { text: `${EVIL}\nend` },
  ])
  await begin(page, EVIL)
  await ended(page)
  await says(page, '#task-log', SHOWN)
  await says(page, '#task-words-back', SHOWN)
  await says(page, '#task-made-list', '<img src=x onerror=globalThis.pwned=3>.html')
  await says(page, '#task-diff-note', '<b>1 file</b> is left out. Download the diff')
  const files = page.locator('#task-diff-files .change')
  assert.deepEqual(await files.evaluateAll(all => all.map(one => [
    one.querySelector('.name').textContent, one.querySelector('.meta')?.textContent ?? '', one.querySelectorAll('pre .plus').length,
    one.querySelectorAll('pre .minus').length,
  ])), [['src/app.py', '', 2, 1], ['é <b>.txt', 'new', 1, 0], ['gone.bin', 'deleted binary', 0, 0], ['new', 'renamed from old', 0, 0]])
  const text = await files.first().locator('pre').textContent()
  assert.ok(text.includes(`+${SHOWN}␛[31mred␇‹U+2028›\n`) && text.includes('\n--- looks like a header\n+++ so does this\n'), text)
  assert.match(await page.textContent('#task-diff-stat'), /^4 files \+3.*−1/)
  const foreign = await page.evaluate(() => [...document.querySelectorAll('main script, main b, main iframe, main [onerror], #task img')].map(one => one.outerHTML))
  assert.deepEqual(foreign, [])
  const link = await page.locator('#task-diff-note a').evaluate(link => link.href)
  assert.equal(new URL(link).origin, new URL(url).origin)

  // 5 MB in one file, then in very many, then one line of it.
  const head = name => `diff --git a/${name} b/${name}\n--- a/${name}\n+++ b/${name}\n`
  const many = n => `${head(`f${n}`)}@@ -0,0 +1,10 @@\n${'+a line\n'.repeat(10)}`
  for (const [large, check] of [
    [`${head('big')}@@ -0,0 +1,50000 @@\n${`+${'x'.repeat(99)}\n`.repeat(50_000)}`, async () => {
      await page.click('#task-diff-files summary')
      await says(page, '#task-diff-files', 'lines more.')
      assert.equal(await page.locator('#task-diff-files pre span').count(), 1500)
    }],
    [Array.from({ length: 40_000 }, (_, n) => many(n)).join(''), async () => {
      assert.equal(await files.count(), 300)
      assert.ok(await page.locator('#task-diff-files pre').count() <= 30)
    }],
    [`${head('long')}@@ -0,0 +1 @@\n+${'y'.repeat(5 << 20)}\n`, async () => {
      assert.ok((await page.textContent('#task-diff-files')).length < 10_000)
    }],
  ]) {
    diff = large
    await turns([{ text: 'done' }])
    await begin(page, 'Again')
    await says(page, '#task-words-back', 'done')
    await ended(page)
    await says(page, '#task-diff-note', 'larger than 1.0 MiB')
    await says(page, '#task-diff-note', 'Download the whole')
    await check()
    await page.setViewportSize({ width: 360, height: 740 })
    await fits(page, 'a diff')
    await page.setViewportSize({ width: 1280, height: 900 })
  }
  return page
}

// In light and dark, on a desktop and a phone, before a task, while it runs and after it; and by keyboard.
export async function taskDesk({ browser, url }) {
  const small = { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true }
  let page
  for (const options of [{ colorScheme: 'light' }, { colorScheme: 'dark' }, { colorScheme: 'light', ...small }]) {
    const check = async what => {
      await accessible(page, `${what}: ${JSON.stringify(options)}`)
      await fits(page, what)
    }
    await page?.context().close()
    page = await open(browser, url, options)
    await page.click('#task-options summary')
    await check('before a task')
    await turns([{ text: 'I look.', ...bash('ls; docker ps') }, { ...bash('echo a > a.csv'), hold: true }, { text: 'Done with it.' }])
    await begin(page, 'Look')
    await says(page, '#task-log', 'denied')
    await check('while it runs')
    await ask('release 1')
    await ended(page)
    await page.click('#task-steps summary')
    await check('after a task')
    await page.fine()
  }
  await page.focus('#tab-task')
  await page.keyboard.press('ArrowLeft')
  assert.equal(await page.evaluate(() => document.activeElement.id), 'tab-code')
  assert.equal(await page.isVisible('#editor'), true)
  await page.keyboard.press('End')
  await turns([{ text: 'By key.' }])
  await page.focus('#task-words')
  await page.keyboard.type('x')
  await page.keyboard.press('Control+Enter')
  await says(page, '#task-words-back', 'By key.')
  await ended(page)
  return page
}

// An agent that has no model: the tab says what is missing, and has no form.
export async function taskNone({ browser, url }) {
  const page = await open(browser, url)
  await says(page, '#task-none', 'claude-code has no model here: its operator sets ANTHROPIC_API_KEY')
  assert.equal(await page.isVisible('#task-form'), false)
  await accessible(page, 'without a model')
  return page
}
