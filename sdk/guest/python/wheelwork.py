"""What a handler written in Python imports as wheelwork.

It is packed into the script when that is pushed. A handler is a function of the
main file, by its name:

    from wheelwork import Permanent

    def main(ctx):
        ctx.log.info("hello")
        return ctx.text()

What a handler returns is its output: bytes, text in UTF-8, and everything else
but None as JSON. What it prints goes to the log.
"""

import json
import os
import struct
import sys

__all__ = ["Cancelled", "Context", "Failure", "HostError", "Permanent", "Retryable", "ctx"]

_NO_ENTRY = -44
_REASONS = {
    6: "Unavailable", 8: "BadHandle", 11: "Interrupted", 19: "Quota", 20: "Conflict", 28: "Invalid", 29: "ServiceFailed",
    33: "Handles", 44: "NoEntry", 52: "NotServed", 61: "TooLarge", 76: "NotGranted",
}
_OK, _RETRYABLE, _PERMANENT, _CANCELLED = 0, 1, 2, 3
_CHUNK = 1 << 20  # bytes of data in one request


class _Out:
    """A buffer that the host fills: pointer and length."""

    def __init__(self, size):
        self.size = size
        self.data = b""
        self.tag = b"o"


class _Out8(_Out):
    """Eight bytes that the host fills: the pointer alone."""

    def __init__(self):
        super().__init__(8)
        self.tag = b"p"


def _host(name, *args):
    """Calls a function of the host by its name in wheelwork.wit.

    A number is a number; text and bytes are a pointer and a length; an _Out is
    one that the host writes to.
    """
    parts = [struct.pack("<B", len(name)), name.encode(), struct.pack("<B", len(args))]
    outs = []
    for arg in args:
        if isinstance(arg, int):
            parts.append(struct.pack("<cq", b"i", arg))
        elif isinstance(arg, float):
            parts.append(struct.pack("<cd", b"f", arg))
        elif isinstance(arg, _Out):
            parts.append(struct.pack("<cI", arg.tag, arg.size))
            outs.append(arg)
        else:
            data = arg.encode("utf-8", "replace") if isinstance(arg, str) else bytes(arg)
            parts.append(struct.pack("<cI", b"b", len(data)))
            parts.append(data)
    request = b"".join(parts)
    _send(struct.pack("<I", len(request)) + request)
    (result,) = struct.unpack("<q", _receive(8))
    for out in outs:
        out.data = _receive(out.size)
    return result


def _send(data):
    view = memoryview(data)
    while view:
        view = view[os.write(1, view):]


def _receive(size):
    parts = []
    while size > 0:
        part = os.read(0, size)
        if not part:
            raise EOFError("the host does not answer")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _fill(size, read):
    """Calls read with buffers until one is large enough; below 0 is an error."""
    while True:
        out = _Out(size)
        n = read(out)
        if n < 0:
            return n
        if n <= size:
            return out.data[:n]
        size = n


def _data(value):
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, str):
        return value.encode("utf-8")
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


class Failure(Exception):
    """A failure that says more than its message."""

    def __init__(self, code, message, permanent=False, after=0.0):
        super().__init__(message)
        self.code = code
        self.permanent = permanent
        self.after = after  # seconds before another attempt; 0 leaves it to the job


class Permanent(Failure):
    """A failure that another attempt would meet again."""

    def __init__(self, code, message):
        super().__init__(code, message, permanent=True)


class Retryable(Failure):
    """A failure that another attempt, not before so many seconds, may not meet."""

    def __init__(self, code, message, after=0.0):
        super().__init__(code, message, after=after)


class HostError(Exception):
    """What a function of the host answers instead of doing its work.

    reason is one of Unavailable, Interrupted, Quota, Conflict, Invalid,
    ServiceFailed, Handles, NoEntry, NotServed, TooLarge, NotGranted.
    """

    def __init__(self, what, n):
        self.reason = _REASONS.get(-n, f"Unknown{-n}")
        super().__init__(f"{what}: {self.reason}")


