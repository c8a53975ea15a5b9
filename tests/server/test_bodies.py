"""Bodies that are too long, too slow, too deep or no bodies: a clear status, and a server that goes on."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from bucketmq.bucket.memory import MemoryStore
from bucketmq.client import Bucket
from bucketmq.server import run
from server.running import Running, aio_on, delivered, payload, raw_request, read_all, serving, settings_with, until

LONG = 50 << 20
POST = "POST /events/tigris HTTP/1.1"


@pytest.fixture(scope="module")
def shared() -> Iterator[Running]:
    """One for all tests after which it is as it was before."""
    store = MemoryStore()
    with serving(lambda: aio_on(store), settings_with()) as running:
        yield running


@pytest.fixture
def hasty(store: MemoryStore) -> Iterator[Running]:
    """Gives bodies little time."""
    with serving(lambda: aio_on(store), settings_with(body_seconds=0.3)) as running:
        yield running


def push(connection: socket.socket, part: bytes, bytes_max: int) -> int:
    """Send until the other side has enough; how much went."""
    sent = 0
    with contextlib.suppress(ConnectionError):
        while sent < bytes_max:
            connection.sendall(part)
            sent += len(part)
    return sent


def test_a_body_that_says_it_is_too_long_is_refused_before_it_is_sent(shared: Running) -> None:
    with shared.connect() as connection:
        connection.sendall(raw_request(shared, POST, f"Content-Length: {LONG}\r\n\r\n".encode()))
        answer = read_all(connection)
    assert answer.startswith(b"HTTP/1.1 413 ")
    assert b"connection: close" in answer.lower()
    assert shared.is_healthy()


def test_a_body_of_50_mb_is_not_read_to_its_end(shared: Running) -> None:
    with shared.connect() as connection:
        connection.sendall(raw_request(shared, POST, f"Content-Length: {LONG}\r\n\r\n".encode()))
        assert push(connection, b" " * 65536, LONG) < LONG
    assert shared.is_healthy()


def test_a_body_without_a_length_is_cut_off_where_it_becomes_too_long(shared: Running) -> None:
    with shared.connect() as connection:
        connection.sendall(raw_request(shared, POST, b"Transfer-Encoding: chunked\r\n\r\n"))
        chunk = b"10000\r\n" + b" " * 0x10000 + b"\r\n"
        for _ in range(16):
            connection.sendall(chunk)  # 1 MiB: still fine
        connection.sendall(b"1\r\n \r\n")
        assert read_all(connection).startswith(b"HTTP/1.1 413 ")
    with shared.connect() as connection:
        connection.sendall(raw_request(shared, POST, b"Transfer-Encoding: chunked\r\n\r\n"))
        assert push(connection, chunk, LONG) < LONG
    assert shared.is_healthy()


def test_a_chunked_body_that_fits_is_taken(server: Running, bucket: Bucket) -> None:
    body = payload("tigris")
    parts = (body[:100], body[100:])
    answer = server.http.post("/events/tigris", content=iter(parts))
    assert (answer.status_code, answer.json()["accepted"]) == (200, 7)
    assert delivered(bucket)


def test_the_longest_body_that_is_allowed_is_taken(shared: Running) -> None:
    body = b'{"events": []}'
    assert shared.post("tigris", body + b" " * ((1 << 20) - len(body))).status_code == 200
    assert shared.post("tigris", body + b" " * ((1 << 20) - len(body) + 1)).status_code == 413


@pytest.mark.parametrize("framing", [b"Content-Length: 1000\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n1\r\n{\r\n"])
def test_a_body_that_does_not_come_is_given_up(hasty: Running, framing: bytes) -> None:
    connections = [hasty.connect() for _ in range(20)]
    try:
        for connection in connections:
            connection.sendall(raw_request(hasty, POST, framing))
        assert hasty.is_healthy()
        assert all(read_all(connection).startswith(b"HTTP/1.1 408 ") for connection in connections)
    finally:
        for connection in connections:
            connection.close()
    assert hasty.is_healthy()


def test_headers_that_do_not_come_end_the_connection(server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "HEADERS_SECONDS", 0.3)
    with server.connect() as silent, server.connect() as slow, server.connect() as second:
        slow.sendall(b"POST /events/tigris HTTP/1.1\r\nHost: x\r\nX-Slow:")
        second.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\nGET /healthz HT")
        assert read_all(silent) == b""
        assert read_all(slow) == b""
        assert read_all(second).count(b"HTTP/1.1 200 OK") == 1
    assert server.is_healthy()


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 100_000,
        b'{"events": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
        b'{"events": [' + b"9" * 5_000 + b"1e999999]",
        b"",
        b"not json",
        b"\xff\xfe\x00",
        b'{"events": 7}',
        b"[]",
        b"null",
        b'{"events": [{}], "events"',
    ],
)
def test_a_body_that_cannot_be_read_is_a_400_that_says_why(shared: Running, body: bytes) -> None:
    for source in ("tigris", "s3", "seaweedfs", "sns"):
        answer = shared.post(source, body)
        assert answer.status_code == 400, answer.text
        assert answer.json()["error"] and answer.json()["hint"]
    assert shared.is_healthy()


@pytest.mark.parametrize("source", ["auto", "cloudevents", "azure", "gcs", "eventbridge", "r2"])
def test_deep_json_is_refused_by_every_source(shared: Running, source: str) -> None:
    assert shared.post(source, b"[" * 100_000).status_code == 400
    assert shared.is_healthy()


@pytest.mark.parametrize(
    "headers",
    [
        {"content_type": "application/x-www-form-urlencoded"},
        {"content_type": "multipart/form-data; boundary=x"},
        {"content_type": "application/cloudevents+xml"},
        {"content_type": "image/png"},
        {"content_encoding": "gzip"},
    ],
)
def test_what_is_no_json_is_a_415(shared: Running, headers: dict[str, str]) -> None:
    answer = shared.post("auto", b'{"events": []}', **headers)
    assert answer.status_code == 415
    assert answer.json()["hint"]


def test_a_connection_that_is_half_closed_loses_nothing(server: Running, bucket: Bucket) -> None:
    body = payload("r2")
    with server.connect() as connection:
        connection.sendall(
            raw_request(server, POST.replace("tigris", "r2"), f"Content-Length: {len(body)}\r\n\r\n".encode())
        )
        connection.sendall(body)
        connection.shutdown(socket.SHUT_WR)
        until(lambda: delivered(bucket))
    assert server.is_healthy()


def test_a_request_that_breaks_off_leaves_nothing_behind(server: Running, bucket: Bucket) -> None:
    for part in (b"", b"{", payload("tigris")[:-1]):
        with server.connect() as connection:
            length = len(payload("tigris"))
            connection.sendall(raw_request(server, POST, f"Content-Length: {length}\r\n\r\n".encode()) + part)
    until(lambda: server.parts.counters.read("receiver_requests_total", source="tigris", status="400") == 3)
    assert not delivered(bucket)
    assert server.is_healthy()


@pytest.mark.parametrize(
    "noise",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"POST /events/tigris HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
        b"POST /events/tigris HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
        b"A" * 100_000,
    ],
)
def test_noise_on_the_line_is_answered_or_hung_up_on(shared: Running, noise: bytes) -> None:
    with shared.connect() as connection:
        with contextlib.suppress(ConnectionError):
            connection.sendall(noise)
            connection.shutdown(socket.SHUT_WR)
        answer = read_all(connection)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 4")
    assert shared.is_healthy()


def test_headers_without_end_are_cut_off(shared: Running) -> None:
    with shared.connect() as connection:
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n")
        assert push(connection, b"X-More: " + b"y" * 65536 + b"\r\n", LONG) < LONG
    assert shared.is_healthy()
