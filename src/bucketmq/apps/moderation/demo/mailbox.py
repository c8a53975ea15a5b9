"""Where the demo's review notices arrive: a small HTTP server in the demo's own process.

It refuses the first few, as a chat service having a bad day does, so that the retries of the outbox are seen to work.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import msgspec

REFUSED_FIRST = 2
BODY_BYTES_MAX = 1 << 20


class Mailbox:
    """Listens on loopback while open. `arrived` tells, for each post's id, when its first notice came."""

    def __init__(self) -> None:
        self.arrived: dict[str, float] = {}
        self.notices: Counter[str] = Counter()
        self.refused = 0
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, name="mailbox", daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/review"

    def __enter__(self) -> Mailbox:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _take(self, body: bytes) -> int:
        """Note a notice; the status to answer with."""
        try:
            id_ = msgspec.json.decode(body, type=_Notice).content.id
        except msgspec.DecodeError:
            return 400
        with self._lock:
            if self.refused < REFUSED_FIRST:
                self.refused += 1
                return 503
            self.arrived.setdefault(id_, time.time())
            self.notices[id_] += 1
        return 204

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        take = self._take

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                status = take(self.rfile.read(size)) if size <= BODY_BYTES_MAX else 413
                self.send_response(status)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing: the demo has its own screen."""

        return Handler


class _Content(msgspec.Struct):
    id: str


class _Notice(msgspec.Struct):
    """What is read of a notice in the format `json`."""

    content: _Content
