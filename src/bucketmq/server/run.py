"""Running the app on uvicorn: one process, bounded in connections and time, stopped by SIGTERM with nothing lost."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from bucketmq import aio
from bucketmq.errors import Invalid, Unavailable
from bucketmq.metrics.push import pushed
from bucketmq.server.access import is_loopback
from bucketmq.server.app import make_app
from bucketmq.server.callers import Network, is_trusted, proxies_of, site_of
from bucketmq.server.settings import ServerSettings
from bucketmq.server.wire import Message, Receive, Refusal, Scope, Send, refuse

CONNECTIONS_MAX = 512
CONNECTIONS_OF_ONE_MAX = CONNECTIONS_MAX // 2
"""Of one address (of IPv6: of one network), unless it is a trusted proxy."""
HEADERS_SECONDS = 10.0
"""How long a connection may go without a whole request's headers on it, or without any of its answers being taken."""
HEADERS_BYTES_MAX = 32 << 10
SENDING_BYTES = 128 << 10
"""How much of an answer the system takes before its client does. Where nothing is said it is megabytes."""
PART_BYTES = 64 << 10
"""How much of an answer is handed to the system at a time."""
UNTAKEN_BYTES_MAX = 32 << 20
"""Of answers that clients have not taken, for all connections together."""
TAKEN = {"retry-after": "1", "connection": "close"}
HEALTH = "/healthz"
"""Answered by a process that is alive, also while every place is taken."""

Listening = Callable[[str], None]
"""Told the address when the server listens."""


async def serve(
    bucket: aio.Bucket,
    settings: ServerSettings,
    *,
    host: str = "127.0.0.1",
    port: int = 8080,
    listening: Listening = lambda _: None,
    beside: FastAPI | None = None,
    otlp: str | None = None,
) -> None:
    """Serve until SIGTERM or SIGINT, then finish what is in hand. Closing the bucket is the caller's. Figures are also
    sent to the collector at `otlp`, if there is one."""
    check_host(settings, host)
    await bucket.open()  # a bucket that cannot be used is an error here, not a line in a log
    with listen(host, port) as listener:
        server = make_server(bucket, settings, listening, beside=beside)
        app: Any = server.config.app
        with pushed(app.state.parts.figures, otlp):
            await server.serve(sockets=[listener])
    if not server.started:
        raise Unavailable("the server did not start; the log says why")


def make_server(
    bucket: aio.Bucket,
    settings: ServerSettings,
    listening: Listening = lambda _: None,
    *,
    beside: FastAPI | None = None,
) -> Server:
    """The server for a socket that is bound. `should_exit` stops it."""
    proxies = proxies_of(settings.trusted_proxies)
    app = make_app(bucket, settings, beside=beside)
    return server_of(app, settings.stop_seconds, listening, proxies=proxies)


def server_of(
    app: FastAPI,
    stop_seconds: float,
    listening: Listening = lambda _: None,
    *,
    proxies: Sequence[Network] = (),
) -> Server:
    """The same for any app."""
    return Server(
        uvicorn.Config(
            app,
            http=type("Protocol", (PatientProtocol,), {"proxies": tuple(proxies)}),
            ws="none",
            lifespan="on",
            log_config=None,
            access_log=False,
            proxy_headers=False,  # who is calling, and which proxies are believed, is said by `callers`
            server_header=False,
            timeout_graceful_shutdown=int(stop_seconds) + 1,
            h11_max_incomplete_event_size=HEADERS_BYTES_MAX,
        ),
        listening,
    )


