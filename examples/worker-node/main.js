// A program with functions that jobs call as native:NAME.
//
//   WHEELWORK_URL=http://127.0.0.1:7700 WHEELWORK_TOKEN=$(cat wheelwork-data/host-token) node main.js
'use strict'

const { Worker, Failure } = require('./worker.js')

const handlers = {
  // greet is what a program of one's own would have.
  async greet(task, { log }) {
    const name = task.input.toString() || 'world'
    log(`greeting ${name} from Node ${process.version}`)
    return `Hello, ${name}!`
  },

  // The rest is what the conformance test calls; see docs/work-protocol.md.
  async echo(task) {
    return task.input
  },
  async talk(task, { log, progress }) {
    log('one')
    log('two', 'warn')
    progress(1, 2, 'half')
    return 'done'
  },
  async chatter(task, { log }) {
    for (let i = 0; i < Number(task.input); i++) log(`line ${i}`)
  },
  async fail(task) {
    const { outcome, error, code, retry_after_ms: retryAfterMs } = JSON.parse(task.input)
    throw new Failure(error, { permanent: outcome === 'permanent', code, retryAfterMs })
  },
  async crash() {
    return undefined.nothing
  },
  async wait(task, { signal, log }) {
    log('begun')
    await new Promise((_, reject) => signal.addEventListener('abort', () => reject(new Error(`told to end: ${signal.reason}`))))
  },
  async nap(task, { log }) {
    log('begun')
    await new Promise((resolve) => setTimeout(resolve, Number(task.input)))
    return 'rested'
  },
}

const worker = new Worker({
  url: process.env.WHEELWORK_URL || 'http://127.0.0.1:7700',
  token: process.env.WHEELWORK_TOKEN,
  slots: Number(process.env.WHEELWORK_SLOTS || 4),
  handlers,
})
for (const s of ['SIGTERM', 'SIGINT']) process.once(s, () => worker.drain())
worker.run().then(() => console.error('the worker has ended'))
