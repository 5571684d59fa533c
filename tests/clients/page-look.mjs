// The page for everybody: by keyboard alone, on a phone, in light and dark, through assistive technology; and
// its pictures for README. It must never approve a window that it has not examined in each state.
import assert from 'node:assert/strict'
import { execFileSync } from 'node:child_process'
import { writeFileSync } from 'node:fs'
import { accessible, browser as launch, ended, enter, fits, run, says, token, visit, write } from './page-drive.mjs'

const FAILS = 'import sys\nprint("first")\nopen("/data/a.txt", "w").write("a")\nprint("then", file=sys.stderr)\nraise ValueError("too much")'
const WINDOWS = [
  { colorScheme: 'light' },
  { colorScheme: 'dark' },
  { colorScheme: 'light', viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true },
  { colorScheme: 'dark', viewport: { width: 360, height: 740 }, isMobile: true, hasTouch: true },
]

// In each of its states, on a desktop and on a phone.
export const desk = given => accessibly(given, WINDOWS.slice(0, 2))
export const phone = given => accessibly(given, WINDOWS.slice(2))

async function accessibly({ browser, url }, windows) {
  let page
  for (const options of windows) {
    const check = async what => {
      await accessible(page, `${what}: ${JSON.stringify(options)}`)
      await fits(page, what)
    }
    page = await visit(browser, url, { expected: [/401/], ...options })
    await says(page, '#access-problem', 'needs a token')
    await check('a token is wanted')
    await page.fill('#token', 'wrong')
    await page.press('#token', 'Enter')
    await says(page, '#access-problem', 'does not accept')
    await check('a wrong token')
    await enter(page)
    await says(page, '#pool', 'python')
    await check('before a run')
    await write(page, 'import time\nprint("x", flush=True)\ntime.sleep(1000)')
    await page.click('#run')
    await says(page, '#stdout', 'x')
    await check('while it runs')
    await page.click('#cancel')
    await ended(page)
    await page.waitForSelector('#history .mark.cancelled')
    await check('cancelled')
    await page.click('#example')
    await run(page)
    await page.waitForSelector('#file-list li')
    await page.click('#libraries summary')
    await page.click('#timing-summary')
    await page.click('#options-summary')
    await page.click('#made-list button:has-text("Preview")')
    await page.waitForSelector('#made-list td')
    await page.click('#connect-toggle')
    await check('after a run')
    await page.click('#connect-toggle')
    await run(page, FAILS)
    await says(page, '#stderr', 'then')
    await says(page, '#exception', 'ValueError: too much')
    await page.waitForFunction(() => document.querySelectorAll('#file-list li').length === 4)
    await page.click('#file-list li:nth-child(1) button.quiet')
    await check('after a failure')
    await page.fine()
    if (options !== windows.at(-1)) await page.context().close()
  }
  return page
}

