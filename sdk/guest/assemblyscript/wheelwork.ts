// wheelwork.ts: what a handler written in AssemblyScript needs. One file; put it
// beside your source.
//
//   import { Context, run } from "./wheelwork";
//
//   export function wheelwork_handle(handler: i32): i32 {
//     return run([greet], handler);
//   }
//
//   function greet(ctx: Context): i32 {
//     ctx.info("hello");
//     ctx.writeText(ctx.text());
//     return OK;
//   }
//
//   asc main.ts -O3 --noAssert --runtime stub --use abort=wheelwork/abort -o handler.wasm
//
// AssemblyScript has no exceptions that can be caught: a handler returns its
// status, and what fails returns null or a number below 0. The first function
// given to run is the handler "main"; the manifest names the others in their
// order. A module imports only what it calls.

export namespace sys {
  // @ts-ignore: decorator
  @external("wheelwork_v1", "input_len") export declare function input_len(): i64;
  // @ts-ignore: decorator
  @external("wheelwork_v1", "input_read") export declare function input_read(off: i64, p: usize, cap: u32): i32;
  // @ts-ignore: decorator
  @external("wheelwork_v1", "param_get") export declare function param_get(key: usize, keyLen: u32, p: usize, cap: u32): i32;
  // @ts-ignore: decorator
  @external("wheelwork_v1", "output_write") export declare function output_write(p: usize, len: u32): i32;
  // @ts-ignore: decorator
  @external("wheelwork_v1", "fail") export declare function fail(kind: i32, retryAfterMs: i64, code: usize, codeLen: u32, msg: usize, msgLen: u32): i32;
  // @ts-ignore: decorator
  @external("wheelwork_v1", "log") export declare function log(level: i32, p: usize, len: u32): i32;
  // @ts-ignore: decorator
  @external("wheelwork_v1", "progress") export declare function progress(done: i64, total: i64, msg: usize, len: u32): i32;
  // @ts-ignore: decorator
  @external("wheelwork_v1", "cancelled") export declare function cancelled(): i32;
  // @ts-ignore: decorator
  @external("wheelwork_v1", "now_ms") export declare function now_ms(): i64;
  // @ts-ignore: decorator
  @external("wheelwork_v1", "random") export declare function random(p: usize, len: u32): i32;
  // @ts-ignore: decorator
  @external("wheelwork_v1", "sleep") export declare function sleep(ms: i64): i32;
  // @ts-ignore: decorator
  @external("wheelwork_v1", "checkpoint_get") export declare function checkpoint_get(p: usize, cap: u32): i32;
  // @ts-ignore: decorator
  @external("wheelwork_v1", "checkpoint_put") export declare function checkpoint_put(p: usize, len: u32): i32;
  // @ts-ignore: decorator
  @external("wheelwork_v1", "kv_get") export declare function kv_get(bucket: usize, bucketLen: u32, key: usize, keyLen: u32, p: usize, cap: u32, version: usize): i32;
  // @ts-ignore: decorator
  @external("wheelwork_v1", "kv_put") export declare function kv_put(bucket: usize, bucketLen: u32, key: usize, keyLen: u32, p: usize, len: u32): i64;
  // @ts-ignore: decorator
  @external("wheelwork_v1", "kv_cas") export declare function kv_cas(bucket: usize, bucketLen: u32, key: usize, keyLen: u32, p: usize, len: u32, expect: i64): i64;
  // @ts-ignore: decorator
  @external("wheelwork_v1", "kv_delete") export declare function kv_delete(bucket: usize, bucketLen: u32, key: usize, keyLen: u32, expect: i64): i32;
  // @ts-ignore: decorator
  @external("wheelwork_v1", "job_enqueue") export declare function job_enqueue(spec: usize, specLen: u32, id: usize, idCap: u32): i32;
  // @ts-ignore: decorator
  @external("wheelwork_v1", "map") export declare function map(p: usize, len: u32): i32;
  // @ts-ignore: decorator
  @external("wheelwork_v1", "secret_get") export declare function secret_get(name: usize, nameLen: u32, p: usize, cap: u32): i32;
  // @ts-ignore: decorator
  @external("wheelwork_v1", "http_send") export declare function http_send(head: usize, headLen: u32, body: usize, bodyLen: u32): i32;
  // @ts-ignore: decorator
  @external("wheelwork_v1", "http_head") export declare function http_head(handle: i32, p: usize, cap: u32): i32;
  // @ts-ignore: decorator
  @external("wheelwork_v1", "http_recv") export declare function http_recv(handle: i32, p: usize, cap: u32): i32;
  // @ts-ignore: decorator
  @external("wheelwork_v1", "http_close") export declare function http_close(handle: i32): i32;
  // @ts-ignore: decorator
  @external("wheelwork_v1", "metric_add") export declare function metric_add(name: usize, nameLen: u32, kind: i32, value: f64): i32;
  // @ts-ignore: decorator
  @external("wheelwork_v1", "job_next") export declare function job_next(timeoutMs: i32): i32;
  // @ts-ignore: decorator
  @external("wheelwork_v1", "job_done") export declare function job_done(status: i32): i32;
}

