"""The conformance handler in Python; see ../README.md for what each case does."""

from wheelwork import Cancelled, HostError, Permanent, Retryable

WORDS = {"NoEntry": "no entry\n", "Conflict": "conflict\n", "NotGranted": "not granted\n"}


def second(ctx):
    return "second"


def attempt(f):
    """What f returns, or what the host answered instead in words."""
    try:
        return f()
    except HostError as e:
        return WORDS.get(e.reason, f"error {e.reason}\n")


def echo(ctx):
    return ctx.input


def params(ctx):
    for key in ["run_id", "app", "job", "attempt", "max_attempts", "GREETING", "LONG", "missing"]:
        value = ctx.param(key)
        ctx.write(f"{key}!\n" if value is None else f"{key}={value}\n")


def checksum(ctx):
    h = 2166136261
    for b in ctx.input:
        h = ((h ^ b) * 16777619) & 0xFFFFFFFF
    return f"{h:08x}"


def retryable(ctx):
    raise Retryable("busy", "try later: é", after=1.5)


def permanent(ctx):
    raise Permanent("bad_input", "cannot do that")


def logs(ctx):
    ctx.log.debug("fine")
    print("one\ntwo")
    ctx.log.warn("beware: ünï")
    ctx.log.error("漢字")


def progress(ctx):
    ctx.progress(1, 4, "one of four")
    ctx.progress(4, 4, "all ✓")


def cancelled(ctx):
    ctx.log.info("waiting")
    while not ctx.cancelled():
        pass
    raise Cancelled


def clock(ctx):
    return str(ctx.now_ms())


def random(ctx):
    return ctx.random(16).hex()


def sleep(ctx):
    import time

    time.sleep(0.02)
    return "slept"


def checkpoint(ctx):
    left = ctx.checkpoint()
    if left is not None:
        return left
    ctx.set_checkpoint("step 1")
    raise Retryable("again", "the first attempt stops here")


def kv(ctx):
    state = ctx.kv("state")

    def show():
        entry = state.get("k")
        if entry is None:
            ctx.write("no entry\n")
        else:
            ctx.write(entry[0] + (b"\n" if entry[1] > 0 else b" without a version\n"))

    show()
    first = state.put("k", "one")
    show()
    state.cas("k", "two", first)
    ctx.write(attempt(lambda: str(state.cas("k", "three", first))))
    show()
    state.delete("k")
    show()
    ctx.write(attempt(lambda: str(ctx.kv("other").put("k", "x"))))


def enqueue(ctx):
    return ctx.enqueue("next", input="hello")


def map(ctx):
    ctx.map(["a", "", "ccc"])


def secret(ctx):
    return attempt(lambda: ctx.secret("token") or "no entry\n")


def http(ctx):
    def send():
        response = ctx.http(ctx.text(), method="POST", headers={"X-Case": "http"}, body="ping")
        return '{"status":%d\n%s' % (response.status, response.text())

    return attempt(send)


def metric(ctx):
    ctx.count("orders", 2.5)
    ctx.gauge("load", 0.25)
    ctx.observe("size", 7)


CASES = [echo, params, checksum, retryable, permanent, logs, progress, cancelled, clock, random, sleep, checkpoint, kv, enqueue, map, secret, http, metric]


def main(ctx):
    name = ctx.param("CASE") or "echo"
    for case in CASES:
        if case.__name__ == name:
            return case(ctx)
    raise Permanent("no_case", name)
