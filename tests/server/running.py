"""A server on a thread of its own, on a real port, and the client's side of it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import httpx2
import msgspec

from bucketmq import aio
from bucketmq.bucket.port import Store
from bucketmq.client import Bucket
from bucketmq.engines.asynchronous import Asynchronous
from bucketmq.engines.blocking import Blocking
from bucketmq.engines.perform import Hands
from bucketmq.events.event import ObjectEvent
from bucketmq.events.signing import new_secret
from bucketmq.notify.lazy import LazyPoster
from bucketmq.server.access import make_access
from bucketmq.server.app import Parts
from bucketmq.server.run import Listening, Server, listen, make_server
from bucketmq.server.settings import ServerSettings

TOKEN = "a-token-for-tests"
SECRET = new_secret(b"s" * 32)
FIXTURES = Path(__file__).parent.parent / "events" / "fixtures"
WAIT_SECONDS = 30.0
ADDRESSES = tuple(f"127.0.2.{number}" for number in range(1, 5))
"""This machine's, as many as it takes to have every place of a server."""

Result = TypeVar("Result")


def payload(name: str) -> bytes:
    return (FIXTURES / f"{name}.json").read_bytes()


def settings_with(**options: Any) -> ServerSettings:
    """One token unless other secrets are named; no background work, and SNS need not sign, unless it is asked for."""
    secrets = {name: options.pop(name) for name in ("bearer", "basic", "signing", "push", "no_auth") if name in options}
    return ServerSettings(
        access=make_access(**(secrets or {"bearer": [TOKEN]})),
        **{"notify": False, "files": False, "sns_verify": False, **options},
    )


class Served:
    """What a test sees of any server of ours."""

    def __init__(self, url: str, server: Server) -> None:
        self.url = url
        self.http = httpx2.Client(base_url=url, timeout=WAIT_SECONDS)
        self._server = server

    def stop(self) -> None:
        """Tell it to stop, as SIGTERM would."""
        self._server.should_exit = True


class Running(Served):
    """What a test sees of `bucketmq serve`."""

    def __init__(self, url: str, server: Server) -> None:
        super().__init__(url, server)
        self.parts: Parts = server.config.app.state.parts  # type: ignore[union-attr]
        self.http.headers["authorization"] = f"Bearer {TOKEN}"
        self.stranger = httpx2.Client(base_url=url, timeout=WAIT_SECONDS)

    def post(self, source: str, body: bytes, **headers: str) -> httpx2.Response:
        given = {"content-type": "application/json", **{name.replace("_", "-"): headers[name] for name in headers}}
        return self.http.post(f"/events/{source}", content=body, headers=given)

    def connect(self) -> socket.socket:
        """A bare connection."""
        place = urlsplit(self.url)
        assert place.hostname is not None
        return socket.create_connection((place.hostname, place.port or 80), timeout=WAIT_SECONDS)

    def is_healthy(self) -> bool:
        return self.stranger.get("/healthz").status_code == 200 and self.post("tigris", b'{"events": []}').is_success


@contextlib.contextmanager
def on_a_thread(
    make_bucket: Callable[[], aio.Bucket],
    make: Callable[[aio.Bucket, Listening], Server],
    listener: socket.socket | None = None,
    *,
    port: int = 0,
) -> Iterator[tuple[str, Server]]:
    """A server and its address, until the block ends; then it is stopped as SIGTERM would, and its bucket closed."""
    ready = threading.Event()
    found: dict[str, Any] = {}

    async def main() -> None:
        bucket = make_bucket()
        try:
            with listener or listen("127.0.0.1", port) as bound:

                def listening(url: str) -> None:
                    found["url"] = url
                    ready.set()

                found["server"] = make(bucket, listening)
                await found["server"].serve(sockets=[bound])
        finally:
            await bucket.close()
            ready.set()

    def work() -> None:
        try:
            asyncio.run(main())
        except BaseException as error:
            found["error"] = error

    thread = threading.Thread(target=work, name="server")
    thread.start()
    try:
        assert ready.wait(WAIT_SECONDS), "the server did not start"
        assert "url" in found, f"the server did not start: {found.get('error')!r}"
        yield found["url"], found["server"]
    finally:
        if "server" in found:
            found["server"].should_exit = True
        thread.join(WAIT_SECONDS + 15)
    assert not thread.is_alive(), "the server did not stop"
    if "error" in found:
        raise found["error"]


