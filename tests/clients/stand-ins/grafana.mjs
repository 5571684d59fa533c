// Stands in for Grafana, which cannot be had without a registry: it reads what is provisioned as Grafana does, asks for
// the password of the admin, lists the dashboards, and passes queries on to the data source. It must never be more
// lenient than Grafana: what is missing is an error at the start.
import { readFileSync, readdirSync } from 'node:fs'
import { createServer } from 'node:http'

const provisioned = kind => {
  const folder = `/etc/grafana/provisioning/${kind}/`
  return readdirSync(folder).map(name => readFileSync(folder + name, 'utf8')).join('\n')
}
const value = (text, key) => {
  const found = text.match(new RegExp(`^\\s*(?:- )?${key}: ([^#\\n]+)`, 'm'))
  if (!found) throw new Error(`no ${key} in ${text}`)
  return found[1].trim()
}
const [sources, providers] = [provisioned('datasources'), provisioned('dashboards')]
if (value(sources, 'type') !== 'prometheus') throw new Error('the data source is no Prometheus')
const source = value(sources, 'url')
const folder = value(providers, 'path')
const dashboards = readdirSync(folder).map(name => JSON.parse(readFileSync(`${folder}/${name}`, 'utf8')))
const password = process.env.GF_SECURITY_ADMIN_PASSWORD
if (!password) throw new Error('no password')
const known = `Basic ${Buffer.from(`admin:${password}`).toString('base64')}`

process.on('SIGTERM', () => process.exit())
createServer(async (request, answer) => {
  const says = (status, document) => answer.writeHead(status).end(JSON.stringify(document))
  if (request.headers.authorization !== known) return says(401, { message: 'Unauthorized' })
  if (request.url === '/api/search') return says(200, dashboards.map(({ uid, title }) => ({ uid, title })))
  const query = request.url.match(/^\/api\/datasources\/proxy\/1(\/.*)/)
  if (!query) return says(404, { message: 'Not found' })
  const asked = await fetch(source + query[1]).catch(error => ({ status: 502, json: () => ({ message: String(error) }) }))
  says(asked.status, await asked.json())
}).listen(3000)
