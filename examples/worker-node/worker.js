// A Wheelwork worker: it takes tasks from a server and calls functions for them.
// docs/work-protocol.md tells the protocol; the section numbers below are its.
'use strict'

const { randomUUID } = require('node:crypto')
const { EventEmitter } = require('node:events')
const { hostname } = require('node:os')
const path = require('node:path')
const grpc = require('@grpc/grpc-js')
const protoLoader = require('@grpc/proto-loader')

const api = process.env.WHEELWORK_API || path.join(__dirname, '..', '..', 'api')
const { wheelwork } = grpc.loadPackageDefinition(
  protoLoader.loadSync('v1/work.proto', { includeDirs: [api], longs: String, enums: String, defaults: true }),
)

const HEARTBEAT_MS = 2000
const FIRST_PAUSE_MS = 50
const LONGEST_PAUSE_MS = 2000
const LAST_ACKS_MS = 2000
const MAX_RESULTS = 256
const MAX_RESULT_BYTES = 2 << 20
const MAX_OUTPUT = 1 << 20
const MAX_LOG = 1 << 20
const MAX_TEXT = 16 << 10
const LEVELS = { debug: 0, info: 1, warn: 2, error: 3 }

// Failure is an error that says more than its text.
class Failure extends Error {
  constructor(message, { permanent = false, code = '', retryAfterMs = 0, cause } = {}) {
    super(message, { cause })
    Object.assign(this, { permanent, code, retryAfterMs })
  }
}

// cut bounds a text in bytes without leaving half a character.
function cut(text, limit = MAX_TEXT) {
  const bytes = Buffer.from(String(text))
  return bytes.length <= limit ? bytes.toString() : bytes.subarray(0, limit).toString().replace(/\uFFFD$/, '')
}

const keyOf = (m) => `${m.app}/${m.run.toString('hex')}/${m.attempt}`

// Worker calls functions for tasks: handlers maps a name to
// async (task, { signal, log, progress }) => output.
class Worker extends EventEmitter {
  constructor({
    url, token, handlers, name = hostname(), slots = 4, apps = [], labels = {},
    drainTimeoutMs = 10_000, patienceMs = 10_000, log = console.error,
  }) {
    super()
    Object.assign(this, { handlers, name, slots, apps, labels, drainTimeoutMs, patienceMs, logLine: log })
    this.id = `node-${randomUUID()}`
    this.session = randomUUID()
    const { protocol, hostname: host, port } = new URL(url)
    const secure = protocol === 'https:'
    const address = `${host}:${port || (secure ? 443 : 80)}`
    const credentials = secure ? grpc.credentials.createSsl() : grpc.credentials.createInsecure()
    this.client = new wheelwork.v1.Worker(address, credentials, { 'grpc.keepalive_time_ms': 20_000 })
    this.metadata = new grpc.Metadata()
    this.metadata.set('authorization', `Bearer ${token}`)

    this.held = new Map() // key → attempt, until its result is acknowledged
    this.queue = []
    this.epochs = new Map() // app → the highest epoch seen
    this.taken = 0 // slots whose function has not returned
    this.draining = false
    this.stream = null // of the session that has begun
    this.forgetStream()
  }

  // run works until drain has been called and has ended.
  async run() {
    let pause = FIRST_PAUSE_MS
    while (!this.ended) {
      const began = Date.now()
      const error = await this.runSession()
      if (this.ended) break
      if (this.draining && this.busy() === 0) break // and nobody is there to tell
      if (Date.now() - began > LONGEST_PAUSE_MS) pause = FIRST_PAUSE_MS
      this.logLine(`no server: ${error}; again in ${pause} ms`)
      await new Promise((resolve) => setTimeout(resolve, pause))
      pause = Math.min(2 * pause, LONGEST_PAUSE_MS)
    }
    this.client.close()
  }

  // runSession is one stream, from hello to its end (§2). It returns why it ended.
  runSession() {
    return new Promise((resolve) => {
      const stream = this.client.Work(this.metadata)
      const beat = setInterval(() => this.heartbeat(), HEARTBEAT_MS)
      let over = false
      const end = (why) => {
        if (over) return
        over = true
        clearInterval(beat)
        this.stream = null
        stream.cancel()
        resolve(why)
      }
      stream.on('error', (e) => end(e.details || e.message))
      stream.on('end', () => end('the server closed the stream'))
      stream.on('data', (m) => {
        if (over) return
        if (!this.stream) this.begin(stream, m.welcome)
        this.hear(m)
      })
      stream.write({ hello: this.hello() })
    })
  }

