// The state of the daemon: its engine, and its containers. It must never show more than the daemon reported.
import { $, el, reconcile, say } from './dom.js'
import { count, named, took } from './text.js'

// The most containers of a language that are drawn one by one, and how many fit beside its name.
const DRAWN = 64
const IN_LINE = 4

// `kind`: good, warn or bad.
export function showEngine(kind, text) {
  $('engine').className = `chip ${kind}`
  say($('engine-text'), text)
}

export function showPool(status) {
  const up = status.engine?.up === true
  showEngine(up ? 'good' : 'bad', up ? 'ready' : 'engine down')
  const { live = 0, max = 0 } = status.sessions ?? {}
  const commands = status.executions ?? { running: 0, max: 0 }
  say($('pool-note'), up
    ? `${live} of ${count(max, 'conversation')} live · ${commands.running} of ${count(commands.max, 'command')} running`
    : 'The container engine does not answer; files are still served.')
  const commit = status.commit ? ` (${named(status.commit).slice(0, 12)})` : ''
  say($('about'), `paddock ${named(status.version ?? '')}${commit}, up ${uptime(status.uptime_seconds)}`)
  reconcile($('pool'), status.pool ?? [], ({ language }) => language, create)
}

function uptime(seconds = 0) {
  if (seconds < 60) return took(seconds * 1000).replace(/\.\d+/, '')
  if (seconds < 3600) return count(Math.floor(seconds / 60), 'minute')
  if (seconds < 172_800) return count(Math.floor(seconds / 3600), 'hour')
  return count(Math.floor(seconds / 86_400), 'day')
}

function create({ language, image }) {
  const words = el('span', { class: 'meta' })
  const dots = el('span', { class: 'dots', 'aria-hidden': 'true' })
  const element = el('li', {},
    el('span', { class: 'language', title: named(image) }, el('bdi', {}, named(language))), dots, words)
  return {
    element,
    update({ idle, starting, leased, waiting, target, warm }) {
      const parts = []
      if (idle) parts.push(`${idle} ${warm ? 'warm' : 'ready'}`)
      if (leased) parts.push(`${leased} in use`)
      if (starting) parts.push(`${starting} starting`)
      if (waiting) parts.push(`${waiting} waiting`)
      say(words, parts.join(' · ') || (target ? 'none ready' : 'started on demand'))
      const kinds = [['idle', idle], ['leased', leased], ['starting', starting]]
      const all = kinds.flatMap(([kind, number]) => Array(Math.min(DRAWN, Math.max(0, number) || 0)).fill(kind))
        .slice(0, DRAWN)
      const drawn = all.join(' ')
      if (dots.dataset.drawn === drawn) return
      dots.dataset.drawn = drawn
      element.classList.toggle('many', all.length > IN_LINE)
      dots.replaceChildren(...all.map(kind => el('span', { class: `dot ${kind}` })))
    },
  }
}
