"""Who may call: one of several secrets, compared in constant time, before the body is read; the same 401 for all."""

from __future__ import annotations

import base64
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from standardwebhooks import Webhook

from bucketmq.bucket.memory import MemoryStore
from bucketmq.client import Bucket
from bucketmq.errors import Invalid
from bucketmq.events.signing import new_secret, sign
from bucketmq.server.access import is_loopback, make_access
from bucketmq.server.run import check_host
from server.running import TOKEN, Running, aio_on, delivered, logged, payload, raw_request, serving, settings_with

OLD, NEW = new_secret(b"o" * 32), new_secret(b"n" * 32)
BASIC = "mia:a-pass:word-of-mia"


@pytest.fixture
def guarded(store: MemoryStore) -> Iterator[Running]:
    """Every kind of secret, two of each."""
    settings = settings_with(
        bearer=[TOKEN, "the-next-token-for-tests"], basic=[BASIC, "ben:another-password"], signing=[OLD, NEW]
    )
    with serving(lambda: aio_on(store), settings) as running:
        yield running


def basic(secret: str) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(secret.encode()).decode()}


def signed(secret: str, body: bytes, *, at: float | None = None, message_id: str = "msg_1") -> dict[str, str]:
    return sign([secret], message_id, int(time.time() if at is None else at), body)


BAD = [
    {},
    {"authorization": "Bearer wrong"},
    {"authorization": f"Bearer {TOKEN}x"},
    {"authorization": "Bearer"},
    {"authorization": TOKEN},
    {"authorization": f"Basic {TOKEN}"},
    {"authorization": "Basic !!!"},
    {"authorization": "Bearer " + "x" * 9000},
    basic("mia:wrong"),
    basic("mia"),
]


def test_a_missing_and_a_wrong_secret_get_the_same_answer(guarded: Running, store: MemoryStore) -> None:
    answers = [guarded.stranger.post("/events/tigris", content=payload("tigris"), headers=headers) for headers in BAD]
    assert {answer.status_code for answer in answers} == {401}
    assert len({answer.content for answer in answers}) == 1
    kept = {tuple(sorted((k, v) for k, v in answer.headers.items() if k != "date")) for answer in answers}
    assert len(kept) == 1
    assert answers[0].json() == {"error": "unauthorized", "hint": None}
    assert not store.list("", after="", limit=10).entries


def test_two_authorization_headers_are_none(guarded: Running) -> None:
    headers = [("authorization", f"Bearer {TOKEN}"), ("authorization", "Bearer wrong")]
    assert guarded.stranger.post("/events/tigris", content=b"{}", headers=headers).status_code == 401


@pytest.mark.parametrize(
    "headers",
    [
        {"authorization": f"Bearer {TOKEN}"},
        {"authorization": "bearer the-next-token-for-tests"},
        basic(BASIC),
        basic("ben:another-password"),
    ],
)
def test_old_and_new_secrets_open_the_door_at_the_same_time(guarded: Running, headers: dict[str, str]) -> None:
    assert guarded.stranger.post("/events/tigris", content=b'{"events": []}', headers=headers).status_code == 200


@pytest.mark.parametrize("secret", [OLD, NEW])
def test_a_signature_by_an_old_or_a_new_secret_opens_the_door(guarded: Running, bucket: Bucket, secret: str) -> None:
    body = payload("tigris")
    answer = guarded.stranger.post("/events/tigris", content=body, headers=signed(secret, body))
    assert answer.status_code == 200, answer.text
    assert delivered(bucket)


def test_a_signature_of_the_formats_own_library_is_taken(guarded: Running) -> None:
    body = payload("tigris")
    now = datetime.now(UTC)
    headers = {
        "webhook-id": "msg_7",
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(NEW).sign("msg_7", now, body.decode()),
    }
    assert guarded.stranger.post("/events/tigris", content=body, headers=headers).status_code == 200


def test_a_signature_that_does_not_fit_or_is_stale_is_the_same_401(guarded: Running, store: MemoryStore) -> None:
    body = payload("tigris")
    wrong = [
        signed(new_secret(b"x" * 32), body),
        signed(OLD, body + b" "),
        signed(OLD, body, at=time.time() - 301),
        signed(OLD, body, at=time.time() + 301),
        signed(OLD, body) | {"webhook-id": "msg_2"},
        {"webhook-signature": "v1,AAAA"},
    ]
    answers = [guarded.stranger.post("/events/tigris", content=body, headers=headers) for headers in wrong]
    assert [answer.status_code for answer in answers] == [401] * len(wrong)
    assert {answer.text for answer in answers} == {guarded.stranger.post("/events/tigris").text}
    assert not store.list("", after="", limit=10).entries


def test_a_signed_body_is_not_parsed_before_its_signature_fits(guarded: Running) -> None:
    body = b"[" * 100_000
    answer = guarded.stranger.post("/events/tigris", content=body, headers=signed(new_secret(b"x" * 32), body))
    assert answer.status_code == 401
    assert guarded.stranger.post("/events/tigris", content=body, headers=signed(OLD, body)).status_code == 400