  hello() {
    return {
      host: this.id, name: this.name, session: this.session, labels: this.labels, apps: this.apps,
      abi: Object.keys(this.handlers).map((name) => `native:${name}`), version: `node ${process.version}`, slots: this.slots,
      // Whatever is held: it runs, waits, or its result is not acknowledged (§6).
      running: [...this.held.values()].map(({ app, run, attempt, epoch }) => ({ run, app, attempt, epoch })),
    }
  }

  forgetStream() {
    this.granted = 0 // credits that the server has
    this.batch = 0
    this.unacked = [] // { n, attempts }, oldest first
    this.results = []
    this.logs = []
    this.progress = new Map()
    this.saidDraining = false
  }

  // begin makes everything that is finished go out on the new stream (§6).
  begin(stream, welcome) {
    const { logs } = this
    this.forgetStream()
    this.logs = logs
    this.stream = stream
    this.results = [...this.held.values()].filter((a) => a.result)
    this.logLine(`joined ${welcome?.server}, holding ${this.held.size}`)
    this.say()
  }

  hear(m) {
    for (const task of m.tasks) this.accept(task)
    for (const c of m.cancels) this.cancel(c)
    const acked = Number(m.acked)
    while (this.unacked.length && this.unacked[0].n <= acked) {
      for (const a of this.unacked.shift().attempts) this.held.delete(a.key)
      this.emit('acked')
    }
    this.work()
    this.say()
  }

  accept(task) {
    this.granted--
    const epoch = BigInt(task.epoch)
    if (epoch < (this.epochs.get(task.app) ?? 0n)) { // its server does not own it any more (§5)
      this.logLine(`a task of epoch ${epoch} is refused`)
      return
    }
    this.epochs.set(task.app, epoch)
    const a = { ...task, key: keyOf(task), task, controller: new AbortController() }
    if (this.held.has(a.key)) return // sent twice
    this.held.set(a.key, a)
    if (this.draining) this.settle(a, stopped('the host is shutting down', 'drained'))
    else this.queue.push(a)
  }

  cancel({ run, attempt }) {
    for (const a of this.held.values()) {
      if (a.attempt === attempt && a.run.equals(run)) this.stop(a, 'cancelled')
    }
  }

  // stop ends an attempt: a running one through its signal, another at once (§5).
  stop(a, code) {
    if (a.result) return
    if (a.started) a.controller.abort(code)
    else {
      this.queue = this.queue.filter((q) => q !== a)
      this.settle(a, stopped(`${code} before it started`, code))
    }
  }

  work() {
    while (this.taken < this.slots && this.queue.length) this.execute(this.queue.shift())
  }

  busy() {
    let n = 0
    for (const a of this.held.values()) if (!a.result) n++
    return n
  }

  // execute calls the function of an attempt. One that does not heed its signal is
  // given up after a while; its slot stays taken until it returns.
  async execute(a) {
    this.taken++
    a.started = Date.now()
    const { signal } = a.controller
    const timeout = Number(a.task.timeoutMs)
    const deadline = timeout > 0 ? setTimeout(() => a.controller.abort('deadline'), Math.min(timeout, 2 ** 31 - 1)) : undefined
    let late
    signal.addEventListener('abort', () => {
      late = setTimeout(() => this.settle(a, ended(signal.reason, `the function was given up: it did not return for ${this.patienceMs} ms after its end (${signal.reason})`)), this.patienceMs)
    })
    const result = await this.call(a, signal)
    clearTimeout(deadline)
    clearTimeout(late)
    this.taken--
    this.settle(a, result)
    this.work()
    this.say()
  }

