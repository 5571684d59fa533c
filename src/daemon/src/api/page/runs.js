// The runs of this page, in memory: their code and results. The number of runs, and the live output of each, are bounded.

// The most runs that are kept with code and output.
const KEPT = 50
// Characters of live output that are kept of each stream: its end. The answer brings the whole output, or a link to it.
const LIVE = 64 * 1024

const runs = []

// A run that starts now.
export function begin({ language, code, conversation, network, timeout, stdin }) {
  const run = {
    key: crypto.getRandomValues(new Uint32Array(2)).join('-'),
    language, code, conversation, network, timeout, stdin,
    began: Date.now(),
    // running | ended | cancelled | failed
    state: 'running',
    live: { stdout: '', stderr: '' },
    missed: { stdout: false, stderr: false },
    document: null, timing: null, wall: undefined, problem: '', problemStatus: 0,
  }
  runs.unshift(run)
  runs.length = Math.min(runs.length, KEPT)
  return run
}

// More output of a run in progress.
export function wrote(run, stream, text) {
  const all = run.live[stream] + text
  run.missed[stream] ||= all.length > LIVE
  run.live[stream] = all.length > LIVE ? all.slice(-LIVE) : all
}

// The runs of a conversation, the newest first.
export const of = conversation => runs.filter(run => run.conversation === conversation)

// How a run ended, in the same words as the daemon's list.
export function status(run) {
  const { document } = run
  if (run.state === 'running') return 'running'
  if (run.state === 'cancelled') return 'cancelled'
  if (!document?.run_id) return 'failed'
  if (document.error === 'lost') return 'lost'
  if (document.timed_out) return 'timeout'
  return document.limit || document.exit_code !== 0 ? 'failed' : 'completed'
}
