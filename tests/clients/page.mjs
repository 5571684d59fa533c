// The page in a real browser: runs one scenario of page-*.mjs, by its name, with the page at an address. It
// needs Debian's Chromium.
//  page.mjs SCENARIO URL [FOLDER]
// `pictures` makes README's pictures in the folder (`make pictures`). It must never pass if a scenario saw a
// forbidden event.
import { browser as launch } from './page-drive.mjs'
import { end } from './flow.mjs'
import * as hostile from './page-hostile.mjs'
import * as look from './page-look.mjs'
import * as connect from './page-connect.mjs'
import * as parts from './page-parts.mjs'
import * as task from './page-task.mjs'
import * as work from './page-work.mjs'

const [scenario, url, folder] = process.argv.slice(2)
const play = { ...work, ...hostile, ...look, ...connect, ...parts, ...task }[scenario]
if (!play) throw new Error(`there is no scenario ${scenario}`)
const browser = await launch()
try {
  const page = await play({ browser, url: `${url}/`, home: process.cwd(), folder })
  await page?.fine()
} finally {
  await browser.close()
}
end()
