"""Types of wheelwork.py, for editors and type checkers. The file itself is packed into
the script when that is pushed."""

from typing import Any, Iterable, Mapping

Data = str | bytes | bytearray | memoryview | dict[str, Any] | list[Any] | int | float | bool
"""Text is sent as UTF-8; what is neither text nor bytes as JSON."""

class Failure(Exception):
    """A failure with a code."""

    code: str
    permanent: bool
    after: float
    def __init__(self, code: str, message: str, permanent: bool = False, after: float = 0.0) -> None: ...

class Permanent(Failure):
    """A failure that another attempt would meet again."""

    def __init__(self, code: str, message: str) -> None: ...

class Retryable(Failure):
    """A failure that another attempt, not before so many seconds, may not meet."""

    def __init__(self, code: str, message: str, after: float = 0.0) -> None: ...

class Cancelled(Exception):
    """A handler raises it when it stops because ctx.cancelled() returned True."""

class HostError(Exception):
    """The refusal of a function of the host.

    reason is one of Unavailable, Interrupted, Quota, Conflict, Invalid,
    ServiceFailed, Handles, NoEntry, NotServed, TooLarge, NotGranted.
    """

    reason: str
    def __init__(self, what: str, n: int) -> None: ...

class Bucket:
    """A bucket of values of the app."""

    def __init__(self, name: str) -> None: ...
    def get(self, key: str) -> tuple[bytes, int] | None:
        """Returns the value and its version, or None."""
    def put(self, key: str, value: Data) -> int:
        """Sets a value unconditionally and returns its version."""
    def cas(self, key: str, value: Data, expect: int) -> int:
        """Sets a value if the entry has the expected version, 0 for no entry. Otherwise HostError Conflict."""
    def delete(self, key: str, expect: int = -1) -> None:
        """Deletes an entry that has the expected version; -1 matches every version."""

class Response:
    """The response to an HTTP request."""

    status: int
    headers: dict[str, list[str]]
    def __init__(self, handle: int) -> None: ...
    def read(self, size: int = 65536) -> bytes:
        """Returns up to size more bytes of the body, none at its end."""
    def bytes(self) -> bytes:
        """Returns the rest of the body and closes the response."""
    def text(self) -> str: ...
    def json(self) -> Any: ...
    def close(self) -> None: ...

class _Log:
    def debug(self, text: object) -> None: ...
    def info(self, text: object) -> None: ...
    def warn(self, text: object) -> None: ...
    def error(self, text: object) -> None: ...

class Context:
    """The current task."""

    log: _Log
    @property
    def input(self) -> bytes:
        """The input."""
    def text(self) -> str:
        """Returns the input as text."""
    def json(self) -> Any:
        """Returns the input as JSON; other text is a permanent failure."""
    def param(self, name: str) -> str | None:
        """Returns a parameter of the task (run_id, app, job, attempt, planned_at_ms, part, parts and more) or a variable of the job."""
    def write(self, data: Data) -> None:
        """Appends to the output. What a handler returns is appended too."""
    def progress(self, done: int, total: int = 0, message: str = "") -> None:
        """Reports progress; total 0 means unknown."""
    def cancelled(self) -> bool:
        """Reports whether the handler should stop: the run was cancelled, or its deadline is near."""
    def now_ms(self) -> int:
        """Returns the host's clock in Unix milliseconds."""
    def random(self, n: int) -> bytes:
        """Returns n random bytes of cryptographic quality."""
    def sleep(self, seconds: float) -> None:
        """Waits without holding a slot of the host; time.sleep does the same."""
    def checkpoint(self) -> bytes | None:
        """Returns the last checkpoint of an earlier attempt of this run."""
    def set_checkpoint(self, data: Data) -> None:
        """Saves data for the next attempt of this run; durable on return."""
    def kv(self, bucket: str) -> Bucket:
        """Returns a bucket of the app."""
    def enqueue(self, job: str, input: Data | None = None, key: str | None = None, delay_ms: int = 0, app: str | None = None) -> str:
        """Creates a run of a job and returns its id."""
    def map(self, inputs: Iterable[Data]) -> None:
        """Adds parts to the run, each with an input."""
    def secret(self, name: str) -> str | None:
        """Returns a secret of the app."""
    def http(self, url: str, method: str = "GET", headers: Mapping[str, str | list[str]] | None = None, body: Data = b"") -> Response:
        """Sends an HTTP request. {{secret:NAME}} in a header stands for a secret."""
    def count(self, name: str, value: float) -> None:
        """Adds to a counter."""
    def gauge(self, name: str, value: float) -> None:
        """Sets a gauge."""
    def observe(self, name: str, value: float) -> None:
        """Records into a histogram."""

ctx: Context
