"""A webhook for demos: a small HTTP server on loopback, in the demo's own process."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Self

BODY_BYTES_MAX = 1 << 20


class Mailbox(ABC):
    """Listens from when it is made until it is closed, or the block ends."""

    def __init__(self, path: str) -> None:
        take = self.take

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                self.send_response(take(self.rfile.read(size)) if size <= BODY_BYTES_MAX else 413)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Say nothing: demos have a screen of their own."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}{path}"
        threading.Thread(target=self._server.serve_forever, name="mailbox", daemon=True).start()

    @abstractmethod
    def take(self, body: bytes) -> int:
        """Note what was posted, in a thread of its own; the status to answer with."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
