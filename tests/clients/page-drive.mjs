// The common part of all scenarios of the page: a real browser, and checks for events that must never happen:
// a request to another server, a violation of the page's policy, an error or a warning on the console, a
// dialog, a foreign script. It must never wait for a fixed time, only for something visible.
import assert from 'node:assert/strict'
import { createRequire } from 'node:module'
import { readFileSync } from 'node:fs'
import { chromium } from 'playwright-core'

export const token = process.env.PADDOCK_TOKEN
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')

// Starts a browser, which `close` ends. `env` are additional variables for it.
export async function browser(env = {}) {
  return chromium.launch({
    executablePath: '/usr/bin/chromium',
    args: process.getuid() === 0 ? ['--no-sandbox'] : [],
    env: { ...process.env, LANG: 'C.UTF-8', ...env },
  })
}

// Opens the page at `url` in a new window. `expected` are console messages that a refused request may cause. `prepare` is
// called with the page before it loads: a request that is under way when its route is set can be lost.
export async function visit(from, url, { expected = [], prepare = async () => {}, ...options } = {}) {
  const context = await from.newContext({ viewport: { width: 1280, height: 900 }, reducedMotion: 'reduce', ...options })
  const page = await context.newPage()
  const wrong = []
  await context.addInitScript(() => {
    document.addEventListener('securitypolicyviolation', event => console.error(`policy: ${event.violatedDirective}`))
  })
  context.on('request', request => {
    const to = new URL(request.url())
    if (['chrome:', 'chrome-extension:'].includes(to.protocol)) return // the browser's own viewer of PDFs
    if (to.origin !== new URL(url).origin) wrong.push(`a request to ${to.origin}`)
    if (request.url().includes(token)) wrong.push('the token is in an address')
  })
  context.on('console', message => {
    const text = `${message.text()} ${message.location().url}`
    if (!['error', 'warning'].includes(message.type()) || expected.some(pattern => pattern.test(text))) return
    wrong.push(`on the console: ${text}`)
  })
  context.on('weberror', error => wrong.push(`an error: ${error.error().stack}`))
  context.on('dialog', dialog => {
    wrong.push(`a dialog: ${dialog.message()}`)
    return dialog.dismiss()
  })
  await prepare(page)
  await page.goto(url)
  return Object.assign(page, {
    // None of the forbidden events happened.
    async fine() {
      assert.equal(await page.evaluate(() => globalThis.pwned), undefined, 'a stranger’s script ran')
      assert.deepEqual(wrong, [])
    },
  })
}

// Enters the token, and waits until the page shows its languages.
export async function enter(page, given = token) {
  await page.fill('#token', given)
  await page.press('#token', 'Enter')
  await page.waitForSelector('#language option[value="python"]', { state: 'attached' })
  await page.waitForSelector('#access', { state: 'hidden' })
}

// Puts this code into the editor, as a user would.
export async function write(page, code) {
  await page.click('#editor .cm-content')
  await page.keyboard.press('ControlOrMeta+a')
  await page.keyboard.press('Delete')
  await page.keyboard.insertText(code)
}

// Waits until the run is over; returns the text about its end.
export async function ended(page) {
  await page.waitForFunction(() => document.getElementById('run').getAttribute('aria-disabled') === 'false')
  return page.textContent('#status')
}

export async function run(page, code) {
  if (code !== undefined) await write(page, code)
  await page.click('#run')
  return ended(page)
}

// Waits until an element contains this text.
export async function says(page, selector, text) {
  try {
    await page.waitForFunction(
      ([selector, text]) => document.querySelector(selector)?.textContent.includes(text), [selector, text])
  } catch (error) {
    const all = await page.locator(selector).allTextContents()
    throw new Error(`${selector} does not say ${JSON.stringify(text)} but ${JSON.stringify(all)}`, { cause: error })
  }
}

// The names of the listed files.
export const listed = page => page.locator('#file-list .name').allTextContents()

// The page's accessibility, as axe measures it.
export async function accessible(page, what) {
  await page.evaluate(axe)
  const { violations } = await page.evaluate(() => globalThis.axe.run(document, {
    runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'],
  }))
  const told = violations.flatMap(({ id, nodes }) => nodes.map(node => `${id}: ${node.html} ${node.failureSummary}`))
  assert.deepEqual(told, [], what)
}

// Nothing is wider than the window. On a phone the window grows with its content.
export async function fits(page, what) {
  const { width } = page.viewportSize()
  const { wide, culprits } = await page.evaluate(width => ({
    wide: document.documentElement.scrollWidth,
    culprits: [...document.querySelectorAll('body *')]
      .filter(one => one.getBoundingClientRect().right > width + 1).slice(0, 5).map(one => one.outerHTML.slice(0, 120)),
  }), width)
  assert.ok(wide <= width, `${what}: ${wide} px in ${width}: ${culprits.join('\n')}`)
}
