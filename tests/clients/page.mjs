// The page in a real browser: one scenario of page-*.mjs, by its name, at an address. Debian's Chromium has to be there.
//   page.mjs SCENARIO URL [FOLDER]
// `pictures` makes README's, into the folder (`make pictures`). It must never pass where a scenario saw anything that none may.
import { browser as launch } from './page-drive.mjs'
import { end } from './flow.mjs'
import * as hostile from './page-hostile.mjs'
import * as look from './page-look.mjs'
import * as work from './page-work.mjs'

const [scenario, url, folder] = process.argv.slice(2)
const play = { ...work, ...hostile, ...look }[scenario]
if (!play) throw new Error(`there is no scenario ${scenario}`)
const browser = await launch()
try {
  const page = await play({ browser, url: `${url}/`, home: process.cwd(), folder })
  await page?.fine()
} finally {
  await browser.close()
}
end()
