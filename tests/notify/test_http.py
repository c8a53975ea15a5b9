"""The guarded client against real endpoints on this machine that behave as badly as they can."""

from __future__ import annotations

import logging
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bucketmq.errors import Invalid
from bucketmq.notify.http import BODY_BYTES_KEPT, BODY_BYTES_MAX, Poster
from bucketmq.procedures.requests import Answer, NoAnswer, Post
from bucketmq.testing.endpoints import (
    Endless,
    Endpoint,
    HangUp,
    Raw,
    Received,
    Reply,
    Silent,
    Trickle,
    endpoint,
)
from notify.certificates import certificate, client_side, server_side

LONG_SECONDS = 30.0
"""For requests that must not run into it."""
SHORT_SECONDS = 0.3
"""For requests that must."""


@pytest.fixture
def poster() -> Iterator[Poster]:
    with Poster() as made:
        yield made


def post(url: str, *, body: bytes = b"{}", seconds: float = LONG_SECONDS, private: bool = True, **headers: str) -> Post:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Post(url, {"content-type": "application/json", **named}, body, seconds, private)


def port_of(there: Endpoint) -> int:
    return int(there.url.split(":")[2].split("/")[0])


def answered(reply: Answer | NoAnswer) -> Answer:
    assert isinstance(reply, Answer), reply
    return reply


def unanswered(reply: Answer | NoAnswer) -> NoAnswer:
    assert isinstance(reply, NoAnswer), reply
    return reply


# What is sent, and what comes back


def test_a_request_arrives_as_it_was_given(poster: Poster) -> None:
    with endpoint(path="/hook?team=7") as there:
        reply = answered(poster.post(post(there.url, body=b'{"a":1}', webhook_id="msg_1", authorization="Bearer t")))
        (request,) = there.wait_for(1)
    assert (reply.status, reply.body) == (200, b"")
    assert reply.seconds >= 0
    assert (request.method, request.path, request.body) == ("POST", "/hook?team=7", b'{"a":1}')
    assert request.headers["host"] == f"127.0.0.1:{port_of(there)}"
    assert request.headers["webhook-id"] == "msg_1"
    assert request.headers["authorization"] == "Bearer t"
    assert request.headers["content-length"] == "7"
    assert "accept-encoding" not in request.headers


def test_status_headers_and_body_come_back_with_names_in_lower_case(poster: Poster) -> None:
    with endpoint([Reply(503, {"Retry-After": "7", "X-One": "a"}, b"busy")]) as there:
        reply = answered(poster.post(post(there.url)))
    assert (reply.status, reply.body) == (503, b"busy")
    assert (reply.headers["retry-after"], reply.headers["x-one"]) == ("7", "a")


def test_a_header_that_comes_twice_is_joined(poster: Poster) -> None:
    raw = b"HTTP/1.1 200 OK\r\nX-One: a\r\nx-one: b\r\nContent-Length: 0\r\n\r\n"
    with endpoint([Raw(raw)]) as there:
        assert answered(poster.post(post(there.url))).headers["x-one"] == "a, b"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_an_answer_and_is_not_followed(poster: Poster, status: int) -> None:
    with endpoint() as elsewhere, endpoint([Reply(status, {"Location": elsewhere.url})]) as there:
        assert answered(poster.post(post(there.url))).status == status
        assert elsewhere.requests == []
        assert len(there.requests) == 1


def test_proxies_of_the_environment_are_not_used(poster: Poster, monkeypatch: pytest.MonkeyPatch) -> None:
    with endpoint() as proxy, endpoint() as there:
        for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy.url)
        monkeypatch.delenv("no_proxy", raising=False)
        with Poster() as fresh:
            answered(fresh.post(post(there.url)))
        assert proxy.requests == []
        assert len(there.requests) == 1


def test_cookies_are_not_kept(poster: Poster) -> None:
    with endpoint([Reply(200, {"Set-Cookie": "a=1"}), Reply()]) as there:
        poster.post(post(there.url))
        poster.post(post(there.url))
        assert "cookie" not in there.wait_for(2)[1].headers


