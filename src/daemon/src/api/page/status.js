// Polls the state of the daemon while the page is visible. It must never ask while the page is hidden, and asks less often
// when the daemon does not answer.
import { json } from './http.js'

const INTERVAL = 1500
// The interval while something of this page is in progress.
const QUICK = 500
const RAREST = 30_000

let timer = 0
let failures = 0
let going = false
let asking = false
let isQuick = () => false
let told = { status: () => {}, failed: () => {} }

// `status` receives every answer, `failed` is called for each failure; `quick` says whether something is in progress.
export function initStatus({ status, failed, quick }) {
  told = { status, failed }
  isQuick = quick
  document.addEventListener('visibilitychange', () => (document.hidden ? clearTimeout(timer) : soon()))
}

export function start() {
  going = true
  soon()
}

export function stop() {
  going = false
  clearTimeout(timer)
}

// Asks now.
export function soon() {
  clearTimeout(timer)
  if (going && !asking && !document.hidden) ask()
}

async function ask() {
  asking = true
  try {
    told.status(await json('status'))
    failures = 0
  } catch (error) {
    failures++
    if (error.status === 401) stop()
    told.failed(error)
  }
  asking = false
  clearTimeout(timer)
  if (!going || document.hidden) return
  timer = setTimeout(ask, failures ? Math.min(RAREST, INTERVAL * 2 ** failures) : isQuick() ? QUICK : INTERVAL)
}
