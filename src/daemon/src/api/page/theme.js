// The chosen colours of the page. It is a script of its own in the head, so that the first paint is already right. It must
// store nothing but one of three words.
(() => {
  const CHOICES = ['auto', 'light', 'dark']
  const KEY = 'paddock.theme'
  let choice = 'auto'
  try {
    choice = localStorage.getItem(KEY) ?? choice
  } catch {
    // Storage may be forbidden; then the choice lasts until the page is closed.
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
