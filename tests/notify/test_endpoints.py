"""The misbehaving endpoint itself, spoken to with plain sockets."""

from __future__ import annotations

import http.client
import socket
import threading

import pytest

from bucketmq.testing.endpoints import Endpoint, HangUp, Received, Reply, Silent, Trickle, endpoint

SECONDS = 10.0


def connect(there: Endpoint) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(there.url.split("/")[2], timeout=SECONDS)


def ask(connection: http.client.HTTPConnection, body: bytes = b"hello") -> tuple[int, bytes]:
    connection.request("POST", "/hook", body, {"X-Test": "1"})
    answer = connection.getresponse()
    return answer.status, answer.read()


def test_steps_follow_the_requests_and_the_last_one_stays() -> None:
    with endpoint([Reply(500), Reply(202, body=b"later")]) as there:
        connection = connect(there)
        assert [ask(connection) for _ in range(3)] == [(500, b""), (202, b"later"), (202, b"later")]
        connection.close()
        first, *_ = there.wait_for(3)
    assert (first.method, first.path, first.body, first.headers["x-test"]) == ("POST", "/hook", b"hello", "1")
    assert first.at > 0


def test_a_script_can_be_a_function_of_the_request() -> None:
    def script(request: Received) -> Reply:
        return Reply(200, body=request.body[::-1])

    with endpoint(script) as there:
        connection = connect(there)
        assert ask(connection, b"abc") == (200, b"cba")
        connection.close()


def test_an_answer_waits_for_its_event() -> None:
    go = threading.Event()
    with endpoint([Reply(until=go)]) as there:
        connection = connect(there)
        connection.request("POST", "/", b"")
        there.wait_for(1)
        connection.sock.settimeout(0.05)
        with pytest.raises(TimeoutError):
            connection.sock.recv(1)
        go.set()
        connection.sock.settimeout(SECONDS)
        assert connection.sock.recv(4) == b"HTTP"
        connection.close()


@pytest.mark.parametrize("step", [Silent(), Trickle(), Reply(until=threading.Event())])
def test_an_endpoint_closes_though_a_request_is_under_way(step: Silent | Trickle | Reply) -> None:
    with endpoint([step]) as there:
        connection = connect(there)
        connection.request("POST", "/", b"")
        there.wait_for(1)
    with pytest.raises(OSError), socket.create_connection(("127.0.0.1", connection.port), SECONDS):
        pass
    connection.close()


def test_hanging_up_gives_no_answer() -> None:
    with endpoint([HangUp(), HangUp(read_body=False)]) as there:
        for _ in range(2):
            connection = connect(there)
            with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
                ask(connection)
            connection.close()
        first, second = there.wait_for(2)
        assert (first.body, second.body) == (b"hello", b"")


def test_waiting_for_requests_that_do_not_come_ends() -> None:
    with endpoint() as there, pytest.raises(TimeoutError, match="0 of 1 requests"):
        there.wait_for(1, timeout_seconds=0.01)


def test_a_script_that_fails_is_not_overlooked() -> None:
    def script(request: Received) -> Reply:
        raise KeyError("oops")

    with pytest.raises(AssertionError, match="oops"), endpoint(script) as there:
        connection = connect(there)
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            ask(connection)
        connection.close()
