// The conformance handler in AssemblyScript; see ../README.md for what each case does.
import { Bucket, CANCELLED, Context, ECONFLICT, ENOENT, ENOTCAPABLE, OK, lastError, run, runBatch } from "./wheelwork";

export function wheelwork_handle(handler: i32): i32 { return run([runCase, second], handler); }

export function wheelwork_run(handler: i32): i32 { return runBatch([runCase, second], handler); }

function second(ctx: Context): i32 {
  ctx.writeText("second");
  return OK;
}

function bytes(text: string): Uint8Array { return Uint8Array.wrap(String.UTF8.encode(text)); }

function explain(e: i64): string {
  if (e == -ENOENT) return "no entry\n";
  if (e == -ECONFLICT) return "conflict\n";
  if (e == -ENOTCAPABLE) return "not granted\n";
  return "error " + (-e).toString() + "\n";
}

function hex(value: u32, digits: i32): string {
  let out = "";
  for (let i = digits - 1; i >= 0; i--) out += "0123456789abcdef".charAt((value >> (4 * i)) & 15);
  return out;
}

function runCase(ctx: Context): i32 {
  const given = ctx.param("CASE");
  const name = given !== null ? given : "echo";
  if (name == "echo") {
    ctx.write(ctx.input());
  } else if (name == "params") {
    const keys = ["run_id", "app", "job", "attempt", "max_attempts", "GREETING", "LONG", "missing"];
    for (let i = 0; i < keys.length; i++) {
      const value = ctx.param(keys[i]);
      ctx.writeText(value !== null ? keys[i] + "=" + value + "\n" : keys[i] + "!\n");
    }
  } else if (name == "checksum") {
    const data = ctx.input();
    let h: u32 = 2166136261;
    for (let i = 0; i < data.length; i++) h = (h ^ data[i]) * 16777619;
    ctx.writeText(hex(h, 8));
  } else if (name == "retryable") {
    return ctx.failRetryable("busy", "try later: é", 1500);
  } else if (name == "permanent") {
    return ctx.failPermanent("bad_input", "cannot do that");
  } else if (name == "logs") {
    ctx.debug("fine");
    ctx.info("one\ntwo");
    ctx.warn("beware: ünï");
    ctx.error("漢字");
  } else if (name == "progress") {
    ctx.progress(1, 4, "one of four");
    ctx.progress(4, 4, "all ✓");
  } else if (name == "cancelled") {
    ctx.info("waiting");
    while (!ctx.cancelled()) {}
    return CANCELLED;
  } else if (name == "clock") {
    ctx.writeText(ctx.nowMs().toString());
  } else if (name == "random") {
    const data = ctx.random(16);
    let out = "";
    for (let i = 0; i < data.length; i++) out += hex(data[i], 2);
    ctx.writeText(out);
  } else if (name == "sleep") {
    ctx.sleepMs(20);
    ctx.writeText("slept");
  } else if (name == "checkpoint") {
    const left = ctx.checkpoint();
    if (left === null) {
      if (lastError != -ENOENT) return ctx.failRetryable("", explain(lastError));
      ctx.setCheckpoint(bytes("step 1"));
      return ctx.failRetryable("again", "the first attempt stops here");
    }
    ctx.write(left);
  } else if (name == "kv") {
    kv(ctx);
  } else if (name == "enqueue") {
    const id = ctx.enqueue('{"job":"next","input":"hello"}');
    ctx.writeText(id !== null ? id : explain(lastError));
  } else if (name == "map") {
    const n = ctx.map([bytes("a"), bytes(""), bytes("ccc")]);
    if (n < 0) ctx.writeText(explain(n));
  } else if (name == "secret") {
    const value = ctx.secret("token");
    ctx.writeText(value !== null ? value : explain(lastError));
  } else if (name == "http") {
    http(ctx);
  } else if (name == "metric") {
    ctx.count("orders", 2.5);
    ctx.gauge("load", 0.25);
    ctx.observe("size", 7);
  } else {
    return ctx.failPermanent("no_case", name);
  }
  return OK;
}

function show(ctx: Context, bucket: Bucket): void {
  const value = bucket.get("k");
  if (value === null) {
    ctx.writeText(explain(lastError));
    return;
  }
  ctx.write(value);
  ctx.writeText(bucket.version > 0 ? "\n" : " without a version\n");
}

function kv(ctx: Context): void {
  const state = ctx.kv("state");
  show(ctx, state);
  const first = state.put("k", bytes("one"));
  show(ctx, state);
  let n = state.cas("k", bytes("two"), first);
  if (n < 0) ctx.writeText(explain(n));
  n = state.cas("k", bytes("three"), first);
  if (n < 0) ctx.writeText(explain(n));
  show(ctx, state);
  state.delete("k");
  show(ctx, state);
  n = ctx.kv("other").put("k", bytes("x"));
  if (n < 0) ctx.writeText(explain(n));
}

function http(ctx: Context): void {
  const response = ctx.http('{"method":"POST","url":"' + ctx.text() + '","headers":{"X-Case":"http"}}', bytes("ping"));
  if (response === null) {
    ctx.writeText(explain(lastError));
    return;
  }
  const head = response.head();
  ctx.writeText((head !== null ? head : explain(lastError)).substring(0, 13) + "\n");
  const buf = new Uint8Array(1024);
  for (;;) {
    const n = response.read(buf);
    if (n <= 0) break;
    ctx.write(buf.subarray(0, n));
  }
  response.close();
}
