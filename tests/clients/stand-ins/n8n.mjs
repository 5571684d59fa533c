#!/usr/bin/env node
// Stands in for n8n, which is 2 GB: its command line as far as deploy/compose/n8n-start uses it, and a server that runs an
// imported workflow with the imported credential (../workflow.mjs): POST /run/ID. `make n8n` has the real one.
import { mkdirSync, readFileSync, readdirSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { run } from '/stand-ins/workflow.mjs'

process.on('SIGTERM', () => process.exit())
const home = '/home/node/.n8n/stand-in'
const [command, ...flags] = process.argv.slice(2)
const input = flags.find(flag => flag.startsWith('--input='))?.slice('--input='.length)
mkdirSync(home, { recursive: true })
const read = path => JSON.parse(readFileSync(path, 'utf8'))

if (command === 'import:credentials') {
  writeFileSync(`${home}/credentials`, JSON.stringify(read(input)))
} else if (command === 'import:workflow') {
  if (!flags.includes('--separate')) throw new Error('the input is a folder')
  for (const name of readdirSync(input)) {
    const workflow = read(`${input}/${name}`)
    writeFileSync(`${home}/workflow-${workflow.id}`, JSON.stringify(workflow))
  }
} else if (command === 'start') {
  createServer(async (request, answer) => {
    const id = request.url.match(/^\/run\/(\w+)$/)?.[1]
    try {
      const [credential] = read(`${home}/credentials`)
      const given = await run(read(`${home}/workflow-${id}`), `Bearer ${credential.data.token}`)
      answer.writeHead(200).end(Object.keys(given).join('\n'))
    } catch (error) {
      answer.writeHead(500).end(String(error.stack))
    }
  }).listen(5678)
} else {
  throw new Error(`n8n ${command} is unknown`)
}