  async call(a, signal) {
    const name = a.task.handler.replace(/^native:/, '')
    const fn = Object.hasOwn(this.handlers, name) && a.task.module === '' && a.task.handler !== name ? this.handlers[name] : undefined
    if (!fn) return { outcome: 'OUTCOME_HOST_ERROR', error: `this worker has no function for ${a.task.handler}`, code: 'handler' }
    const began = process.hrtime.bigint()
    const durationUs = () => String((process.hrtime.bigint() - began) / 1000n)
    let logged = 0
    const log = (text, level = 'info') => {
      if (a.result) return
      for (const line of String(text).split('\n')) {
        if (logged < 0) return
        const bytes = Buffer.from(cut(line))
        logged += bytes.length + 1
        if (logged > MAX_LOG) {
          this.logs.push(logOf(a, 'warn', Buffer.from(`log limit of ${MAX_LOG} bytes reached: the rest is dropped`)))
          logged = -1
        } else this.logs.push(logOf(a, level, bytes))
      }
      this.say()
    }
    const progress = (done, total, message = '') => {
      if (a.result) return
      this.progress.set(a.key, { run: a.run, app: a.app, attempt: a.attempt, done: String(done), total: String(total), message: cut(message) })
      this.say()
    }
    try {
      const output = Buffer.from((await fn(a.task, { signal, log, progress })) ?? '')
      if (output.length > MAX_OUTPUT) {
        return { outcome: 'OUTCOME_PERMANENT', error: `the output is ${output.length} bytes, the limit is ${MAX_OUTPUT}`, code: 'output_limit', durationUs: durationUs() }
      }
      return { outcome: 'OUTCOME_SUCCEEDED', output, durationUs: durationUs() }
    } catch (e) {
      const text = cut(e?.message ?? e)
      if (e instanceof Failure && e.permanent) return { outcome: 'OUTCOME_PERMANENT', error: text, code: e.code, durationUs: durationUs() }
      if (signal.aborted) return { ...ended(signal.reason, text), durationUs: durationUs() }
      const [code, retryAfterMs, trace] = e instanceof Failure ? [e.code, e.retryAfterMs, ''] : ['exception', 0, cut(e?.stack ?? '')]
      return { outcome: 'OUTCOME_RETRYABLE', error: text, code, trace, retryAfterMs: String(retryAfterMs), durationUs: durationUs() }
    }
  }

  settle(a, result) {
    if (a.result) return
    a.result = { ...result, run: a.run, app: a.app, attempt: a.attempt, epoch: a.epoch, startedMs: String(a.started ?? 0) }
    a.task = { ...a.task, input: undefined } // it is not needed any more
    this.results.push(a)
    this.say()
    this.emit('settled')
  }

  // say sends what there is, once for all that happens in this turn.
  say() {
    if (this.saying || !this.stream) return
    this.saying = true
    setImmediate(() => {
      this.saying = false
      while (this.stream && this.sayOnce());
    })
  }

  sayOnce() {
    const want = this.draining ? 0 : Math.max(2 * (this.slots - Math.max(this.taken - this.busy(), 0)), 0)
    const credits = Math.max(want - this.busy() - this.granted, 0)
    if (!credits && !this.results.length && !this.logs.length && !this.progress.size && this.draining === this.saidDraining) return false
    const m = { credits, draining: this.draining, logs: this.logs.splice(0, 500), progress: [...this.progress.values()] }
    this.progress.clear()
    this.granted += credits
    this.saidDraining = this.draining
    if (!this.logs.length && this.results.length) { // a run's lines before its result (§4)
      let n = 0
      for (let size = 0; n < this.results.length && n < MAX_RESULTS && size < MAX_RESULT_BYTES; n++) size += this.results[n].result.output?.length ?? 0
      const attempts = this.results.splice(0, n)
      m.results = attempts.map((a) => a.result)
      m.batch = String(++this.batch)
      this.unacked.push({ n: this.batch, attempts })
    }
    this.stream.write(m)
    return true
  }

  heartbeat() {
    this.stream?.write({ load: { running: this.taken, queued: this.queue.length, memoryBytes: String(process.memoryUsage.rss()) } })
  }

  // drain takes no more, gives back what has not begun, lets functions finish for
  // a while, and returns when their results are with the server (§7).
  async drain() {
    this.draining = true
    for (const a of this.queue.splice(0)) this.settle(a, stopped('the host is shutting down', 'drained'))
    this.say()
    const timer = setTimeout(() => { for (const a of this.held.values()) this.stop(a, 'drained') }, this.drainTimeoutMs)
    while (this.busy()) await new Promise((resolve) => this.once('settled', resolve))
    clearTimeout(timer)
    const until = Date.now() + LAST_ACKS_MS
    while (this.held.size && this.stream && Date.now() < until) {
      await new Promise((resolve) => {
        const t = setTimeout(resolve, until - Date.now())
        this.once('acked', () => { clearTimeout(t); resolve() })
      })
    }
    this.ended = true
    this.stream?.end()
  }
}

const logOf = (a, level, text) => ({ run: a.run, app: a.app, attempt: a.attempt, lines: [{ timeMs: String(Date.now()), level: LEVELS[level] ?? 1, text }] })
const stopped = (error, code) => ({ outcome: 'OUTCOME_STOPPED', error, code })
const ended = (reason, error) => (reason === 'deadline' ? { outcome: 'OUTCOME_TIMED_OUT', error, code: reason } : stopped(error, reason))

module.exports = { Worker, Failure }
