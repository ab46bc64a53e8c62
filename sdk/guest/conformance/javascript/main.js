// The conformance handler in JavaScript; see ../README.md for what each case does.
import { Cancelled, HostError, Permanent, Retryable } from "wheelwork";

export function second() {
  return "second";
}

const words = { NoEntry: "no entry\n", Conflict: "conflict\n", NotGranted: "not granted\n" };

// attempt is what f returns, or what the host answered instead in words.
function attempt(f) {
  try {
    return f();
  } catch (e) {
    if (e instanceof HostError) return words[e.reason] ?? `error ${e.reason}\n`;
    throw e;
  }
}

const cases = {
  echo: (ctx) => ctx.input,
  params: (ctx) => ["run_id", "app", "job", "attempt", "max_attempts", "GREETING", "LONG", "missing"]
    .map((key) => [key, ctx.param(key)])
    .map(([key, value]) => (value === undefined ? `${key}!\n` : `${key}=${value}\n`)).join(""),
  checksum(ctx) {
    let h = 2166136261;
    for (const b of ctx.input) h = Math.imul(h ^ b, 16777619) >>> 0;
    return h.toString(16).padStart(8, "0");
  },
  retryable() { throw new Retryable("busy", "try later: é", 1500); },
  permanent() { throw new Permanent("bad_input", "cannot do that"); },
  logs(ctx) {
    ctx.log.debug("fine");
    console.log("one\ntwo");
    ctx.log.warn("beware:", "ünï");
    ctx.log.error("漢字");
  },
  progress(ctx) {
    ctx.progress(1, 4, "one of four");
    ctx.progress(4, 4, "all ✓");
  },
  cancelled(ctx) {
    ctx.log.info("waiting");
    while (!ctx.cancelled());
    throw new Cancelled();
  },
  clock: (ctx) => String(ctx.now().getTime()),
  random: (ctx) => [...ctx.random(16)].map((b) => b.toString(16).padStart(2, "0")).join(""),
  sleep(ctx) {
    ctx.sleep(20);
    return "slept";
  },
  checkpoint(ctx) {
    const left = ctx.checkpoint();
    if (left !== undefined) return left;
    ctx.setCheckpoint("step 1");
    throw new Retryable("again", "the first attempt stops here");
  },
  kv(ctx) {
    const state = ctx.kv("state");
    const show = () => {
      const entry = state.get("k");
      ctx.write(entry === undefined ? "no entry\n" : entry.text() + (entry.version > 0 ? "\n" : " without a version\n"));
    };
    show();
    const first = state.put("k", "one");
    show();
    state.cas("k", "two", first);
    ctx.write(attempt(() => `${state.cas("k", "three", first)}`));
    show();
    state.delete("k");
    show();
    ctx.write(attempt(() => `${ctx.kv("other").put("k", "x")}`));
  },
  enqueue: (ctx) => ctx.enqueue({ job: "next", input: "hello" }),
  map: (ctx) => ctx.map(["a", "", "ccc"]),
  secret: (ctx) => attempt(() => ctx.secret("token") ?? "no entry\n"),
  http: (ctx) => attempt(() => {
    const response = ctx.http({ method: "POST", url: ctx.text(), headers: { "X-Case": "http" }, body: "ping" });
    return `{"status":${response.status}\n${response.text()}`;
  }),
  metric(ctx) {
    ctx.count("orders", 2.5);
    ctx.gauge("load", 0.25);
    ctx.observe("size", 7);
  },
};

export default async function main(ctx) {
  const name = ctx.param("CASE") ?? "echo";
  if (!Object.hasOwn(cases, name)) throw new Permanent("no_case", name);
  return cases[name](ctx);
}
