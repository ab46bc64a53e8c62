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
// bytes(string), text(Uint8Array) and sleep(ms).
const host = globalThis.__wheelwork_host;
delete globalThis.__wheelwork_host;

const NO_ENTRY = -44;

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
    return value === NO_ENTRY ? undefined : host("text", value);
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
  sleep(ms) { host("sleep", ms); },
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