def test_a_callers_headers_cannot_change_where_a_request_goes_or_how_it_is_framed(poster: Poster) -> None:
    odd = {"Host": "other.example", "Content-Length": "1", "Transfer-Encoding": "chunked", "Connection": "close"}
    with endpoint() as there:
        answered(poster.post(Post(there.url, odd, b"12345", LONG_SECONDS, True)))
        (request,) = there.wait_for(1)
    assert request.headers["host"].startswith("127.0.0.1:")
    assert request.body == b"12345"
    assert "transfer-encoding" not in request.headers


@pytest.mark.parametrize("headers", [{"x": "a\r\nx-forged: 1"}, {"x\r\ny": "a"}, {"x": "ü"}, {"": "a"}, {"x": "\0"}])
def test_a_header_that_is_none_is_refused_before_anything_is_sent(poster: Poster, headers: dict[str, str]) -> None:
    with endpoint() as there:
        reply = unanswered(poster.post(Post(there.url, headers, b"", LONG_SECONDS, True)))
        assert reply.refused
        assert "cannot be sent" in reply.reason
        assert there.requests == []


# Answers that are too long, too slow, or none


def test_a_success_is_kept_whole_so_that_it_can_name_failed_events(poster: Poster) -> None:
    with endpoint([Reply(200, body=b"x" * 50_000)]) as there:
        assert len(answered(poster.post(post(there.url))).body) == 50_000


def test_only_the_first_kibibyte_of_a_failure_is_kept(poster: Poster) -> None:
    with endpoint([Reply(500, body=b"x" * 50_000)]) as there:
        assert answered(poster.post(post(there.url))).body == b"x" * BODY_BYTES_KEPT


def test_a_body_without_end_is_cut_and_its_connection_closed(poster: Poster) -> None:
    with endpoint([Endless(), Reply()]) as there:
        reply = answered(poster.post(post(there.url)))
        assert (reply.status, len(reply.body)) == (200, BODY_BYTES_MAX)
        assert answered(poster.post(post(there.url))).status == 200
        first, second = there.wait_for(2)
        assert first.connection != second.connection


def test_a_body_of_fifty_megabytes_is_not_read_to_its_end(poster: Poster) -> None:
    with endpoint([Reply(200, body=bytes(50 << 20))]) as there:
        assert len(answered(poster.post(post(there.url))).body) == BODY_BYTES_MAX


