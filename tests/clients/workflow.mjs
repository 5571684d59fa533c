// Runs a workflow of deploy/n8n without n8n: it implements those nodes and expressions that the workflows
// use, and sends exactly the requests of the HTTP Request node. `make n8n` runs them in a real n8n; this one
// is for every run of the tests. It must never be more lenient than n8n: anything unknown is an error.
import assert from 'node:assert/strict'

// The headers of n8n's HTTP Request node.
const ACCEPT = 'application/json,text/html,application/xhtml+xml,application/xml,text/*;q=0.9, image/*;q=0.8, */*;q=0.7'

// An expression ends at the first `}}`, whatever is around it.
const EXPRESSION = /\{\{([\s\S]*?)\}\}/g

function evaluated(text, { json }) {
  if (typeof text !== 'string' || !text.startsWith('=')) return text
  const value = code => new Function('$json', `return (${code})`)(json)
  const [whole] = text.slice(1).matchAll(EXPRESSION)
  if (whole?.[0] === text.slice(1)) return value(whole[1])
  return text.slice(1).replace(EXPRESSION, (_, code) => String(value(code)))
}

const nodes = {
  'n8n-nodes-base.manualTrigger': () => [[{ json: {} }]],

  async 'n8n-nodes-base.code'({ jsCode }, items) {
    const Code = Object.getPrototypeOf(async () => {}).constructor
    const prepareBinaryData = async (bytes, fileName, mimeType) => ({ bytes, fileName, mimeType })
    return [await new Code('$input', jsCode).call({ helpers: { prepareBinaryData } }, { all: () => items })]
  },

  async 'n8n-nodes-base.httpRequest'(parameters, items, authorization) {
    // All at once, as n8n does.
    return [await Promise.all(items.map(item => request(parameters, item, authorization)))]
  },

  'n8n-nodes-base.if'({ conditions }, items) {
    const [{ leftValue, operator }] = conditions.conditions
    assert.deepEqual([operator.type, operator.operation], ['boolean', 'true'])
    const is = item => evaluated(leftValue, item) === true
    return [items.filter(is), items.filter(item => !is(item))]
  },

  'n8n-nodes-base.stopAndError'({ errorMessage }, [item]) {
    throw new Error(evaluated(errorMessage, item))
  },
}

async function request(parameters, item, authorization) {
  const { method = 'GET', url, authentication, headerParameters, contentType, jsonBody } = parameters
  const { inputDataFieldName, options } = parameters
  const headers = { accept: ACCEPT, connection: 'close' }
  for (const { name, value } of headerParameters?.parameters ?? []) headers[name] = evaluated(value, item)
  if (authentication) headers.authorization = authorization
  let body
  if (contentType === 'json') {
    headers['content-type'] = 'application/json'
    body = evaluated(jsonBody, item)
  } else if (contentType === 'binaryData') {
    const { bytes, mimeType } = item.binary[inputDataFieldName]
    headers['content-type'] = mimeType
    body = bytes
  }
  const answer = await fetch(evaluated(url, item), { method, headers, body })
  if (!answer.ok) throw new Error(`${answer.status}: ${await answer.text()}`)
  if (options.response?.response.responseFormat !== 'file') return { json: await answer.json() }
  const [, fileName] = answer.headers.get('content-disposition').match(/filename="([^"]*)"/)
  return { json: {}, binary: { data: { bytes: Buffer.from(await answer.arrayBuffer()), fileName } } }
}

// The output of each node, by its name.
export async function run(workflow, authorization) {
  const given = {}
  const go = async (name, items) => {
    const { type, parameters } = workflow.nodes.find(node => node.name === name)
    assert.ok(nodes[type], `this does not know ${type}`)
    const outputs = await nodes[type](parameters, items, authorization)
    given[name] = outputs[0]
    const targets = workflow.connections[name]?.main ?? []
    for (const [at, output] of outputs.entries()) {
      if (output.length) for (const { node } of targets[at] ?? []) await go(node, output)
    }
  }
  await go(workflow.nodes.find(({ type }) => type === 'n8n-nodes-base.manualTrigger').name, [])
  return given
}

// Reports what n8n's import would refuse or n8n could not run.
export function check(workflow, wantsToken) {
  assert.match(workflow.id, /^[A-Za-z0-9]{16}$/, 'the command line imports by an id of its own')
  assert.equal(workflow.active, false)
  const names = workflow.nodes.map(({ name }) => name)
  assert.equal(new Set(names).size, names.length, 'names are what connections go by')
  assert.equal(new Set(workflow.nodes.map(({ id }) => id)).size, names.length)
  for (const [from, kinds] of Object.entries(workflow.connections)) {
    for (const { node } of Object.values(kinds).flat(2)) {
      assert.ok(names.includes(from) && names.includes(node), `${from} → ${node}`)
    }
  }
  for (const { name, parameters, credentials } of workflow.nodes) {
    const isCaller = /127\.0\.0\.1:8080/.test(JSON.stringify(parameters))
    const { httpBearerAuth } = credentials ?? {}
    const wanted = isCaller && wantsToken ? { id: 'paddockBearer001', name: 'paddock' } : undefined
    assert.deepEqual(httpBearerAuth, wanted, name)
    const asks = parameters.genericAuthType === 'httpBearerAuth' || parameters.authentication === 'bearerAuth'
    assert.equal(asks, Boolean(httpBearerAuth), `${name}: its authentication and its credential go together`)
    for (const text of texts(parameters).filter(text => text.startsWith('='))) {
      for (const [, code] of text.matchAll(EXPRESSION)) new Function(`(${code})`)
      assert.doesNotMatch(text.replace(EXPRESSION, ''), /\{\{|\}\}/, `${name}: an expression ends too early`)
    }
  }
}

const texts = value => typeof value === 'string' ? [value] : Object.values(value ?? {}).flatMap(texts)

// The same workflow without the parts for a token.
export function withoutToken(workflow) {
  const open = structuredClone(workflow)
  delete open.id
  for (const node of open.nodes) {
    const { parameters, credentials } = node
    if (credentials) delete credentials.httpBearerAuth
    if (credentials && !Object.keys(credentials).length) delete node.credentials
    delete parameters.genericAuthType
    delete parameters.authentication
  }
  return open
}
