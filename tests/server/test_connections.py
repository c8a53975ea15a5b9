"""Clients that keep a connection and give nothing for it, or say two things at once: nobody else is kept waiting."""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import PLAIN, Attributes, Refused, Unknown, Written
from bucketmq.client import Bucket
from bucketmq.server import run
from bucketmq.server.access import WRONG_SECRETS_MAX
from bucketmq.server.callers import site_of
from bucketmq.server.run import PatientProtocol
from server.running import (
    ADDRESSES,
    SECRET,
    TOKEN,
    Running,
    aio_on,
    clients,
    delivered,
    payload,
    raw_request,
    read_all,
    serving,
    settings_with,
    until,
)

PLACES = 24
SCRIPT = "/docs/swagger-ui-bundle.js"
LARGE = f"GET {SCRIPT} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {TOKEN}\r\n\r\n".encode()
"""More than a megabyte."""
HEALTH = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.fixture
def small(store: MemoryStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A server with few places, whose system takes little of an answer before its client does."""
    monkeypatch.setattr(run, "CONNECTIONS_MAX", PLACES)
    monkeypatch.setattr(run, "CONNECTIONS_OF_ONE_MAX", PLACES // 2)
    listener = run.listen("127.0.0.1", 0)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
    with serving(lambda: aio_on(store), settings_with(bearer=[TOKEN], signing=[SECRET]), listener) as running:
        yield running


def protocols(running: Running) -> list[PatientProtocol]:
    return [each for each in list(running._server.server_state.connections) if isinstance(each, PatientProtocol)]


def check_health(running: Running) -> None:
    for _ in range(3):
        assert httpx2.get(f"{running.url}/healthz", timeout=30).status_code == 200
    body = payload("tigris")
    assert running.post("tigris", body).status_code == 200


def unfinished(running: Running, head: str, body: bytes = b"{", token: str | None = None) -> bytes:
    return raw_request(running, head, b"Content-Length: 1000\r\nWebhook-Signature: v1,AAAA\r\n\r\n" + body, token)


@pytest.mark.parametrize("token", [None, TOKEN])
def test_bodies_that_do_not_come_leave_room_for_those_that_do(small: Running, token: str | None) -> None:
    """As many as there are places, of strangers who say that they will sign and of callers who are known."""
    request = unfinished(small, "POST /events/tigris HTTP/1.1", token=token)
    with clients(small, PLACES - 1, request) as slow:
        until(lambda: sum(each.cycle is not None for each in protocols(small)) == PLACES - 1)
        for each in slow[:4]:
            each.sendall(b" ")  # a byte now and then makes nobody younger
        check_health(small)
        assert len(protocols(small)) <= PLACES
    assert small.is_healthy()


class Slow(MemoryStore):
    """Writes events only when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.go = threading.Event(), threading.Event()

    def create(self, key: str, body: bytes, attributes: Attributes = PLAIN) -> Written | Refused | Unknown:
        if "queues/events/log" in key:
            self.begun.set()
            assert self.go.wait(30)
        return super().create(key, body, attributes)


def test_idle_connections_leave_room_for_those_that_ask(server: Running) -> None:
    """As many as there are places, from several addresses: health and senders still get theirs."""
    with clients(server, run.CONNECTIONS_MAX + 20):
        check_health(server)


def test_one_address_does_not_take_all_places(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that are under way are not cut off; whoever has his share may ask for health alone."""
    monkeypatch.setattr(run, "CONNECTIONS_OF_ONE_MAX", 5)
    request = unfinished(server, "POST /events/tigris HTTP/1.1", token=TOKEN)
    with clients(server, 5, request, addresses=ADDRESSES[:1]):
        until(lambda: sum(each.cycle is not None for each in protocols(server)) == 5)
        with clients(server, 20, addresses=ADDRESSES[:1]) as late:
            until(lambda: len(protocols(server)) <= 6)
            late[-1].sendall(HEALTH)
            until(lambda: late[-1].recv(65536).endswith(b"}"))
            late[-1].sendall(raw_request(server, "POST /events/tigris HTTP/1.1", b"Content-Length: 1000\r\n\r\n{"))
            assert read_all(late[-1]).startswith(b"HTTP/1.1 503 ")
        assert httpx2.get(f"{server.url}/healthz", timeout=30).status_code == 200
    assert server.is_healthy()


def test_a_request_that_is_being_answered_is_never_ended_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "CONNECTIONS_MAX", PLACES)
    slow = Slow()
    with serving(lambda: aio_on(slow), settings_with()) as running, ThreadPoolExecutor(1) as other:
        answer = other.submit(running.post, "tigris", payload("tigris"))
        try:
            assert slow.begun.wait(30)
            with clients(running, PLACES + 10):
                assert httpx2.get(f"{running.url}/healthz", timeout=30).status_code == 200
        finally:
            slow.go.set()
        assert answer.result().status_code == 200


@pytest.mark.parametrize("addresses", [ADDRESSES, ADDRESSES[:1]])
def test_health_is_told_while_a_bucket_that_hangs_has_every_place_taken(
    monkeypatch: pytest.MonkeyPatch, addresses: tuple[str, ...]
) -> None:
    """Nothing can be ended, because all of them wait for us; health needs no place of theirs."""
    monkeypatch.setattr(run, "CONNECTIONS_MAX", PLACES)
    monkeypatch.setattr(run, "CONNECTIONS_OF_ONE_MAX", PLACES // len(addresses))
    slow, body = Slow(), payload("tigris")
    with serving(lambda: aio_on(slow), settings_with(report_seconds=60.0)) as running:
        whole = raw_request(running, "POST /events/tigris HTTP/1.1", f"Content-Length: {len(body)}\r\n\r\n".encode())
        with clients(running, PLACES - 1, whole + body, addresses=addresses) as senders:
            try:
                until(lambda: sum(not each._waits_for_client for each in protocols(running)) == PLACES - 1)
                with clients(running, PLACES, HEALTH, addresses=addresses) as asking:
                    until(lambda: b'"ok"' in asking[-1].recv(65536))
                    asking[-1].sendall(whole + body)
                    told = read_all(asking[-1])
                    assert told.startswith(b"HTTP/1.1 503 ") and b"retry-after: 1\r\n" in told.lower()
                    with clients(running, 1, HEALTH, addresses=addresses) as (asking_again,):
                        assert asking_again.recv(65536).startswith(b"HTTP/1.1 200 ")
                        until(lambda: len(protocols(running)) <= PLACES)
            finally:
                slow.go.set()
            assert all(each.recv(65536).startswith(b"HTTP/1.1 200 ") for each in senders)
        assert running.is_healthy()


def test_requests_whose_clients_are_gone_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """They hold no connection, but what is done for them goes on."""
    monkeypatch.setattr(run, "CONNECTIONS_MAX", PLACES)
    slow, body = Slow(), payload("tigris")
    with serving(lambda: aio_on(slow), settings_with(report_seconds=60.0)) as running:
        whole = raw_request(running, "POST /events/tigris HTTP/1.1", f"Content-Length: {len(body)}\r\n\r\n".encode())
        tasks = running._server.server_state.tasks
        try:
            for _ in range(2):
                before = len(tasks)
                with clients(running, PLACES // 2, whole + body):
                    until(lambda before=before: len(tasks) == before + PLACES // 2)  # type: ignore[misc]
                until(lambda: not protocols(running))
            assert running.post("tigris", body).status_code == 503
            assert running.stranger.get("/healthz").status_code == 200
        finally:
            slow.go.set()
        until(lambda: not tasks)
        assert running.is_healthy()


def test_answers_that_are_not_taken_hold_a_bounded_amount_of_memory(
    small: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of those who hold most, the oldest is thrown away; an honest client in between is not."""
    size = len(small.http.get(SCRIPT).content)
    monkeypatch.setattr(run, "UNTAKEN_BYTES_MAX", 3 * size)
    with clients(small, 1, LARGE, addresses=ADDRESSES[:1]) as (honest,):
        until(lambda: any(each._unsent for each in protocols(small)))
        with clients(small, PLACES // 3, LARGE, addresses=ADDRESSES[1:2]):
            until(lambda: len(protocols(small)) == 3)
            assert sum(each._unsent for each in protocols(small)) <= 3 * size
            honest.sendall(HEALTH.replace(b"Host", b"Connection: close\r\nHost"))
            assert len(read_all(honest)) > size
    assert small.is_healthy()


def test_the_system_takes_little_of_an_answer_before_its_client_does(server: Running) -> None:
    """What it takes is memory too, and nobody here can see it."""
    size = len(server.http.get(SCRIPT).content)
    with clients(server, 1, LARGE) as (client,):
        until(lambda: sum(each._unsent for each in protocols(server)) > size // 2)
        assert len(client.recv(65536)) > 0


@pytest.mark.parametrize("more", [b"", b"Connection: close\r\n"])
def test_answers_that_are_not_taken_leave_room(small: Running, more: bytes) -> None:
    """Also where the server has closed the connection and the answer is still to be taken."""
    large = LARGE.replace(b"Host", more + b"Host")
    with clients(small, PLACES, large):
        until(lambda: any(each._unsent for each in protocols(small)))
        with clients(small, PLACES, large):  # these may have been told by now that there is no place
            check_health(small)
            assert len(protocols(small)) <= PLACES
    assert small.is_healthy()


def test_requests_whose_answers_are_not_taken_are_not_read_for_ever(small: Running) -> None:
    """One client asks on and on and reads nothing: it is told to wait, and what it may ask is bounded."""
    with clients(small, 1) as (client,):
        client.setblocking(False)
        sent = 0
        with contextlib.suppress(BlockingIOError):
            while sent < 64 << 20:
                sent += client.send(HEALTH * 100)
        until(lambda: any(each._unsent for each in protocols(small)))
        assert sent < 64 << 20
        assert all(each._unsent < 1 << 20 for each in protocols(small))
        check_health(small)


@pytest.mark.parametrize("more", [b"", b"Connection: close\r\n"])
def test_an_answer_that_nobody_takes_ends_the_connection(
    small: Running, monkeypatch: pytest.MonkeyPatch, more: bytes
) -> None:
    monkeypatch.setattr(run, "HEADERS_SECONDS", 0.2)
    with clients(small, 5, LARGE.replace(b"Host", more + b"Host")):
        until(lambda: any(each._unsent for each in protocols(small)))
        until(lambda: not protocols(small))
    assert small.is_healthy()


def test_an_answer_that_is_taken_slowly_comes_whole(small: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "HEADERS_SECONDS", 0.5)
    whole = small.http.get(SCRIPT).content
    with clients(small, 1, LARGE.replace(b"Host", b"Connection: close\r\nHost")) as (client,):
        until(lambda: any(each._unsent for each in protocols(small)))
        first = {each._timer for each in protocols(small)}
        got = client.recv(65536)
        while len(got) < len(whole) // 2:
            got += client.recv(65536)
        until(lambda: {each._timer for each in protocols(small)} != first)  # it was asked whether some was taken
        got += read_all(client)
    assert got.endswith(whole[-1000:])


@pytest.mark.parametrize("address", ["2001:db8:1:2::7", "2001:db8:1:2:aaaa:bbbb:cccc:dddd"])
def test_one_network_of_ipv6_is_one_client(address: str) -> None:
    assert site_of(address) == "2001:db8:1:2::/64"
    assert site_of("2001:db8:1:3::7") != site_of(address)
    assert site_of("192.0.2.7") == "192.0.2.7"


TWO_LENGTHS = [
    b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding:\tCHUNKED\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding:\r\n chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding : chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    b"Content-Length: 4\r\nContent-Length: 5\r\n\r\n0\r\n\r\n",
    b"Content-Length: +4\r\n\r\n0\r\n\r\n",
    b"Content-Length: 0x4\r\n\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n-1\r\n{}\r\n0\r\n\r\n",
    b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}XX0\r\n\r\n",
]


@pytest.mark.parametrize("framing", TWO_LENGTHS)
@pytest.mark.parametrize("version", ["1.0", "1.1"])
def test_a_body_whose_end_is_in_doubt_hides_no_second_request(small: Running, framing: bytes, version: str) -> None:
    """Where a proxy and we disagree about the end of a body, its sender would speak with the proxy's voice."""
    with small.connect() as connection:
        connection.sendall(
            raw_request(small, f"POST /events/tigris HTTP/{version}", framing) + b"GET /version HTTP/1.1\r\n"
        )
        connection.sendall(b"Host: x\r\n\r\n")
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 400 "), answer
    assert answer.count(b"HTTP/1.1 ") == 1 and b'"version"' not in answer
    assert small.is_healthy()


JUNK = [
    (b"POST /events/tigris HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b""),
    (b"POST /events/tigris HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", b"zz\r\n"),
    (b"POST /nothing HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n", b"zz\r\n"),
    (b"POST /events/tigris HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n", b"123456789\x00\x01\r\n\r\n"),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"),
    (b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n", b"\x81\x85\x00\x00"),
    (HEALTH, b"\x16\x03\x01\x02\x00"),
    (b"GET /healthz HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", b""),
    (b"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: x\r\n\r\n", b"SSH-2.0-x\r\n"),
]


@pytest.mark.parametrize(("request_", "later"), JUNK)
def test_junk_before_and_after_an_answer_is_no_error_of_ours(
    small: Running, caplog: pytest.LogCaptureFixture, request_: bytes, later: bytes
) -> None:
    """A stranger who sends some would fill the log with tracebacks."""
    with small.connect() as connection:
        connection.sendall(request_)
        if later:
            assert connection.recv(65536).startswith(b"HTTP/1.1 ")
        with contextlib.suppress(OSError):  # it may be closed by now
            connection.sendall(later)
            connection.shutdown(socket.SHUT_WR)
        read_all(connection)
    assert small.is_healthy()
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.ERROR or each.exc_info] == []


def test_a_signed_or_wrong_caller_is_not_told_to_go_on(small: Running) -> None:
    """`Expect: 100-continue`: who is not let in, or says that the body is too long, is told before it is sent."""
    for token, length, status in (("a-wrong-token-001", 9, b"401"), (TOKEN, 9 << 20, b"413")):
        expect = f"Expect: 100-continue\r\nContent-Length: {length}\r\n\r\n".encode()
        with small.connect() as connection:
            connection.sendall(raw_request(small, "POST /events/tigris HTTP/1.1", expect, token))
            assert connection.recv(65536).startswith(b"HTTP/1.1 " + status)
    with small.connect() as connection:
        connection.sendall(
            raw_request(small, "POST /events/tigris HTTP/1.1", b"Expect: 100-continue\r\nContent-Length: 14\r\n\r\n")
        )
        assert connection.recv(65536).startswith(b"HTTP/1.1 100 ")
        connection.sendall(b'{"events": []}')
        assert connection.recv(65536).startswith(b"HTTP/1.1 200 ")


def test_pipelined_requests_are_each_judged_for_themselves(small: Running, bucket: Bucket) -> None:
    body = payload("tigris")
    framing = f"Content-Length: {len(body)}\r\n\r\n".encode()
    head = "POST /events/tigris HTTP/1.1"
    known, stranger = (raw_request(small, head, framing, token) + body for token in (TOKEN, None))
    with small.connect() as connection:
        connection.sendall(stranger + known + stranger + HEALTH)
        connection.shutdown(socket.SHUT_WR)
        statuses = [part[:3] for part in read_all(connection).split(b"HTTP/1.1 ")[1:]]
    assert statuses[:1] == [b"401"] and set(statuses) <= {b"401", b"200"}
    assert small.is_healthy()
    with small.connect() as connection:
        connection.sendall(stranger + known + stranger + HEALTH.replace(b"Host", b"Connection: close\r\nHost"))
        statuses = [part[:3] for part in read_all(connection).split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"401", b"200", b"401", b"200"]
    assert len(delivered(bucket)) == 7


def test_guesses_on_one_connection_count_like_others(small: Running) -> None:
    guess = raw_request(small, "POST /events/tigris HTTP/1.1", b"Content-Length: 0\r\n\r\n", "a-wrong-token-001")
    last = guess.replace(b"Host", b"Connection: close\r\nHost")
    with small.connect() as connection:
        connection.sendall(guess * (WRONG_SECRETS_MAX + 5) + last)
        statuses = [part[:3] for part in read_all(connection).split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"401"] * WRONG_SECRETS_MAX + [b"429"] * 6