def _check(what, n):
    if n < 0:
        raise HostError(what, n)
    return n


def _optional(what, value):
    if isinstance(value, int):
        if value == _NO_ENTRY:
            return None
        raise HostError(what, value)
    return value


class Bucket:
    """A bucket of values of the app."""

    def __init__(self, name):
        self._name = name

    def get(self, key):
        """The value and its version, or None."""
        version = _Out8()
        value = _optional("kv_get", _fill(1024, lambda out: _host("kv_get", self._name, key, out, version)))
        return None if value is None else (value, int.from_bytes(version.data, "little"))

    def put(self, key, value):
        """Sets a value, whatever was there, and returns its version."""
        return _check("kv_put", _host("kv_put", self._name, key, _data(value)))

    def cas(self, key, value, expect):
        """Sets a value if the entry has the expected version, 0 for no entry at all."""
        return _check("kv_cas", _host("kv_cas", self._name, key, _data(value), expect))

    def delete(self, key, expect=-1):
        """Removes an entry that has the expected version; any will do unless it is given."""
        _check("kv_delete", _host("kv_delete", self._name, key, expect))


class Response:
    """The answer to an HTTP request."""

    def __init__(self, handle):
        self._handle = handle
        head = json.loads(_optional("http_head", _fill(1024, lambda out: _host("http_head", handle, out))))
        self.status = head["status"]
        self.headers = head.get("headers") or {}

    def read(self, size=65536):
        """Up to size more bytes of the body; none when it has ended."""
        out = _Out(size)
        n = _check("http_recv", _host("http_recv", self._handle, out))
        return out.data[:n]

    def bytes(self):
        """The rest of the body."""
        parts = []
        while part := self.read():
            parts.append(part)
        self.close()
        return b"".join(parts)

    def text(self):
        return self.bytes().decode("utf-8", "replace")

    def json(self):
        return json.loads(self.bytes())

    def close(self):
        _host("http_close", self._handle)


class Cancelled(Exception):
    """What a handler raises when it stopped because ctx.cancelled() said so."""


class _Log:
    def debug(self, text):
        _host("log", 0, str(text))

    def info(self, text):
        _host("log", 1, str(text))

    def warn(self, text):
        _host("log", 2, str(text))

    def error(self, text):
        _host("log", 3, str(text))


