// Finds the line that says what went wrong in what a program wrote to stderr. It must never take longer than linear time, and
// never claim an exception where there is only output.

// Characters from the end in which it is looked for, and those that are shown of it.
const READ = 64 * 1024
const SHOWN = 500

const TRACEBACK = 'Traceback (most recent call last)'
const NAMED = /^(?:Uncaught )?[\w$.]{0,200}(?:Error|Exception)(?: \[[\w]{1,80}\])?(?::|$)/

// The line of the exception that ended a program, or an empty text.
export function exceptionOf(stderr) {
  const lines = String(stderr).slice(-READ).split('\n').map(line => line.trimEnd())
  const at = lines.findLastIndex(line => line.startsWith(TRACEBACK))
  const raised = at < 0 ? -1 : lines.findIndex((line, index) => index > at && /^\S/.test(line))
  const found = raised >= 0 ? raised : lines.findLastIndex(line => NAMED.test(line))
  return found < 0 ? '' : lines[found].slice(0, SHOWN)
}