export const OK: i32 = 0;
export const RETRYABLE: i32 = 1;
export const PERMANENT: i32 = 2;
export const CANCELLED: i32 = 3;

// What functions return, negative: -ENOENT and so on.
export const EAGAIN: i32 = 6;
export const EBADF: i32 = 8;
export const ECANCELED: i32 = 11;
export const EQUOTA: i32 = 19;
export const ECONFLICT: i32 = 20;
export const EINVAL: i32 = 28;
export const EIO: i32 = 29;
export const EMFILE: i32 = 33;
export const ENOENT: i32 = 44;
export const ENOSYS: i32 = 52;
export const EOVERFLOW: i32 = 61;
export const ENOTCAPABLE: i32 = 76;

/** Any version, for Bucket.delete. */
export const ANY_VERSION: i64 = -1;

function utf8(text: string): Uint8Array { return Uint8Array.wrap(String.UTF8.encode(text)); }

// @ts-ignore: decorator
@inline function size(data: Uint8Array): u32 { return <u32>data.byteLength; }

function decode(data: Uint8Array): string { return String.UTF8.decodeUnsafe(data.dataStart, data.byteLength); }

/** Why the last function that returned null did, negative. */
export let lastError: i32 = 0;

/** A bucket of values. */
export class Bucket {
  private name: Uint8Array;
  /** The version of the entry that get read last. */
  version: i64 = 0;

  constructor(name: string) { this.name = utf8(name); }

  /** The value, or null; see lastError and version. */
  get(key: string): Uint8Array | null {
    const k = utf8(key), version = new Uint8Array(8);
    let buf = new Uint8Array(1024);
    let n = sys.kv_get(this.name.dataStart, size(this.name), k.dataStart, size(k), buf.dataStart, size(buf), version.dataStart);
    while (n > buf.byteLength) {
      buf = new Uint8Array(n);
      n = sys.kv_get(this.name.dataStart, size(this.name), k.dataStart, size(k), buf.dataStart, size(buf), version.dataStart);
    }
    if (n < 0) { lastError = n; return null; }
    this.version = load<i64>(version.dataStart);
    return buf.subarray(0, n);
  }

  /** Sets a value, whatever was there, and returns its version. */
  put(key: string, value: Uint8Array): i64 {
    const k = utf8(key);
    return sys.kv_put(this.name.dataStart, size(this.name), k.dataStart, size(k), value.dataStart, size(value));
  }

  /** Sets a value if the entry has the expected version, 0 for no entry at all. */
  cas(key: string, value: Uint8Array, expect: i64): i64 {
    const k = utf8(key);
    return sys.kv_cas(this.name.dataStart, size(this.name), k.dataStart, size(k), value.dataStart, size(value), expect);
  }

