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

__all__ = ["Cancelled", "Context", "Failure", "Permanent", "Retryable", "ctx"]

_NO_ENTRY = -44
_OK, _RETRYABLE, _PERMANENT, _CANCELLED = 0, 1, 2, 3
_CHUNK = 1 << 20  # bytes of data in one request


class _Out:
    """A buffer that the host fills: pointer and length."""

    def __init__(self, size):
        self.size = size
        self.data = b""


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
            parts.append(struct.pack("<cI", b"o", arg.size))
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
    sys.stdout = sys.stderr
    _host("done", _run(sys.argv[1], sys.argv[2]))
