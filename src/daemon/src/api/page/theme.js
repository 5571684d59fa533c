// The page's colours, as chosen: a script of its own in the head, so that the first paint is right already. It must never
// keep anything but one of three words.
(() => {
  const CHOICES = ['auto', 'light', 'dark']
  const KEY = 'paddock.theme'
  let choice = 'auto'
  try {
    choice = localStorage.getItem(KEY) ?? choice
  } catch {
    // Storage may be forbidden; the choice lasts as long as the page then.
  }

  const apply = () => {
    if (!CHOICES.includes(choice)) choice = 'auto'
    document.documentElement.dataset.theme = choice
    const name = document.getElementById('theme-name')
    if (name) name.textContent = choice
  }

  apply()
  document.addEventListener('DOMContentLoaded', () => {
    apply()
    document.getElementById('theme').addEventListener('click', () => {
      choice = CHOICES[(CHOICES.indexOf(choice) + 1) % CHOICES.length]
      apply()
      try {
        localStorage.setItem(KEY, choice)
      } catch {
        // As above.
      }
    })
  })
})()