  /** Removes an entry that has the expected version, or ANY_VERSION. */
  delete(key: string, expect: i64 = ANY_VERSION): i32 {
    const k = utf8(key);
    return sys.kv_delete(this.name.dataStart, size(this.name), k.dataStart, size(k), expect);
  }
}

/** The answer to an HTTP request. */
export class Response {
  constructor(private handle: i32) {}

  /** Status and headers as JSON, or null. */
  head(): string | null {
    let buf = new Uint8Array(1024);
    let n = sys.http_head(this.handle, buf.dataStart, size(buf));
    while (n > buf.byteLength) {
      buf = new Uint8Array(n);
      n = sys.http_head(this.handle, buf.dataStart, size(buf));
    }
    if (n < 0) { lastError = n; return null; }
    return decode(buf.subarray(0, n));
  }

  /** Reads on in the body; 0 at its end. */
  read(buf: Uint8Array): i32 { return sys.http_recv(this.handle, buf.dataStart, size(buf)); }

  close(): void { sys.http_close(this.handle); }
}

/** The task at hand. */
export class Context {
  /** The input. */
  input(): Uint8Array {
    const buf = new Uint8Array(<i32>sys.input_len());
    sys.input_read(0, buf.dataStart, size(buf));
    return buf;
  }

  /** The input as text. */
  text(): string { return decode(this.input()); }

  /** Appends to the output; more than the limit ends the attempt. */
  write(data: Uint8Array): void { sys.output_write(data.dataStart, size(data)); }

  writeText(text: string): void { this.write(utf8(text)); }

  /** What the task tells about itself, or a variable of the job, or null. */
  param(name: string): string | null {
    const key = utf8(name);
    let buf = new Uint8Array(128);
    let n = sys.param_get(key.dataStart, size(key), buf.dataStart, size(buf));
    while (n > buf.byteLength) {
      buf = new Uint8Array(n);
      n = sys.param_get(key.dataStart, size(key), buf.dataStart, size(buf));
    }
    if (n < 0) { lastError = n; return null; }
    return decode(buf.subarray(0, n));
  }

  debug(text: string): void { this.log(0, text); }
  info(text: string): void { this.log(1, text); }
  warn(text: string): void { this.log(2, text); }
  error(text: string): void { this.log(3, text); }

  private log(level: i32, text: string): void {
    const data = utf8(text);
    sys.log(level, data.dataStart, size(data));
  }

  /** Tells how far the handler is; total 0 means unknown. */
  progress(done: i64, total: i64, message: string): void {
    const data = utf8(message);
    sys.progress(done, total, data.dataStart, size(data));
  }

  /** Whether to stop: it was cancelled, or its deadline is near. A handler that does returns CANCELLED. */
  cancelled(): bool { return sys.cancelled() != 0; }

  /** The host's clock in milliseconds since 1970. */
  nowMs(): i64 { return sys.now_ms(); }

  /** Random bytes of cryptographic quality. */
  random(n: i32): Uint8Array {
    const buf = new Uint8Array(n);
    sys.random(buf.dataStart, size(buf));
    return buf;
  }

  /** Waits. */
  sleepMs(ms: i64): void { sys.sleep(ms); }

  /** Another attempt would meet it again: `return ctx.failPermanent("code", "text");` */
  failPermanent(code: string, message: string): i32 { return this.fail(PERMANENT, 0, code, message); }

  /** Another attempt, not before so many milliseconds, may not meet it. */
  failRetryable(code: string, message: string, afterMs: i64 = 0): i32 { return this.fail(RETRYABLE, afterMs, code, message); }

  private fail(kind: i32, afterMs: i64, code: string, message: string): i32 {
    const c = utf8(code), m = utf8(message);
    sys.fail(kind, afterMs, c.dataStart, size(c), m.dataStart, size(m));
    return kind;
  }

  /** What an earlier attempt of this run left last, or null. */
  checkpoint(): Uint8Array | null {
    let buf = new Uint8Array(1024);
    let n = sys.checkpoint_get(buf.dataStart, size(buf));
    while (n > buf.byteLength) {
      buf = new Uint8Array(n);
      n = sys.checkpoint_get(buf.dataStart, size(buf));
    }
    if (n < 0) { lastError = n; return null; }
    return buf.subarray(0, n);
  }

