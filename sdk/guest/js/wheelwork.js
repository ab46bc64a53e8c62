// wheelwork.js: what a handler written in JavaScript imports as "wheelwork".
// It is packed into the script when that is pushed. A handler is a function that
// the main file exports; "default" is the handler main.
//
//   import { Permanent } from "wheelwork";
//
//   export default function main(ctx) {
//     ctx.log.info("hello");
//     return ctx.text();
//   }
//
// Names and types are in wheelwork.d.ts.

// host calls a function of the host by its name in wheelwork.wit. A number is a
// number; a string or a Uint8Array is a pointer and a length. It also knows
// bytes(string), text(Uint8Array), address(Uint8Array) and pause(ms).
const host = globalThis.__wheelwork_host;
delete globalThis.__wheelwork_host;

const NO_ENTRY = 44;
const names = {
  6: "Unavailable", 8: "BadHandle", 11: "Interrupted", 19: "Quota", 20: "Conflict", 28: "Invalid", 29: "ServiceFailed",
  33: "Handles", 44: "NoEntry", 52: "NotServed", 61: "TooLarge", 76: "NotGranted",
};

/** What a function of the host answers instead of doing its work. reason is one
 * of Unavailable, Interrupted, Quota, Conflict, Invalid, ServiceFailed, Handles,
 * NoEntry, NotServed, TooLarge, NotGranted. */
export class HostError extends Error {
  constructor(what, n) {
    const reason = names[-n] ?? `Unknown${-n}`;
    super(`${what}: ${reason}`);
    this.name = "HostError";
    this.reason = reason;
  }
}

function check(what, n) {
  if (n < 0) throw new HostError(what, n);
  return n;
}

// bytes is data as a Uint8Array: text in UTF-8, what is no data in JSON.
function bytes(data) {
  if (typeof data === "string") return host("bytes", data);
  if (data instanceof Uint8Array) return data;
  if (data instanceof ArrayBuffer) return new Uint8Array(data);
  if (ArrayBuffer.isView(data)) return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  const text = JSON.stringify(data);
  if (text === undefined) throw new TypeError(`a ${typeof data} is no data: use text, bytes or what JSON can write`);
  return host("bytes", text);
}

// fill calls read with a buffer until it is large enough. Below 0 is an error.
function fill(size, read) {
  for (;;) {
    const buf = new Uint8Array(size);
    const n = read(buf);
    if (n < 0) return n;
    if (n <= size) return n === size ? buf : buf.slice(0, n);
    size = n;
  }
}

/** A failure that says more than its message. */
export class Failure extends Error {
  constructor(code, message, { permanent = false, afterMs = 0 } = {}) {
    super(message);
    this.name = "Failure";
    this.code = code;
    this.permanent = permanent;
    this.afterMs = afterMs;
  }
}

/** A failure that another attempt would meet again. */
export class Permanent extends Failure {
  constructor(code, message) {
    super(code, message, { permanent: true });
    this.name = "Permanent";
  }
}

/** A failure that another attempt, not before afterMs, may not meet. */
export class Retryable extends Failure {
  constructor(code, message, afterMs = 0) {
    super(code, message, { afterMs });
    this.name = "Retryable";
  }
}

/** What a handler throws when it stopped because ctx.cancelled() said so. */
export class Cancelled extends Error {
  constructor() {
    super("cancelled");
    this.name = "Cancelled";
  }
}

const say = (level) => (...parts) => {
  host("log", level, parts.map((p) => (typeof p === "string" ? p : p instanceof Error ? describe(p) : JSON.stringify(p) ?? String(p))).join(" "));
};
const log = Object.freeze({ debug: say(0), info: say(1), warn: say(2), error: say(3) });

