// Makes elements and keeps them up to date. It must never take HTML: everything that it receives is text.

export const $ = id => document.getElementById(id)

// An element with attributes, listeners (`onclick`) and children. Strings among the children become text nodes; null is left
// out.
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

// Makes the children of `parent` match `items`, in this order. The element of an item is made once for its key and then
// updated, so that focus and pointer stay where they are. `create` returns `{ element, update }`.
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
    // If the focused element is removed, the focus moves to a neighbour in the list.
    const next = element.contains(document.activeElement) && (element.nextElementSibling ?? element.previousElementSibling)
    known.delete(key)
    element.remove()
    if (next) (next.querySelector('a, button') ?? next).focus()
  }
}

// Sets a text only if it changes, so that a screen reader does not announce it again.
export function say(element, text) {
  if (element.textContent !== text) element.textContent = text
}