def listen(host: str, port: int) -> socket.socket:
    """A socket that is bound; port 0 is any free one."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, protocol, _, address = found[0]
        # With the protocol said, or asyncio does not switch Nagle's delays off on what is accepted.
        listener = socket.socket(family, kind, protocol)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SENDING_BYTES)  # so have those it accepts
            listener.bind(address)
        except BaseException:
            listener.close()
            raise
    except OSError as error:
        raise Unavailable(
            f"cannot listen on {host}, port {port}: {error.strerror or error}; choose another host or port"
        ) from None
    return listener


def check_host(settings: ServerSettings, host: str) -> None:
    """Without secrets only this machine may call."""
    if settings.access.no_auth and not is_loopback(host):
        raise Invalid(f"without secrets a server may listen on 127.0.0.1 only, not on {host!r}; give it a token")


class Server(uvicorn.Server):
    """uvicorn, ending with its own end: not by sending itself the signal again, before the bucket is closed."""

    def __init__(self, config: uvicorn.Config, listening: Listening) -> None:
        super().__init__(config)
        self._listening = listening

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and sockets:
            host, port = sockets[0].getsockname()[:2]
            self._listening(f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}")


class PatientProtocol(H11Protocol):
    """Patient with slow clients, but not for ever: a connection on which no request is under way ends after a while,
    and so does one whose client does not take its answers. When another one needs a place, the one that has waited
    longest for its client gives way; where none waits, it has an answer about health, and nothing else."""

    proxies: tuple[Network, ...] = ()

    _timer: asyncio.TimerHandle | None = None
    _peer = _site = ""
    """The client's address, and whom that belongs to."""
    _to_come = 0
    """Bytes of an answer that were not handed to the system."""
    _has_place = True
    """False if it came when nothing could be ended for it."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.access_log = False  # a line for each request would also show what somebody put into a query
        self.app = self._answer
        self._since = self.loop.time()
        """When the request began that is under way, or the last one ended."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._peer = self.client[0] if self.client is not None else ""
        self._site = site_of(self._peer)
        self._has_place = self._make_room()
        self._watch()

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def in_parts(message: Message) -> None:
            """Each part when its client has taken the one before."""
            body = memoryview(message.get("body", b""))
            self._to_come = len(body)
            if len(body) > PART_BYTES:
                self._bound_untaken()
            while self._to_come > PART_BYTES:
                self._to_come -= PART_BYTES
                part, body = bytes(body[:PART_BYTES]), body[PART_BYTES:]
                await send({**message, "body": part, "more_body": True})
            self._to_come = 0
            await send({**message, "body": bytes(body)})

        if scope["path"] != HEALTH and not (len(self.tasks) <= CONNECTIONS_MAX and self._finds_place()):
            refusal = Refusal(503, "every place is taken", "try again in a moment", headers=TAKEN)
            await refuse(receive, send, refusal, refusal.body())
        else:
            await self.config.loaded_app(scope, receive, in_parts)

    def _finds_place(self) -> bool:
        self._has_place = self._has_place or self._make_room()
        return self._has_place

    def data_received(self, data: bytes) -> None:
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._since = self.loop.time()
        self._watch()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._watch()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._since = self.loop.time()
        self._watch()

    def send_400_response(self, msg: str) -> None:
        """Instead of the answer that is being made, if any; where that has begun, nothing more can be said."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.transport.close()
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._forget()
        super().connection_lost(exc)

    @property
    def _is_idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    @property
    def _unsent(self) -> int:
        """Bytes of answers that the client has not taken."""
        return self.transport.get_write_buffer_size() + self._to_come

    @property
    def _waits_for_client(self) -> bool:
        """For a request, for the rest of its body, or for its answer to be taken."""
        return self._is_idle or self.cycle.more_body or self._unsent > 0

    def _make_room(self) -> bool:
        """End what has been idle longest, of this client if it has its share; else what has waited longest of all.
        Whether there is a place now."""
        own = [each for each in self._others() if each._site == self._site]
        if len(own) >= CONNECTIONS_OF_ONE_MAX and not is_trusted(self._peer, self.proxies):
            idle = [each for each in own if each._is_idle or each._unsent > 0]
            if not _lessen(own, CONNECTIONS_OF_ONE_MAX - 1, idle):
                return False
        others = self._others()
        return _lessen(others, CONNECTIONS_MAX - 2, [each for each in others if each._waits_for_client])

    def _bound_untaken(self) -> None:
        """Throw away the oldest answer of whoever leaves most untaken, until that is little enough. The newest may be
        as long as it is."""
        others = self._others()
        held: Counter[str] = Counter()
        for each in others:
            held[each._site] += each._unsent
        while held.total() + self._unsent > UNTAKEN_BYTES_MAX and +held:
            ((site, _),) = held.most_common(1)
            oldest = min((each for each in others if each._site == site and each._unsent > 0), key=_since)
            held[site] -= oldest._unsent
            oldest._end()

    def _others(self) -> set[Any]:
        return self.connections - {self}

    def _end(self) -> None:
        """At once: what was not taken so far is thrown away."""
        if self._unsent:
            self.transport.abort()
        else:
            self.transport.close()
        self._to_come = 0
        self.connections.discard(self)

    def _watch(self) -> None:
        if not self._is_idle and not self._unsent:
            self._forget()
        elif self._timer is None and (self._unsent or not self.transport.is_closing()):
            self._timer = self.loop.call_later(HEADERS_SECONDS, self._waited, self._unsent)

    def _waited(self, unsent_before: int) -> None:
        """An answer may take as long as some of it is taken each time."""
        self._timer = None
        unsent = self._unsent
        if unsent >= unsent_before and (unsent_before or not unsent):
            self._end()
        else:
            self._watch()

    def _forget(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def _lessen(found: Collection[PatientProtocol], most: int, waiting: list[PatientProtocol]) -> bool:
    """End the oldest that wait until no more than `most` are left; whether no more than these have a place."""
    ended = sorted(waiting, key=_since)[: max(0, len(found) - most)]
    for each in ended:
        each._end()
    return sum(each._has_place for each in found) - sum(each._has_place for each in ended) <= most


def _since(protocol: PatientProtocol) -> float:
    return protocol._since
