// A row of tabs, as assistive technology expects it: one of them is in the order of the Tab key, and the arrow keys go from
// one to the next. It must never move the focus unless a key asked for it.

// `tabs` are buttons with role=tab. `chosen` is called with the id of each tab that becomes the current one. Returns a function
// that chooses a tab by its id.
export function initTabs(tabs, chosen) {
  const choose = id => {
    for (const tab of tabs()) {
      const is = tab.id === id
      tab.setAttribute('aria-selected', String(is))
      tab.tabIndex = is ? 0 : -1
    }
    chosen(id)
  }
  const STEPS = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }
  for (const tab of tabs()) {
    tab.addEventListener('click', () => choose(tab.id))
    tab.addEventListener('keydown', event => {
      const all = tabs()
      const at = all.indexOf(tab)
      const to = { Home: 0, End: all.length - 1 }[event.key] ?? (at + (STEPS[event.key] ?? 0) + all.length) % all.length
      if (!(event.key in STEPS) && event.key !== 'Home' && event.key !== 'End') return
      event.preventDefault()
      choose(all[to].id)
      all[to].focus()
    })
  }
  return choose
}