globalThis.console = { log: log.info, debug: log.debug, info: log.info, warn: log.warn, error: log.error };
globalThis.TextEncoder = class TextEncoder {
  get encoding() { return "utf-8"; }
  encode(text = "") { return host("bytes", String(text)); }
};
globalThis.TextDecoder = class TextDecoder {
  get encoding() { return "utf-8"; }
  decode(data) { return data === undefined ? "" : host("text", bytes(data)); }
};
// The interpreter seeds its own generator once, before the state that every task
// starts from: it would repeat in each.
Math.random = () => {
  const b = random(7);
  return ((b[0] & 31) * 2 ** 48 + b[1] * 2 ** 40 + b[2] * 2 ** 32 + b[3] * 2 ** 24 + b[4] * 2 ** 16 + b[5] * 2 ** 8 + b[6]) / 2 ** 53;
};

function random(n) {
  const buf = new Uint8Array(n);
  host("random", buf);
  return buf;
}

function input() {
  const buf = new Uint8Array(host("input_len"));
  host("input_read", 0, buf);
  return buf;
}

const optional = (what, value) => {
  if (value === -NO_ENTRY) return undefined;
  if (typeof value === "number") throw new HostError(what, value);
  return value;
};

/** A bucket of values of the app. */
class Bucket {
  #name;
  constructor(name) { this.#name = String(name); }

  /** The entry {value, version, text()}, or undefined. */
  get(key) {
    const version = new Uint8Array(8);
    const value = optional("kv_get", fill(1024, (buf) => host("kv_get", this.#name, key, buf, host("address", version))));
    if (value === undefined) return undefined;
    const number = Number(new DataView(version.buffer).getBigUint64(0, true));
    return { value, version: number, text: () => host("text", value) };
  }

  /** Sets a value, whatever was there, and returns its version. */
  put(key, value) { return check("kv_put", host("kv_put", this.#name, key, bytes(value))); }

  /** Sets a value if the entry has the expected version, 0 for no entry at all. */
  cas(key, value, expect) { return check("kv_cas", host("kv_cas", this.#name, key, bytes(value), expect)); }

  /** Removes an entry that has the expected version; any will do unless it is given. */
  delete(key, expect = -1) { check("kv_delete", host("kv_delete", this.#name, key, expect)); }
}

/** The answer to an HTTP request. */
class Response {
  #handle;
  constructor(handle) {
    this.#handle = handle;
    const head = JSON.parse(host("text", optional("http_head", fill(1024, (buf) => host("http_head", handle, buf)))));
    this.status = head.status;
    this.headers = head.headers ?? {};
  }

  /** Up to n more bytes of the body; none are left when there are none. */
  read(n = 4096) {
    const buf = new Uint8Array(n);
    return buf.slice(0, check("http_recv", host("http_recv", this.#handle, buf)));
  }

  /** The rest of the body. */
  bytes() {
    const parts = [];
    let size = 0;
    for (;;) {
      const part = this.read(65536);
      if (part.length === 0) break;
      parts.push(part);
      size += part.length;
    }
    this.close();
    const all = new Uint8Array(size);
    let at = 0;
    for (const part of parts) {
      all.set(part, at);
      at += part.length;
    }
    return all;
  }
  text() { return host("text", this.bytes()); }
  json() { return JSON.parse(this.text()); }
  close() { host("http_close", this.#handle); }
}

const metric = (kind) => (name, value) => { check("metric_add", host("metric_add", name, kind, value)); };

/** The task at hand, which every handler gets. */
export const ctx = Object.freeze({
  /** The input as bytes. */
  get input() { return input(); },
  /** The input as text. */
  text() { return host("text", input()); },
  /** The input as JSON; text that is none is a permanent failure. */
  json() {
    const text = ctx.text();
    try {
      return JSON.parse(text);
    } catch (e) {
      throw new Permanent("bad_input", `the input is not JSON: ${e.message}`);
    }
  },
  /** What the task tells about itself, or a variable of the job; undefined when there is none. */
  param(name) {
    const value = fill(128, (buf) => host("param_get", name, buf));
    return value === -NO_ENTRY ? undefined : host("text", value);
  },
  /** Appends to the output. What a handler returns is appended too. */
  write(data) { host("output_write", bytes(data)); },
  log,
  /** Tells how far the handler is; total 0 means unknown. */
  progress(done, total = 0, message = "") { host("progress", done, total, message); },
  /** Whether to stop: it was cancelled, or its deadline is near. */
  cancelled() { return host("cancelled") !== 0; },
  /** The host's clock. */
  now() { return new Date(host("now_ms")); },
  /** n random bytes of cryptographic quality. */
  random,
  /** Waits; nothing else of this script runs meanwhile. */
  sleep(ms) { host("pause", ms); },
  /** What an earlier attempt of this run left last; undefined when none did. */
  checkpoint() { return optional("checkpoint_get", fill(1024, (buf) => host("checkpoint_get", buf))); },
  /** Keeps data for the next attempt of this run; durable when it returns. */
  setCheckpoint(data) { check("checkpoint_put", host("checkpoint_put", bytes(data))); },
  /** A bucket of the app. */
  kv(bucket) { return new Bucket(bucket); },
  /** Makes a run of a job and returns its id. */
  enqueue({ job, app, input, key, delayMs }) {
    const spec = { job, app, key, delay_ms: delayMs };
    if (input !== undefined) spec.input = typeof input === "string" ? input : host("text", bytes(input));
    const id = new Uint8Array(128); // longer than any id: the call must not be made twice
    const n = check("job_enqueue", host("job_enqueue", JSON.stringify(spec), id));
    return host("text", id.slice(0, n));
  },
  /** Adds parts to the run, each with an input. */
  map(inputs) {
    const list = inputs.map(bytes);
    const all = new Uint8Array(list.reduce((n, b) => n + 4 + b.length, 0));
    const view = new DataView(all.buffer);
    let at = 0;
    for (const b of list) {
      view.setUint32(at, b.length, true);
      all.set(b, at + 4);
      at += 4 + b.length;
    }
    check("map", host("map", all));
  },
  /** A secret of the app as text; undefined when there is none. */
  secret(name) {
    const value = optional("secret_get", fill(256, (buf) => host("secret_get", name, buf)));
    return value === undefined ? undefined : host("text", value);
  },
  /** Sends an HTTP request: {method, url, headers, body}. */
  http({ method = "GET", url, headers = {}, body = "" }) {
    return new Response(check("http_send", host("http_send", JSON.stringify({ method, url, headers }), bytes(body))));
  },
  /** Adds to a counter. */
  count: metric(0),
  /** Sets a gauge. */
  gauge: metric(1),
  /** Records into a histogram. */
  observe: metric(2),
});

const RETRYABLE = 1, PERMANENT = 2, CANCELLED = 3;

// tell reports what a handler threw, and returns the status for it.
function tell(e) {
  if (e instanceof Cancelled) return CANCELLED;
  const own = e instanceof Failure;
  const kind = own && e.permanent ? PERMANENT : RETRYABLE;
  const message = own ? e.message : e instanceof Error ? `${e.name}: ${e.message}` : String(e);
  if (!own && e instanceof Error && e.stack) log.error(describe(e));
  host("fail", kind, own ? Math.max(0, Math.round(e.afterMs)) : 0, own ? String(e.code ?? "") : "exception", message);
  return kind;
}

/** An error as text, with its stack. */
export function describe(e) {
  if (!(e instanceof Error)) return String(e);
  const stack = (e.stack ?? "").trimEnd();
  return stack === "" ? `${e.name}: ${e.message}` : `${e.name}: ${e.message}\n${stack}`;
}

// run is what the host calls: it runs one handler to its status. It is no
// promise when the handler is no async function.
export function run(handlers, name) {
  const handler = Object.hasOwn(handlers, name) ? handlers[name] : name === "main" ? handlers.default : undefined;
  if (typeof handler !== "function") {
    return tell(new Permanent("no_handler", `the script exports no function ${name}; it exports: ${Object.keys(handlers).join(", ") || "nothing"}`));
  }
  const done = (value) => {
    if (value !== undefined && value !== null) ctx.write(value);
    return 0;
  };
  try {
    const value = handler(ctx);
    if (value instanceof Promise) return value.then(done).catch(tell);
    return done(value);
  } catch (e) {
    return tell(e);
  }
}
