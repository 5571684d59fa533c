// What every client in JavaScript does with its tools: upload, run, list, download, and compare the bytes; once, or once
// more after each restart of the daemon that the test asked for. It must never know which client it is.
//
// The test says where the daemon is, and how often it will restart it, in the environment: PADDOCK_URL, PADDOCK_TOKEN,
// PADDOCK_RESTARTS. A restart is asked for by a line `restart` on standard output, and done when a line comes back.
import assert from 'node:assert/strict'
import { randomBytes } from 'node:crypto'
import { createInterface } from 'node:readline'

export const url = process.env.PADDOCK_URL
export const mcp = `${url}/mcp`
export const authorization = `Bearer ${process.env.PADDOCK_TOKEN}`

const restarts = Number(process.env.PADDOCK_RESTARTS)
const answers = createInterface({ input: process.stdin })[Symbol.asyncIterator]()

// Asks for a restart, and waits until it is done.
export async function restart() {
  console.log('restart')
  assert.equal((await answers.next()).done, false, 'the test answers')
}

// `call` takes a tool's name and its arguments, and gives the document of a result that is no error. `conversation` is
// put into them; left out, all calls of the client's MCP session are one conversation.
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

// The document of a result as SDKs give it.
export function document(result) {
  assert.notEqual(result.isError, true, JSON.stringify(result))
  assert.ok(result.content[0].text, 'a model reads the text')
  return result.structuredContent
}

// Ends the process: a client may hold connections open, and our standard input is.
export function end() {
  console.log('done')
  process.exit(0)
}