class Context:
    """The task at hand."""

    log = _Log()

    @property
    def input(self):
        """The input as bytes."""
        size = _host("input_len")
        parts = []
        at = 0
        while at < size:
            out = _Out(min(_CHUNK, size - at))
            _host("input_read", at, out)
            parts.append(out.data)
            at += out.size
        return b"".join(parts)

    def text(self):
        """The input as text."""
        return self.input.decode("utf-8", "replace")

    def json(self):
        """The input as JSON; text that is none is a permanent failure."""
        try:
            return json.loads(self.text())
        except ValueError as e:
            raise Permanent("bad_input", f"the input is not JSON: {e}") from e

    def param(self, name):
        """What the task tells about itself, or a variable of the job, or None."""
        value = _fill(128, lambda out: _host("param_get", name, out))
        return None if value == _NO_ENTRY else value.decode("utf-8", "replace")

    def write(self, data):
        """Appends to the output. What a handler returns is appended too."""
        data = _data(data)
        for at in range(0, len(data), _CHUNK):
            _host("output_write", data[at:at + _CHUNK])

    def progress(self, done, total=0, message=""):
        """Tells how far the handler is; total 0 means unknown."""
        _host("progress", done, total, message)

    def cancelled(self):
        """Whether to stop: it was cancelled, or its deadline is near."""
        return _host("cancelled") != 0

    def now_ms(self):
        """The host's clock in milliseconds since 1970."""
        return _host("now_ms")

    def random(self, n):
        """n random bytes of cryptographic quality."""
        out = _Out(n)
        _host("random", out)
        return out.data

    def sleep(self, seconds):
        """Waits; time.sleep does the same."""
        _host("sleep", max(0, round(seconds * 1000)))

    def checkpoint(self):
        """What an earlier attempt of this run left last, or None."""
        return _optional("checkpoint_get", _fill(1024, lambda out: _host("checkpoint_get", out)))

    def set_checkpoint(self, data):
        """Keeps data for the next attempt of this run; durable when it returns."""
        _check("checkpoint_put", _host("checkpoint_put", _data(data)))

    def kv(self, bucket):
        """A bucket of the app."""
        return Bucket(bucket)

    def enqueue(self, job, input=None, key=None, delay_ms=0, app=None):
        """Makes a run of a job and returns its id."""
        spec = {"job": job, "delay_ms": delay_ms}
        if app is not None:
            spec["app"] = app
        if key is not None:
            spec["key"] = key
        if input is not None:
            import base64

            spec["input_base64"] = base64.b64encode(_data(input)).decode()
        out = _Out(128)  # longer than any id: the call must not be made twice
        n = _check("job_enqueue", _host("job_enqueue", json.dumps(spec), out))
        return out.data[:n].decode()

    def map(self, inputs):
        """Adds parts to the run, each with an input."""
        parts = []
        for value in inputs:
            data = _data(value)
            parts.append(struct.pack("<I", len(data)) + data)
        _check("map", _host("map", b"".join(parts)))

    def secret(self, name):
        """A secret of the app as text, or None."""
        value = _optional("secret_get", _fill(256, lambda out: _host("secret_get", name, out)))
        return None if value is None else value.decode("utf-8", "replace")

    def http(self, url, method="GET", headers=None, body=b""):
        """Sends an HTTP request."""
        head = json.dumps({"method": method, "url": url, "headers": headers or {}})
        return Response(_check("http_send", _host("http_send", head, _data(body))))

    def count(self, name, value):
        """Adds to a counter."""
        _check("metric_add", _host("metric_add", name, 0, float(value)))

    def gauge(self, name, value):
        """Sets a gauge."""
        _check("metric_add", _host("metric_add", name, 1, float(value)))

    def observe(self, name, value):
        """Records into a histogram."""
        _check("metric_add", _host("metric_add", name, 2, float(value)))


ctx = Context()


def _tell(e):
    """Reports what a handler raised, and returns the status for it."""
    if isinstance(e, Cancelled):
        return _CANCELLED
    if isinstance(e, Failure):
        kind = _PERMANENT if e.permanent else _RETRYABLE
        _host("fail", kind, max(0, int(e.after * 1000)), str(e.code or ""), str(e))
        return kind
    import traceback

    ctx.log.error("".join(traceback.format_exception(e)).rstrip())
    _host("fail", _RETRYABLE, 0, "exception", f"{type(e).__name__}: {e}")
    return _RETRYABLE


def _load(main):
    """Imports the main file; a mistake in it is for good."""
    import importlib

    sys.modules["wheelwork"] = sys.modules["__main__"]
    try:
        return importlib.import_module(main.removesuffix(".py").replace("/", "."))
    except Exception as e:
        import traceback

        text = "".join(traceback.format_exception(e)).rstrip()
        ctx.log.error(text)
        _host("fail", _PERMANENT, 0, "script", f"the script cannot be started: {type(e).__name__}: {e}")
        return None


def _run(main, name):
    module = _load(main)
    if module is None:
        return _PERMANENT
    handler = getattr(module, name, None)
    if not callable(handler):
        return _tell(Permanent("no_handler", f"{main} has no function {name}"))
    try:
        value = handler(ctx)
        if value is not None:
            ctx.write(value)
    except Exception as e:
        return _tell(e)
    return _OK


if __name__ == "__main__":
    import time

    sys.stdout = sys.stderr
    time.sleep = ctx.sleep  # this interpreter has none of its own
    _host("done", _run(sys.argv[1], sys.argv[2]))