@pytest.mark.parametrize(
    "step",
    [
        Endless(b"HTTP/1.1 200 OK\r\n", b"X-A: b\r\n"),
        Endless(b"HTTP/1.1 200 OK\r\nX-A: ", b"b" * 1000),
        Endless(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        Endless(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"x" * 1000),
        Raw(b"HTTP/1.1 200 OK\r\n" + b"X-A: b\r\n" * 101 + b"Content-Length: 0\r\n\r\n"),
        Raw(b"HTTP/1.1 200 OK\r\nX-A: " + b"b" * 40_000 + b"\r\nContent-Length: 0\r\n\r\n"),
    ],
    ids=["headers", "one header", "interim answers", "chunk extension", "101 headers", "40 kB header"],
)
def test_headers_without_end_are_not_an_answer(poster: Poster, step: Endless | Raw) -> None:
    with endpoint([step]) as there:
        assert unanswered(poster.post(post(there.url))).reason


@pytest.mark.parametrize(
    "step",
    [
        Trickle(),
        Trickle(b"HTTP/1.1 200 OK\r\nX-A: ", b"b"),
        Trickle(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
        Silent(),
    ],
    ids=["body", "headers", "chunks", "silence"],
)
def test_the_deadline_holds_for_the_whole_answer(poster: Poster, step: Trickle | Silent) -> None:
    """None of these ever ends, and none of the trickles ever leaves a gap as long as the timeout."""
    with endpoint([step]) as there:
        reply = unanswered(poster.post(post(there.url, seconds=SHORT_SECONDS)))
    assert reply.reason == "timed out after 0.3 s while waiting for the answer"
    assert not reply.refused
    assert reply.seconds >= SHORT_SECONDS


def test_the_deadline_holds_for_sending() -> None:
    """A peer that accepts and reads nothing: the body does not fit into the system's buffers."""
    with socket.create_server(("127.0.0.1", 0)) as deaf, Poster() as poster:
        url = f"http://127.0.0.1:{deaf.getsockname()[1]}/"
        reply = unanswered(poster.post(post(url, body=bytes(64 << 20), seconds=SHORT_SECONDS)))
    assert reply.reason == "timed out after 0.3 s while sending"


def test_the_deadline_holds_for_sending_to_a_peer_that_reads_a_little_at_a_time() -> None:
    """It always takes something before the timeout is over, and would need five seconds for all of it."""
    stop = threading.Event()

    def sip(listening: socket.socket) -> None:
        taken, _ = listening.accept()
        with taken:
            while not stop.wait(0.02) and taken.recv(256 << 10):
                pass

    with socket.create_server(("127.0.0.1", 0)) as slow, Poster() as poster, ThreadPoolExecutor(1) as threads:
        sipping = threads.submit(sip, slow)
        url = f"http://127.0.0.1:{slow.getsockname()[1]}/"
        reply = unanswered(poster.post(post(url, body=bytes(64 << 20), seconds=SHORT_SECONDS)))
        stop.set()
        sipping.result(LONG_SECONDS)
    assert reply.reason == "timed out after 0.3 s while sending"


def test_the_deadline_holds_for_the_tls_handshake() -> None:
    with socket.create_server(("127.0.0.1", 0)) as deaf, Poster() as poster:
        url = f"https://127.0.0.1:{deaf.getsockname()[1]}/"
        reply = unanswered(poster.post(post(url, seconds=SHORT_SECONDS)))
    assert reply.reason == "timed out after 0.3 s while connecting"


def test_the_deadline_holds_for_looking_up_the_name_and_one_lookup_serves_all_who_wait() -> None:
    release, asked = threading.Event(), []

    def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        release.wait(LONG_SECONDS)
        return ["127.0.0.1"]

    with Poster(resolve=resolve) as poster, ThreadPoolExecutor(4) as threads:
        url = "http://slow.example:1/"
        replies = list(threads.map(lambda _: poster.post(post(url, seconds=SHORT_SECONDS)), range(4)))
        release.set()
    assert {unanswered(each).reason for each in replies} == {"timed out after 0.3 s while looking up host slow.example"}
    assert asked == ["slow.example"]


@pytest.mark.parametrize(
    ("step", "why"),
    [
        (HangUp(), "disconnected"),
        (HangUp(read_body=False), ""),
        (Raw(b""), "disconnected"),
        (Raw(b"SSH-2.0-OpenSSH_9\r\n\r\n"), "not HTTP"),
        (Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort"), "not HTTP"),
        (Raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab\r\n"), "not HTTP"),
        (Raw(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab"), "not HTTP"),
        (Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"), "not HTTP"),
        (Raw(b"HTTP/1.1 abc OK\r\n\r\n"), "not HTTP"),
        (Raw(b"HTTP/1.1 200 OK\r\nbad header\r\n\r\n"), "not HTTP"),
    ],
)
def test_an_answer_that_breaks_off_or_is_broken_is_no_answer(poster: Poster, step: HangUp | Raw, why: str) -> None:
    with endpoint([step, Reply()]) as there:
        reply = unanswered(poster.post(post(there.url, body=b"x" * 100_000)))
        assert why in reply.reason
        assert not reply.refused
        assert len(there.wait_for(1)) == 1, "the client does not try again by itself"
        assert answered(poster.post(post(there.url))).status == 200


def test_nobody_listening_is_told_as_no_connection(poster: Poster) -> None:
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    reply = unanswered(poster.post(post(f"http://127.0.0.1:{port}/")))
    assert reply.reason == "no connection: Connection refused"
    assert not reply.refused


def test_a_name_without_an_address_is_told_as_no_connection() -> None:
    def resolve(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    with Poster(resolve=resolve) as poster:
        reply = unanswered(poster.post(post("https://nowhere.example/")))
    assert reply.reason == "no connection: host nowhere.example was not found (Name or service not known)"
    with Poster(resolve=lambda host, port: []) as poster:
        assert unanswered(poster.post(post("https://nowhere.example/"))).reason.endswith("has no address")


# Which address is spoken to


class Changing:
    """A name server that gives another answer each time."""

    def __init__(self, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        return self.answers.pop(0)


@pytest.mark.parametrize(
    ("addresses", "why"),
    [
        (["10.0.0.1"], "refused: address 10.0.0.1 of host hook.example is private"),
        (["127.0.0.1"], "refused: address 127.0.0.1 of host hook.example is this machine"),
        (["93.184.216.34", "10.0.0.1"], "refused: address 10.0.0.1 of host hook.example is private"),
        (["93.184.216.34", "::1"], "refused: address ::1 of host hook.example is this machine"),
        (["fe80::1%2"], "refused: address fe80::1%2 of host hook.example has a zone"),
        (["169.254.169.254"], "refused: address 169.254.169.254 of host hook.example is a cloud's metadata service"),
        (["::ffff:10.0.0.1"], "contains 10.0.0.1, which is private"),
        (["64:ff9b::7f00:1"], "contains 127.0.0.1, which is this machine"),
    ],
)
def test_one_bad_address_of_a_name_refuses_it(addresses: list[str], why: str) -> None:
    with Poster(resolve=Changing(addresses)) as poster:
        reply = unanswered(poster.post(post("https://hook.example/", private=False)))
    assert reply.refused
    assert why in reply.reason


@pytest.mark.parametrize(
    "url",
    [
        "https://127.0.0.1/",
        "https://[::1]/",
        "https://2130706433/",
        "https://user@example.com/",
        "http://example.com/",
        "https://example.com:8080/",
    ],
)
def test_a_refused_url_is_not_even_looked_up(url: str) -> None:
    resolve = Changing()
    with Poster(resolve=resolve) as poster:
        assert unanswered(poster.post(post(url, private=False))).refused
    assert resolve.asked == []


def test_a_local_endpoint_is_refused_unless_private_targets_are_allowed(poster: Poster) -> None:
    with endpoint() as there:
        for url in (there.url, there.url.replace("127.0.0.1", "localhost")):
            assert unanswered(poster.post(post(url, private=False))).refused
        assert there.requests == []
        assert answered(poster.post(post(there.url.replace("127.0.0.1", "localhost")))).status == 200


def test_the_system_resolver_is_checked_too() -> None:
    with Poster(ports=(443,)) as poster:
        reply = unanswered(poster.post(post("https://localhost/", private=False)))
    assert reply.refused
    assert "localhost is this machine" in reply.reason


def test_the_metadata_service_is_refused_even_in_development(poster: Poster) -> None:
    assert unanswered(poster.post(post("http://169.254.169.254/latest/meta-data/"))).refused


def test_the_connection_goes_to_the_checked_address_while_host_stays_the_name() -> None:
    """The name is looked up once for a request, so a name server has no second chance to say another address."""
    with endpoint() as there:
        resolve = Changing(["127.0.0.1"])
        with Poster(resolve=resolve) as poster:
            reply = answered(poster.post(post(f"http://hook.example:{port_of(there)}/hook")))
        (request,) = there.wait_for(1)
    assert reply.status == 200
    assert resolve.asked == ["hook.example"]
    assert request.headers["host"] == f"hook.example:{port_of(there)}"


def test_a_name_that_moves_to_a_private_address_is_refused_though_a_connection_is_open() -> None:
    """The first answer is a good one and leaves an open connection behind; the second is checked all the same."""
    with endpoint() as there:
        resolve = Changing(["127.0.0.1"], ["169.254.169.254"], ["127.0.0.1"])
        with Poster(resolve=resolve) as poster:
            url = f"http://hook.example:{port_of(there)}/hook"
            assert answered(poster.post(post(url))).status == 200
            assert unanswered(poster.post(post(url))).refused
            assert len(there.requests) == 1
            assert answered(poster.post(post(url))).status == 200


def test_a_connection_is_not_used_for_a_name_that_moved_away() -> None:
    """Two servers behind one name, one after the other: the open connection to the first belongs to its address."""
    with endpoint() as there, socket.socket() as other:
        # The same port on another loopback address.
        other.bind(("127.0.0.2", port_of(there)))
        other.listen()
        with Poster(resolve=Changing(["127.0.0.1"], ["127.0.0.2"])) as poster:
            url = f"http://hook.example:{port_of(there)}/hook"
            assert answered(poster.post(post(url))).status == 200
            unanswered(poster.post(post(url, seconds=SHORT_SECONDS)))
            connection, _ = other.accept()
            with connection:
                assert connection.recv(4) == b"POST"
        assert len(there.requests) == 1


def test_the_next_address_is_tried_when_one_does_not_connect() -> None:
    with endpoint() as there, Poster(resolve=Changing(["127.0.0.3", "127.0.0.1"])) as poster:
        assert answered(poster.post(post(f"http://hook.example:{port_of(there)}/"))).status == 200
        assert len(there.requests) == 1


def test_no_other_address_is_tried_once_a_request_was_sent() -> None:
    with endpoint([HangUp()]) as there, Poster(resolve=Changing(["127.0.0.1", "127.0.0.1"])) as poster:
        unanswered(poster.post(post(f"http://hook.example:{port_of(there)}/")))
        assert len(there.requests) == 1


# TLS


def test_a_self_signed_certificate_is_refused(tmp_path: Path, poster: Poster) -> None:
    pem = certificate(tmp_path, "127.0.0.1")
    with endpoint(tls=server_side(pem)) as there:
        reply = unanswered(poster.post(post(there.url)))
        assert there.requests == []
    assert reply.reason.startswith("TLS failure: the certificate was refused: self")
    assert not reply.refused


def test_a_certificate_for_another_name_is_refused(tmp_path: Path) -> None:
    pem = certificate(tmp_path, "other.example")
    with (
        endpoint(tls=server_side(pem)) as there,
        Poster(resolve=Changing(["127.0.0.1"]), tls=client_side(pem)) as poster,
    ):
        reply = unanswered(poster.post(post(f"https://hook.example:{port_of(there)}/")))
    assert "TLS failure" in reply.reason
    assert "hook.example" in reply.reason


def test_the_certificate_and_the_server_name_are_the_names_not_the_addresses(tmp_path: Path) -> None:
    pem = certificate(tmp_path, "hook.example")
    names: list[str | None] = []
    context = server_side(pem)
    context.sni_callback = lambda sock, name, given: names.append(name)
    with (
        endpoint(tls=context) as there,
        Poster(resolve=Changing(["127.0.0.1"]), tls=client_side(pem)) as poster,
    ):
        assert answered(poster.post(post(f"https://HOOK.example.:{port_of(there)}/"))).status == 200
        (request,) = there.wait_for(1)
    assert names == ["hook.example"]
    assert request.headers["host"] == f"hook.example:{port_of(there)}"


def test_a_tls_connection_of_one_name_is_not_used_for_another_on_the_same_server(tmp_path: Path) -> None:
    """Its certificate was never checked for the second name."""
    pem = certificate(tmp_path, "one.example")
    resolve = Changing(["127.0.0.1"], ["127.0.0.1"])
    with endpoint(tls=server_side(pem)) as there, Poster(resolve=resolve, tls=client_side(pem)) as poster:
        assert answered(poster.post(post(f"https://one.example:{port_of(there)}/"))).status == 200
        assert "TLS failure" in unanswered(poster.post(post(f"https://two.example:{port_of(there)}/"))).reason
        assert len(there.requests) == 1


def test_https_to_a_server_that_speaks_plain_http_is_a_tls_failure(poster: Poster) -> None:
    with endpoint() as there:
        assert "TLS failure" in unanswered(poster.post(post(there.url.replace("http:", "https:")))).reason


def test_old_tls_is_refused(tmp_path: Path) -> None:
    pem = certificate(tmp_path, "127.0.0.1")
    with Poster() as poster:
        context = poster._pool._ssl_context
        assert context is not None
        assert context.minimum_version >= ssl.TLSVersion.TLSv1_2
        assert context.verify_mode == ssl.CERT_REQUIRED
        assert context.check_hostname
    with endpoint(tls=server_side(pem)) as there, Poster(tls=client_side(pem)) as poster:
        assert answered(poster.post(post(there.url))).status == 200


# Connections and threads


def test_connections_are_kept_for_the_next_request(poster: Poster) -> None:
    with endpoint() as there:
        for _ in range(5):
            assert answered(poster.post(post(there.url))).status == 200
        assert {each.connection for each in there.wait_for(5)} == {1}


def test_a_connection_the_server_closed_is_not_used_again(poster: Poster) -> None:
    with endpoint([Raw(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), Reply()]) as there:
        assert answered(poster.post(post(there.url))).status == 200
        # `Raw` closes after a keep-alive answer. Whether that has arrived yet is up to the system; either way the
        # request after it must not be sent twice.
        poster.post(post(there.url))
        assert answered(poster.post(post(there.url))).status == 200
        assert len(there.requests) <= 3


def test_many_threads_share_one_client_and_idle_connections_are_bounded() -> None:
    everybody = threading.Barrier(16)

    def together(request: Received) -> Reply:
        everybody.wait(LONG_SECONDS)  # all sixteen are under way at the same time, or this fails
        return Reply(200, body=request.body)

    with (
        endpoint(together) as there,
        Poster(idle_connections_max=2) as poster,
        ThreadPoolExecutor(16) as threads,
    ):
        bodies = [str(number).encode() for number in range(64)]
        replies = list(threads.map(lambda body: poster.post(post(there.url, body=body)), bodies))
        assert [answered(each).body for each in replies] == bodies
        assert len(poster._pool.connections) <= 2


def test_a_silent_endpoint_does_not_hold_up_another() -> None:
    with endpoint([Silent()]) as dead, endpoint() as good, Poster() as poster, ThreadPoolExecutor(32) as threads:
        stuck = [threads.submit(poster.post, post(dead.url)) for _ in range(32)]
        dead.wait_for(32)
        assert answered(poster.post(post(good.url))).status == 200
        assert not any(each.done() for each in stuck)
        poster.close()
        assert {type(each.result(LONG_SECONDS)) for each in stuck} == {NoAnswer}


def test_a_closed_client_answers_nothing(poster: Poster) -> None:
    poster.close()
    poster.close()
    with endpoint() as there:
        assert unanswered(poster.post(post(there.url))).reason == "the client is closed"
        assert there.requests == []


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_a_timeout_must_be_a_time(poster: Poster, seconds: float) -> None:
    with pytest.raises(Invalid, match="timeout_seconds"):
        poster.post(post("https://hook.example/", seconds=seconds))


# GET


def test_get_has_the_same_guards(poster: Poster) -> None:
    with endpoint([Reply(200, body=b"<Confirmed/>" * 100)], path="/?Action=Confirm") as there:
        assert unanswered(poster.get(there.url)).refused
        reply = answered(poster.get(there.url, private=True, bytes_max=12))
        assert (reply.status, reply.body) == (200, b"<Confirmed/>")
        (request,) = there.wait_for(1)
        assert (request.method, request.body) == ("GET", b"")
        assert "content-length" not in request.headers
        with pytest.raises(Invalid, match="bytes_max"):
            poster.get(there.url, private=True, bytes_max=1 << 30)


def test_get_follows_no_redirect(poster: Poster) -> None:
    with endpoint() as elsewhere, endpoint([Reply(302, {"Location": elsewhere.url})]) as there:
        assert answered(poster.get(there.url, private=True)).status == 302
        assert elsewhere.requests == []


# What it says, and what it needs


def test_secrets_and_bodies_are_never_logged(poster: Poster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    with endpoint([Reply(200, body=b"answer-body-text")]) as there:
        answered(poster.post(post(there.url + "?key=query-secret", body=b"body-secret", authorization="Bearer tok-1")))
    for secret in ("query-secret", "body-secret", "tok-1", "answer-body-text"):
        assert secret not in caplog.text


def test_the_library_is_imported_without_the_http_package_and_says_what_is_missing() -> None:
    code = (
        "import sys\n"
        "sys.modules['httpcore2'] = None\n"
        "import bucketmq, bucketmq.notify.addresses, bucketmq.notify.http as http\n"
        "try:\n"
        "    http.Poster()\n"
        "except bucketmq.errors.Unsupported as error:\n"
        "    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "webhooks need the package httpx2; run: pip install 'bucketmq[server]'"
