// Files as rows and pictures. A picture must only be shown in an <img>, where it can run nothing, and a name only as text.
import { el } from './dom.js'
import { ownLink } from './http.js'
import { preview } from './preview.js'
import { named, size } from './text.js'

const PICTURES = new Set(['image/png', 'image/jpeg', 'image/gif', 'image/webp', 'image/svg+xml'])
// The largest picture, in bytes, that is shown alone, and in a list.
const PREVIEW = 8 << 20
const THUMBNAIL = 1 << 20

const isPicture = ({ mime_type: type, size_bytes: bytes }, bound) => PICTURES.has(type) && bytes > 0 && bytes <= bound

// The path in /data.
export const pathOf = artifact => String(artifact.path ?? artifact.filename ?? '').replace(/^\/mnt\/data\//, '')

const bdi = name => el('bdi', {}, named(name))

function img(artifact, attributes, fresh) {
  const image = el('img', {
    src: ownLink(artifact.download_url, fresh), alt: `Preview of ${named(pathOf(artifact))}`, decoding: 'async', ...attributes,
  })
  image.addEventListener('error', () => image.replaceWith(el('span', { class: 'no-preview' }, 'no preview')))
  return image
}

function links(artifact) {
  const href = ownLink(artifact.download_url)
  const name = named(pathOf(artifact))
  if (!href) return { open: bdi(pathOf(artifact)), save: null }
  return {
    open: el('a', { href, target: '_blank', rel: 'noopener noreferrer', class: 'name', title: name }, bdi(pathOf(artifact))),
    save: el('a', { href, download: '', class: 'button small', 'aria-label': `Download ${name}` }, 'Download'),
  }
}

// A picture with its name below it; null if the file is no picture or too large.
export function figure(artifact, fresh) {
  if (!isPicture(artifact, PREVIEW) || !ownLink(artifact.download_url)) return null
  const { open, save } = links(artifact)
  return el('figure', {}, img(artifact, {}, fresh),
    el('figcaption', {}, open, el('span', { class: 'meta' }, size(artifact.size_bytes)), save))
}

// A row with name, size and links, followed by `actions`.
export function row(artifact, { fresh, thumbnail = false, actions = [] } = {}) {
  const { open, save } = links(artifact)
  const beginning = preview(artifact, named(pathOf(artifact)))
  const picture = thumbnail && isPicture(artifact, THUMBNAIL) && ownLink(artifact.download_url)
  return el('li', {},
    thumbnail
      ? el('span', { class: 'thumb', 'aria-hidden': 'true' },
        picture ? img(artifact, { loading: 'lazy', alt: '' }, fresh) : el('span', {}, extension(artifact)))
      : null,
    open,
    // Beside a sign for its kind, the type would say it twice.
    el('span', { class: 'meta', title: named(artifact.mime_type) },
      thumbnail ? size(artifact.size_bytes) : `${size(artifact.size_bytes)} · ${named(artifact.mime_type)}`),
    beginning?.button, save, ...actions, beginning?.place)
}

const extension = artifact => pathOf(artifact).match(/\.([A-Za-z0-9]{1,4})$/)?.[1]?.toLowerCase() ?? 'file'