def test_a_replayed_signature_is_harmless(guarded: Running, bucket: Bucket) -> None:
    body = payload("tigris")
    headers = signed(OLD, body)
    answers = [guarded.stranger.post("/events/tigris", content=body, headers=headers) for _ in range(3)]
    assert [answer.status_code for answer in answers] == [200] * 3
    once = len(delivered(bucket))
    assert once == answers[0].json()["accepted"]
    assert len(logged(bucket)) == 3 * once


def test_a_stranger_is_sent_away_before_the_body_is_read(server: Running) -> None:
    for framing in ("Content-Length: 1000", "Transfer-Encoding: chunked"):
        with server.connect() as connection:
            connection.sendall(
                raw_request(server, "POST /events/tigris HTTP/1.1", f"{framing}\r\n\r\n".encode(), token="wrong")
            )
            assert connection.recv(65536).startswith(b"HTTP/1.1 401 ")
    assert server.is_healthy()


def test_secrets_are_in_no_log_and_no_text_of_ours(guarded: Running, caplog: pytest.LogCaptureFixture) -> None:
    guarded.post("tigris", payload("tigris"))
    guarded.stranger.post("/events/tigris", headers={"authorization": "Bearer a-wrong-secret"})
    shown = caplog.text + repr(guarded.parts.settings)
    for secret in (TOKEN, "the-next-token-for-tests", BASIC, "a-pass:word-of-mia", OLD, NEW, "a-wrong-secret"):
        assert secret not in shown


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "no caller could be let in"),
        ({"bearer": [TOKEN], "no_auth": True}, "switched off"),
        ({"bearer": [""]}, "token"),
        ({"bearer": ["two words "]}, "token"),
        ({"bearer": TOKEN}, "list"),
        ({"basic": ["nobody"]}, "user:password"),
        ({"signing": ["whsec_short"]}, "signing secret"),
        ({"bearer": [TOKEN] * 33}, "at most"),
    ],
)
def test_secrets_that_cannot_work_are_refused_at_the_start(options: dict[str, object], says: str) -> None:
    with pytest.raises(Invalid, match=says) as refused:
        make_access(**options)  # type: ignore[arg-type]
    assert TOKEN not in str(refused.value) and "whsec_short" not in str(refused.value)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "localhost", "::1", "[::1]"])
def test_without_secrets_a_server_listens_to_its_own_machine(host: str) -> None:
    assert is_loopback(host)
    check_host(settings_with(no_auth=True), host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "example.com", "127.0.0.1.example.com", ""])
def test_without_secrets_no_other_address_is_listened_on(host: str) -> None:
    with pytest.raises(Invalid, match="without secrets"):
        check_host(settings_with(no_auth=True), host)
    check_host(settings_with(), host)


def test_without_secrets_web_pages_of_others_cannot_call(store: MemoryStore) -> None:
    with serving(lambda: aio_on(store), settings_with(no_auth=True)) as running:
        assert running.stranger.post("/events/tigris", content=b'{"events": []}').status_code == 200
        for headers in ({"host": "evil.example"}, {"origin": "https://evil.example"}, {"origin": "null"}):
            for method, path in (("POST", "/events/tigris"), ("GET", "/metrics"), ("OPTIONS", "/events/tigris")):
                answer = running.stranger.request(method, path, headers=headers)
                assert answer.status_code == 403, (headers, method, path)
        assert running.stranger.get("/metrics").status_code == 200


def test_without_secrets_nobody_comes_in_through_a_proxy_on_this_machine(store: MemoryStore) -> None:
    """It may say that it is called as this machine, and yet not for whom."""
    with serving(lambda: aio_on(store), settings_with(no_auth=True)) as running:
        for headers in (
            [("x-forwarded-for", "198.51.100.7")],
            [("x-forwarded-for", "127.0.0.1, 198.51.100.7")],
            [("x-forwarded-for", "127.0.0.1"), ("X-Forwarded-For", "2001:db8::7")],
            [("forwarded", "for=198.51.100.7")],
            [("x-forwarded-for", "")],
        ):
            assert running.stranger.get("/metrics", headers=headers).status_code == 403, headers
            assert running.stranger.post("/events/tigris", content=b"[]", headers=headers).status_code == 403, headers
        assert running.stranger.get("/metrics", headers={"x-forwarded-for": "127.0.0.1, ::1"}).status_code == 200


@pytest.mark.parametrize("path", ["/metrics", "/openapi.json", "/docs"])
def test_pages_need_a_secret_and_browsers_show_a_token_as_a_password(server: Running, path: str) -> None:
    assert server.stranger.get(path).status_code == 401
    assert server.stranger.get(path).headers["www-authenticate"].startswith("Basic")
    assert server.stranger.get(path, headers=basic("token:wrong")).status_code == 401
    assert server.stranger.get(path, headers=basic(f"token:{TOKEN}")).status_code == 200
    assert server.http.get(path).status_code == 200
    assert server.stranger.post("/events/tigris", headers=basic(f"token:{TOKEN}")).status_code == 401
