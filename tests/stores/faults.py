"""A server that fails on purpose, and counts how often it was asked."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

HANG = "hang"
CUT_EARLY = "cut before the body was read"
CUT_LATE = "cut after the body was read"
CUT_SHORT = "cut in the middle of the answer"


@dataclass(frozen=True)
class Answer:
    status: int
    body: str = ""
    headers: dict[str, str] = field(default_factory=dict)

    def raw(self) -> bytes:
        lines = [f"HTTP/1.1 {self.status} Something", f"Content-Length: {len(self.body)}"]
        lines += [f"{name}: {value}" for name, value in self.headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n" + self.body).encode()


@dataclass(frozen=True)
class Promise:
    """A good answer that announces so many bytes and sends none of them."""

    size_bytes: int

    def raw(self) -> bytes:
        lines = ["HTTP/1.1 200 OK", f"Content-Length: {self.size_bytes}", 'ETag: "e"', f"Last-Modified: {DATE}"]
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


def s3_error(status: int, code: str) -> Answer:
    return Answer(status, f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>because</Message></Error>")


class FaultServer:
    """Answers every request with `behaviour` and keeps the heads of the requests, as text, in `requests`.

    With `hangs_up` it closes the connection after each answer, without having said so.
    """

    def __init__(self) -> None:
        self.behaviour: Answer | Promise | str = Answer(200)
        self.hangs_up = False
        self.requests: list[str] = []
        self.stopped = threading.Event()
        self.hung_up = threading.Event()
        """A client closed its connection."""
        self.connections = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the listener was closed
            while True:
                connection, _ = self._listener.accept()
                self.connections += 1
                thread = threading.Thread(target=self._serve, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, contextlib.suppress(OSError):
            self._converse(connection)
        self.connections -= 1
        self.hung_up.set()

    def _converse(self, connection: socket.socket) -> None:
        while request := self._head(connection):
            self.requests.append(request[0])
            if self.behaviour == CUT_EARLY:
                return
            self._body(connection, *request)
            match self.behaviour:
                case Answer() | Promise() as answer:
                    connection.sendall(answer.raw())
                    if self.hangs_up:
                        return
                case "hang":
                    self.stopped.wait(30)
                    return
                case "cut in the middle of the answer":
                    connection.sendall(Answer(200, "x" * 100, {"ETag": '"e"', "Last-Modified": DATE}).raw()[:-50])
                    return
                case _:
                    return

    @staticmethod
    def _head(connection: socket.socket) -> tuple[str, bytes] | None:
        received = b""
        while b"\r\n\r\n" not in received:
            more = connection.recv(65536)
            if not more:
                return None
            received += more
        head, _, rest = received.partition(b"\r\n\r\n")
        return head.decode(), rest

    @staticmethod
    def _body(connection: socket.socket, head: str, received: bytes) -> None:
        sizes = [line.split(":")[1] for line in head.splitlines() if line.lower().startswith("content-length:")]
        missing = int(sizes[0]) - len(received) if sizes else 0
        while missing > 0:
            missing -= len(connection.recv(65536))

    def close(self) -> None:
        self.stopped.set()
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


DATE = "Sun, 15 Nov 2026 12:00:00 GMT"


@contextlib.contextmanager
def fault_server() -> Iterator[FaultServer]:
    server = FaultServer()
    try:
        yield server
    finally:
        server.close()
