"""A webhook endpoint on this machine that misbehaves on purpose, for our tests and for users' own.

```python
with endpoint([Reply(500), HangUp(), Reply(200)]) as there:
    ...                                  # deliver to there.url
    first, second, third = there.wait_for(3)
```

The script has one step for each request; its last step goes on for all that follow. It is a real server: what a step
does to a connection is what a client sees from a broken endpoint.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, ClassVar, assert_never

import msgspec

WAIT_SECONDS_MAX = 30.0
POLL_SECONDS = 0.02


class Received(msgspec.Struct, frozen=True):
    """A request as it arrived. Header names are lower case."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    at: float
    """Seconds since 1970."""
    connection: int
    """Counted from 1: requests with the same number came over one connection."""


class Reply(msgspec.Struct, frozen=True):
    """An ordinary answer, after `until` is set if there is one. A redirect is a reply with a location."""

    status: int = 200
    headers: dict[str, str] = {}
    body: bytes = b""
    until: threading.Event | None = None


class HangUp(msgspec.Struct, frozen=True):
    """Closes the connection without an answer, with the body read or not."""

    read_body: bool = True


class Silent(msgspec.Struct, frozen=True):
    """Reads the request and never answers."""


class Trickle(msgspec.Struct, frozen=True):
    """Sends these bytes, status line included, one at a time with a pause after each, over and over."""

    head: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"
    each: bytes = b"."
    pause_seconds: float = 0.02


class Endless(msgspec.Struct, frozen=True):
    """Sends `head`, then `each` for as long as somebody listens: a body, headers or interim answers without end."""

    head: bytes = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    each: bytes = b"1000\r\n" + b"x" * 0x1000 + b"\r\n"


class Raw(msgspec.Struct, frozen=True):
    """Sends exactly these bytes and closes: for answers that are not HTTP."""

    data: bytes


Step = Reply | HangUp | Silent | Trickle | Endless | Raw
Script = Sequence[Step] | Callable[[Received], Step]
ALWAYS_OK: Script = (Reply(),)


class Endpoint:
    """What a test sees of a running endpoint."""

    def __init__(self, url: str, script: Script) -> None:
        self.url = url
        self.errors: list[str] = []
        """What went wrong in the endpoint itself; checked when it closes."""
        self._script = script
        self._requests: list[Received] = []
        self._begun = 0
        self._changed = threading.Condition()

    @property
    def requests(self) -> list[Received]:
        """All requests so far."""
        with self._changed:
            return list(self._requests)

    def wait_for(self, count: int, *, timeout_seconds: float = WAIT_SECONDS_MAX) -> list[Received]:
        """All requests, as soon as there are `count`; `TimeoutError` if they do not come."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._requests) >= count, timeout_seconds):
                raise TimeoutError(f"{len(self._requests)} of {count} requests came within {timeout_seconds:g} s")
            return list(self._requests)

    def begin(self) -> Step | None:
        """A request begins: its step, where the script is a list. A function is asked when the request is read."""
        with self._changed:
            self._begun += 1
            return None if callable(self._script) else self._script[min(self._begun, len(self._script)) - 1]

    def record(self, request: Received) -> None:
        with self._changed:
            self._requests.append(request)
            self._changed.notify_all()

    def decide(self, request: Received) -> Step:
        """What a script that is a function says."""
        assert callable(self._script)
        return self._script(request)


class _Server(ThreadingHTTPServer):
    daemon_threads = False
    request_queue_size = 128

    def __init__(self, tls: ssl.SSLContext | None) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.tls = tls
        self.there: Endpoint
        self.stopping = threading.Event()
        self.lock = threading.Lock()
        self.open: set[socket.socket] = set()
        self.connections = 0

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        with self.lock:
            self.open.add(request)
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self.lock:
                self.open.discard(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Connections that break are what this server is for; anything else is our mistake and must not be lost."""
        import sys

        error = sys.exc_info()[1]
        if not isinstance(error, OSError):
            self.there.errors.append(repr(error))

    def hang_up_all(self) -> None:
        self.stopping.set()
        with self.lock:
            for each in self.open:
                with contextlib.suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm: ClassVar[bool] = True
    server: _Server

    def setup(self) -> None:
        if self.server.tls is not None:
            # Here, on the connection's own thread, so that a slow handshake holds up nobody else. The plain socket
            # gives up its descriptor; the one to hang up is the new one.
            plain = self.request
            self.request = self.server.tls.wrap_socket(plain, server_side=True)
            with self.server.lock:
                self.server.open.discard(plain)
                self.server.open.add(self.request)
        with self.server.lock:
            self.server.connections += 1
            self._connection = self.server.connections
        super().setup()

    def finish(self) -> None:
        super().finish()
        if self.server.tls is not None:
            with self.server.lock:
                self.server.open.discard(self.request)
            self.request.close()

    def log_message(self, format: str, *args: Any) -> None:
        pass

    def _answer(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        there = self.server.there
        step = there.begin()
        unread = isinstance(step, HangUp) and not step.read_body
        body = b"" if unread else self.rfile.read(length)
        headers = {name.lower(): value for name, value in self.headers.items()}
        received = Received(self.command, self.path, headers, body, time.time(), self._connection)
        there.record(received)
        self._perform(step if step is not None else there.decide(received))

    do_GET = do_POST = do_PUT = do_HEAD = do_OPTIONS = do_DELETE = _answer

    def _perform(self, step: Step) -> None:
        stopping = self.server.stopping
        match step:
            case Reply():
                while step.until is not None and not step.until.wait(POLL_SECONDS) and not stopping.is_set():
                    pass
                self._reply(step)
            case HangUp():
                self.close_connection = True
            case Silent():
                stopping.wait()
                self.close_connection = True
            case Trickle():
                for byte in step.head:
                    self.wfile.write(bytes([byte]))
                    stopping.wait(step.pause_seconds)
                while not stopping.wait(step.pause_seconds):
                    self.wfile.write(step.each)
                self.close_connection = True
            case Endless():
                self.wfile.write(step.head)
                while not stopping.is_set():
                    self.wfile.write(step.each)
                self.close_connection = True
            case Raw():
                self.wfile.write(step.data)
                self.close_connection = True
            case _:
                assert_never(step)

    def _reply(self, step: Reply) -> None:
        self.send_response(step.status)
        for name, value in step.headers.items():
            self.send_header(name, value)
        if not any(name.lower() in ("content-length", "transfer-encoding") for name in step.headers):
            self.send_header("Content-Length", str(len(step.body)))
        self.end_headers()
        self.wfile.write(step.body)


@contextlib.contextmanager
def endpoint(
    script: Script = ALWAYS_OK, *, path: str = "/hook", tls: ssl.SSLContext | None = None
) -> Iterator[Endpoint]:
    """Run an endpoint on a free port of 127.0.0.1 while the `with` block lasts; with `tls`, it speaks https."""
    server = _Server(tls)
    scheme = "http" if tls is None else "https"
    there = server.there = Endpoint(f"{scheme}://127.0.0.1:{server.server_address[1]}{path}", script)
    thread = threading.Thread(target=server.serve_forever, args=(POLL_SECONDS,), name="bucketmq-endpoint", daemon=True)
    thread.start()
    try:
        yield there
    finally:
        server.shutdown()
        server.hang_up_all()
        server.server_close()  # waits for the threads of all connections
        thread.join(WAIT_SECONDS_MAX)
    if there.errors:
        raise AssertionError(f"the endpoint itself failed: {there.errors[0]}")
