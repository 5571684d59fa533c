// The flow of every JavaScript client: it uploads, runs, lists, downloads, and compares the bytes, once, and
// again after each restart of the daemon that the test announced. It must never know which client runs it.
//
// The test passes the daemon's address and the number of restarts in the environment: PADDOCK_URL,
// PADDOCK_TOKEN, PADDOCK_RESTARTS. The flow asks for a restart by a line `restart` on standard output; a line
// in return says that it is done.
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { createInterface } from 'node:readline'

export const url = process.env.PADDOCK_URL
export const mcp = `${url}/mcp`
export const authorization = `Bearer ${process.env.PADDOCK_TOKEN}`

const restarts = Number(process.env.PADDOCK_RESTARTS)
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]()

// Asks the test for something, and waits until it is done. Returns the line of its answer.
export async function ask(line) {
  console.log(line)
  const { done, value } = await answers.next()
  assert.equal(done, false, 'the test answers')
  return value
}

// Asks for a restart, and waits until it is done.
export const restart = () => ask('restart')

// `call` takes a tool's name and its arguments, and returns the document of a successful result.
// `conversation` is added to the arguments; without it, all calls of the client's MCP session are one
// conversation.
export async function flow(call, conversation = { conversationId: 'client' }) {
  const files = []
  for (let round = 0; round <= restarts; round++) {
    if (round > 0) await restart()
    const [input, output] = [`in-${round}.bin`, `out-${round}.bin`]
    const content = randomBytes(20_000)
    const uploaded = await call('upload_file', {
      ...conversation, filename: input, content: content.toString('base64'),
    })
    assert.equal(uploaded.success, true)

    const code = `content = open('/data/${input}', 'rb').read()
open('/data/${output}', 'wb').write(content[::-1])
print(len(content))`
    const ran = await call('run_code', { ...conversation, language: 'python', code })
    assert.equal(ran.stdout, '20000\n')
    assert.equal(ran.session_id, uploaded.session_id, 'one conversation')

    files.push(input, output)
    const listed = await call('list_artifacts', { session_id: ran.session_id })
    assert.deepEqual(listed.artifacts.map(file => file.filename), files.toSorted())

    const link = listed.artifacts.find(file => file.filename === output).download_url
    const downloaded = await fetch(link)
    assert.equal(downloaded.status, 200)
    assert.ok(content.reverse().equals(Buffer.from(await downloaded.arrayBuffer())), 'the bytes differ')
  }
}

// The document of a result, as SDKs return it.
export function document(result) {
  assert.notEqual(result.isError, true, JSON.stringify(result))
  assert.ok(result.content[0].text, 'a model reads the text')
  return result.structuredContent
}

// Ends the process: a client may keep connections open, and this process's standard input is open.
export function end() {
  console.log('done')
  process.exit(0)
}
