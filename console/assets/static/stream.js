// One event stream for all tabs of a browser. A browser opens at most six connections to
// an origin over HTTP/1.1, so a stream for each tab would leave none for pages.
//
// Visible tabs compete for a lock. Its holder, the leader, has the stream and passes events
// on to the other tabs over a channel. A hidden tab gives up the lock and its subscription,
// and continues with the next line of its log when it is visible again. Without locks, as on
// plain HTTP to another machine, each visible tab has a stream of its own.

const NAME = "wheelwork-events"; // of the lock and of the channel
const SETTLE_MS = 30;      // subscriptions that change together need one new stream
const RETRY_MS = 2000;     // after the stream was lost
const RENEW_MS = 20000;    // of subscriptions, so that the leader forgets a tab that crashed
const FORGET_MS = 60000;

const page = `${performance.timeOrigin}-${Math.random()}`;

// Leader holds the stream. Its subscriptions are by page: the run, the first line that the
// page lacks, whether the stream contains this page's lines, and the time of the last sign
// of life.
class Leader {
  #pages = new Map();
  #source = null;
  #timer = 0;
  #send;

  constructor(send) { this.#send = send; }

  subscribe({ page, run, from }) {
    const known = this.#pages.get(page);
    if (known) { known.seen = Date.now(); return; }
    this.#pages.set(page, { run, from, live: false, seen: Date.now() });
    this.#later(SETTLE_MS);
  }

  unsubscribe(page) {
    if (this.#pages.delete(page)) this.#later(SETTLE_MS);
  }

  forget() {
    for (const [page, p] of this.#pages) if (Date.now() - p.seen > FORGET_MS) this.unsubscribe(page);
  }

  close() {
    clearTimeout(this.#timer);
    this.#source?.close();
    this.#source = null;
    this.#pages.clear();
  }

  #later(ms) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#open(), ms);
  }

  #open() {
    this.#source?.close();
    this.#source = null;
    const from = new Map(); // by run: the first line that one of its pages lacks
    for (const p of this.#pages.values()) {
      p.live = true;
      from.set(p.run, Math.min(p.from, from.get(p.run) ?? Infinity));
    }
    if (from.size === 0) return;
    const query = [...from].map(([run, n]) => `run=${encodeURIComponent(`${run}@${n}`)}`).join("&");
    const source = this.#source = new EventSource(`/events?${query}`);
    source.addEventListener("open", () => this.#send({ status: "open" }));
    source.addEventListener("error", () => {
      if (source !== this.#source) return;
      source.close();
      this.#send({ status: "lost" });
      this.#later(RETRY_MS);
    });
    for (const name of ["log", "run", "end"]) {
      source.addEventListener(name, (e) => { if (source === this.#source) this.#pass(name, JSON.parse(e.data)); });
    }
  }

  #pass(name, data) {
    const to = [];
    for (const [page, p] of this.#pages) {
      if (p.run !== data.run || !p.live) continue;
      to.push(page);
      if (name === "log") p.from = Math.max(p.from, data.offset + 1);
      if (name === "end") this.#pages.delete(page);
    }
    if (to.length > 0) this.#send({ name, data, to });
    if (this.#pages.size === 0) this.close();
  }
}

// follow calls the handlers for the events of a run ("app/id"): log, run, end, and status
// with "open" or "lost". When the tab becomes visible again, it calls shown. The log begins at the line
// begin.
export function follow(run, handlers, begin = 0) {
  const alone = !navigator.locks || typeof BroadcastChannel === "undefined";
  let channel = null;
  let leader = null;
  let leave = null;  // gives up the lock, or the wait for it
  let from = begin;  // the first line that this page lacks
  let ended = false;

  const hear = ({ status, name, data, to }) => {
    if (status) { if (!ended) handlers.status(status); return; }
    if (!to.includes(page) || ended) return;
    if (name === "log") from = Math.max(from, data.offset + 1);
    if (name === "end") ended = true;
    handlers[name](data);
  };
  const post = (message) => channel?.postMessage(message);
  const subscribe = () => {
    if (ended) return;
    const subscription = { page, run, from };
    if (leader) leader.subscribe(subscription); else post({ subscribe: subscription });
  };
  const lead = () => {
    leader = new Leader((message) => { // to other tabs only what they need
      hear(message);
      if (!message.to || message.to.some((p) => p !== page)) post(message);
    });
    subscribe();
    post({ ask: true });
  };

  function start() {
    if (alone) { lead(); return; }
    channel = new BroadcastChannel(NAME);
    channel.addEventListener("message", (e) => {
      const m = e.data;
      if (m.ask) subscribe();
      else if (m.subscribe) leader?.subscribe(m.subscribe);
      else if (m.unsubscribe) leader?.unsubscribe(m.unsubscribe);
      else hear(m);
    });
    const waiting = new AbortController();
    leave = () => waiting.abort();
    navigator.locks.request(NAME, { signal: waiting.signal }, () => new Promise((release) => {
      if (waiting.signal.aborted) { release(); return; }
      leave = release;
      lead();
    })).catch(() => {}); // the wait was given up
    subscribe();
  }
  function stop() {
    leader?.close();
    leader = null;
    post({ unsubscribe: page });
    channel?.close();
    channel = null;
    leave?.();
    leave = null;
  }

  let running = false;
  function adapt() {
    const wanted = !document.hidden;
    if (wanted === running) return;
    running = wanted;
    if (running) start(); else stop();
  }
  adapt();
  document.addEventListener("visibilitychange", () => {
    adapt();
    if (running) handlers.shown();
  });
  addEventListener("pagehide", () => { if (running) { running = false; stop(); } });
  setInterval(() => {
    if (!running) return;
    leader?.forget();
    subscribe();
  }, RENEW_MS);
}