@contextlib.contextmanager
def serving(
    make_bucket: Callable[[], aio.Bucket], settings: ServerSettings, listener: socket.socket | None = None
) -> Iterator[Running]:
    """The server, until the block ends."""

    def make(bucket: aio.Bucket, listening: Listening) -> Server:
        return make_server(bucket, settings, listening)

    with on_a_thread(make_bucket, make, listener) as (url, server):
        running = Running(url, server)
        with running.http, running.stranger:
            yield running


def aio_on(store: Store, prefix: str = "") -> aio.Bucket:
    return aio.Bucket(Asynchronous(hands(store)), prefix, probe=False)


def sync_on(store: Store, prefix: str = "") -> Bucket:
    return Bucket(Blocking(hands(store)), prefix, probe=False)


def hands(store: Store) -> Hands:
    poster = LazyPoster()
    return Hands(store, poster, poster.close)


def delivered(bucket: Bucket) -> list[ObjectEvent]:
    """What a rule that wants everything is given: each event once, whoever told of it how often."""
    if "everything" not in [rule.name for rule in bucket.rules.list()]:
        bucket.rules.add("everything", to="queue:told", start="beginning")
    bucket.notify(stop_when_empty=True)
    found = []
    while batch := list(bucket.queue("told").receive(1_000)):
        for delivery in batch:
            found.append(msgspec.convert(delivery.body, ObjectEvent))
            delivery.ack()
    return found


def logged(bucket: Bucket) -> list[Any]:
    """Every event in the log, repeats too."""
    return [message.body for message in bucket.queue("events").peek(100_000)]


def until(question: Callable[[], Result]) -> Result:
    """Ask until the answer is yes."""
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        answer = question()
        if answer or time.monotonic() > deadline:
            assert answer, "it did not happen"
            return answer
        time.sleep(0.02)


def when_it_refuses(url: str, then: Callable[[], None]) -> threading.Thread:
    """Do something as soon as the server takes no more connections: it has begun to stop."""
    place = urlsplit(url)

    def refuses() -> bool:
        try:
            socket.create_connection((place.hostname, place.port), timeout=1).close()
        except OSError:
            return True
        return False

    def wait() -> None:
        try:
            until(refuses)
        finally:
            then()

    thread = threading.Thread(target=wait)
    thread.start()
    return thread


@contextlib.contextmanager
def clients(
    running: Running, count: int, sent: bytes = b"", *, addresses: Sequence[str] = ADDRESSES
) -> Iterator[list[socket.socket]]:
    """Connections from these addresses in turn, none of which takes what it is answered."""
    place = urlsplit(running.url)
    with contextlib.ExitStack() as opened:
        found = []
        for number in range(count):
            client = opened.enter_context(socket.socket())
            found.append(client)
            client.settimeout(WAIT_SECONDS)
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.bind((addresses[number % len(addresses)], 0))
            client.connect((place.hostname, place.port))
            client.sendall(sent)
        yield found


def raw_request(running: Running, head: str, body: bytes = b"", token: str | None = TOKEN) -> bytes:
    """A request's bytes."""
    place = urlsplit(running.url)
    lines = [head, f"Host: {place.netloc}", *([f"Authorization: Bearer {token}"] if token else [])]
    return "\r\n".join(lines).encode() + b"\r\n" + body


def read_all(connection: socket.socket) -> bytes:
    """Everything until the other side closes; a reset ends it too."""
    parts = []
    with contextlib.suppress(ConnectionError):
        while part := connection.recv(65536):
            parts.append(part)
    return b"".join(parts)