  /** Keeps data for the next attempt of this run; durable when it returns 0. */
  setCheckpoint(data: Uint8Array): i32 { return sys.checkpoint_put(data.dataStart, size(data)); }

  /** A bucket of the app. */
  kv(bucket: string): Bucket { return new Bucket(bucket); }

  /** Makes a run of a job and returns its id, or null. spec is JSON, see the WIT. */
  enqueue(spec: string): string | null {
    const data = utf8(spec), id = new Uint8Array(128); // longer than any id: the call must not be made twice
    const n = sys.job_enqueue(data.dataStart, size(data), id.dataStart, size(id));
    if (n < 0) { lastError = n; return null; }
    return decode(id.subarray(0, n));
  }

  /** Adds parts to the run, each with an input. */
  map(inputs: Uint8Array[]): i32 {
    let total = 0;
    for (let i = 0; i < inputs.length; i++) total += 4 + inputs[i].byteLength;
    const buf = new Uint8Array(total);
    let at = buf.dataStart;
    for (let i = 0; i < inputs.length; i++) {
      const n = inputs[i].byteLength;
      store<u32>(at, n);
      memory.copy(at + 4, inputs[i].dataStart, n);
      at += 4 + n;
    }
    return sys.map(buf.dataStart, size(buf));
  }

  /** A secret of the app, or null. */
  secret(name: string): string | null {
    const key = utf8(name);
    let buf = new Uint8Array(256);
    let n = sys.secret_get(key.dataStart, size(key), buf.dataStart, size(buf));
    while (n > buf.byteLength) {
      buf = new Uint8Array(n);
      n = sys.secret_get(key.dataStart, size(key), buf.dataStart, size(buf));
    }
    if (n < 0) { lastError = n; return null; }
    return decode(buf.subarray(0, n));
  }

  /** Sends an HTTP request, or null; head is JSON, see the WIT. Close the response. */
  http(head: string, body: Uint8Array | null = null): Response | null {
    const h = utf8(head), b = body !== null ? body : new Uint8Array(0);
    const n = sys.http_send(h.dataStart, size(h), b.dataStart, size(b));
    if (n < 0) { lastError = n; return null; }
    return new Response(n);
  }

  /** Adds to a counter. */
  count(name: string, value: f64): i32 { return this.metric(name, 0, value); }
  /** Sets a gauge. */
  gauge(name: string, value: f64): i32 { return this.metric(name, 1, value); }
  /** Records into a histogram. */
  observe(name: string, value: f64): i32 { return this.metric(name, 2, value); }

  private metric(name: string, kind: i32, value: f64): i32 {
    const n = utf8(name);
    return sys.metric_add(n.dataStart, size(n), kind, value);
  }
}

/** Runs a handler to its status. */
export function run(handlers: ((ctx: Context) => i32)[], index: i32): i32 {
  const ctx = new Context();
  if (index < 0 || index >= handlers.length) {
    return ctx.failPermanent("no_handler", "the module has " + handlers.length.toString() + " handlers, the host asked for number " + index.toString());
  }
  return handlers[index](ctx);
}

/** Runs a batch, for an exported wheelwork_run. */
export function runBatch(handlers: ((ctx: Context) => i32)[], index: i32): i32 {
  while (sys.job_next(0) == 1) sys.job_done(run(handlers, index));
  return OK;
}

const panic = memory.data(256);

/** What a failed assertion calls: it is logged before the attempt ends with a trap. It allocates nothing. */
export function abort(message: string | null, file: string | null, line: u32, column: u32): void {
  if (message !== null) {
    const n = min(message.length, 85); // of UTF-16, each at most three bytes of UTF-8
    sys.log(3, panic, <u32>String.UTF8.encodeUnsafe(changetype<usize>(message), n, panic));
  }
  unreachable();
}
