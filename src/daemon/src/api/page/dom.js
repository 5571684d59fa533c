// Elements, made and kept up to date. It must never take HTML: whatever it is given is text.

export const $ = id => document.getElementById(id)

// An element with attributes, listeners (`onclick`) and children. Texts among the children become text nodes; what is null
// is left out.
export function el(name, attributes = {}, ...children) {
  const element = document.createElement(name)
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue
    if (key.startsWith('on')) element.addEventListener(key.slice(2), value)
    else element.setAttribute(key, value === true ? '' : value)
  }
  element.append(...children.filter(child => child !== null && child !== undefined))
  return element
}

// Makes the children of `parent` those of `items`, in this order. An item's element is made once for its key and then
// updated, so that the focus and the pointer stay where they are. `create` gives `{ element, update }`.
export function reconcile(parent, items, keyOf, create) {
  const known = parent.known ??= new Map()
  const wanted = new Set()
  let at = parent.firstElementChild
  for (const item of items) {
    const key = keyOf(item)
    if (wanted.has(key)) continue
    wanted.add(key)
    if (!known.has(key)) known.set(key, create(item))
    const { element, update } = known.get(key)
    update?.(item)
    if (element === at) at = at.nextElementSibling
    else parent.insertBefore(element, at)
  }
  for (const [key, { element }] of known) {
    if (wanted.has(key)) continue
    // A focus that would be lost with its element stays in the list's neighbourhood.
    const next = element.contains(document.activeElement) && (element.nextElementSibling ?? element.previousElementSibling)
    known.delete(key)
    element.remove()
    if (next) (next.querySelector('a, button') ?? next).focus()
  }
}

// Sets a text if it is another: what does not change is not announced again.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text
}