export async function keyboard({ browser, url }) {
  const page = await visit(browser, url, { expected: [/401/] })
  await says(page, '#access-problem', 'needs a token')
  await page.keyboard.type(token)
  await page.keyboard.press('Enter')
  await page.waitForSelector('#language option[value="python"]', { state: 'attached' })
  await page.waitForSelector('#network', { state: 'visible' })
  const at = () => page.evaluate(() => document.activeElement.id || document.activeElement.textContent.trim())
  assert.equal(await at(), 'access-toggle')
  // The focus is visible.
  const ring = () => page.evaluate(() => {
    const style = getComputedStyle(document.activeElement)
    return style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1
  })
  const seen = []
  for (let tabs = 0; tabs < 9 && seen.at(-1) !== 'editor'; tabs++) {
    await page.keyboard.press('Tab')
    seen.push(await at())
    assert.ok(await ring(), `${seen.at(-1)} shows that it has the focus`)
  }
  // Where there is an image of a coding agent, there are tabs.
  assert.deepEqual(seen.filter(id => id !== 'tab-code'), ['theme', 'language', 'conversation', 'conversation-new', 'editor'])

  await page.keyboard.press('ControlOrMeta+a')
  await page.keyboard.type('if True:\nprint("by key")')
  await page.keyboard.press('Home')
  const code = () => page.evaluate(() =>
    [...document.getElementById('editor').shadowRoot.querySelectorAll('.cm-line')].map(line => line.textContent))
  assert.deepEqual(await code(), ['if True:', '    print("by key")'], 'it indents by itself')
  await page.keyboard.press('Tab')
  assert.deepEqual(await code(), ['if True:', '        print("by key")'], 'Tab indents')
  await page.keyboard.press('Control+Enter')
  assert.match(await ended(page), /^Done: exit code 0/)
  assert.equal(await page.textContent('#stdout'), 'by key\n')
  assert.equal(await at(), 'editor', 'the focus stays where it was')

  await page.keyboard.press('Escape')
  await page.keyboard.press('Tab')
  assert.equal(await at(), 'run')
  const after = []
  for (let tabs = 0; tabs < 20 && !after.includes('add-folder'); tabs++) {
    await page.keyboard.press('Tab')
    after.push(await at())
  }
  assert.deepEqual(after, [
    'cancel', 'network', 'options-summary', 'example', 'libraries-count', 'stdout-copy', 'stdout', 'timing-summary', 'add-files',
    'add-folder',
  ])
  await page.keyboard.press('Tab')
  assert.match(await at(), /if True:/, 'the history')
  await page.keyboard.press('Tab')
  await page.keyboard.press('Enter')
  assert.equal(await at(), 'editor', 'the code is loaded again')
  // From anywhere on the page.
  await page.focus('#language')
  await page.keyboard.press('Control+Enter')
  await page.waitForFunction(() => document.querySelectorAll('#history li').length === 2)
  await ended(page)
  return page
}

// Light, dark, and on a phone, as in README: with a daemon that already ran some code.
export async function pictures({ url, folder }) {
  writeFileSync('fonts.conf', `<?xml version="1.0"?><!DOCTYPE fontconfig SYSTEM "urn:fontconfig:fonts.dtd"><fontconfig>
<include>/etc/fonts/fonts.conf</include>
<match><test name="family"><string>sans</string></test><edit name="family" mode="prepend" binding="strong"><string>Inter</string></edit></match>
<match><test name="family"><string>sans-serif</string></test><edit name="family" mode="prepend" binding="strong"><string>Inter</string></edit></match>
<match><test name="family"><string>system-ui</string></test><edit name="family" mode="prepend" binding="strong"><string>Inter</string></edit></match>
</fontconfig>`)
  const own = await launch({ FONTCONFIG_FILE: `${process.cwd()}/fonts.conf` })
  const take = async (name, options) => {
    const page = await visit(own, url, { expected: [/401/], ...options })
    await enter(page)
    for (const language of ['sh', 'typescript', 'python']) {
      await page.selectOption('#language', language)
      await run(page)
    }
    await page.waitForSelector('#file-list img')
    await page.waitForFunction(() => document.querySelectorAll('#history .mark.completed').length === 3)
    await page.mouse.move(0, 0)
    const height = await page.evaluate(() => {
      document.activeElement.blur()
      scrollTo(0, 0)
      const { bottom } = document.getElementById('output').getBoundingClientRect()
      return Math.max(innerHeight, Math.ceil(bottom + 8))
    })
    const path = `${folder}/page-${name}.png`
    await page.screenshot({ path, clip: { x: 0, y: 0, width: options.viewport.width, height }, fullPage: true })
    execFileSync('pngquant', ['--force', '--strip', '--speed', '1', '--output', path, '96', path])
    await page.fine()
  }
  const viewport = { width: 1280, height: 900 }
  await take('light', { viewport, colorScheme: 'light' })
  await take('dark', { viewport, colorScheme: 'dark' })
  await take('phone', { viewport: { width: 390, height: 844 }, colorScheme: 'light', isMobile: true, hasTouch: true, deviceScaleFactor: 1.5 })
  await own.close()
}
