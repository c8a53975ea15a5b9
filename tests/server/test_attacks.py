"""What somebody tries who has no secret, or one captured request: guessing, forging, filling up."""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from cloudevents.core.bindings.http import to_binary_event, to_structured_event
from cloudevents.core.v1.event import CloudEvent

from bucketmq.bucket.memory import MemoryStore
from bucketmq.client import Bucket
from bucketmq.errors import Invalid
from bucketmq.events.signing import sign
from bucketmq.server import endpoint
from bucketmq.server.access import UNPROVEN_BYTES_MAX, WRONG_SECRETS_MAX, Budget, make_access
from bucketmq.server.callers import ADDRESSES_MAX, FAILURES_SECONDS, Limit, caller_address, proxies_of
from bucketmq.server.settings import check_settings
from bucketmq.server.wire import Refusal
from server.running import (
    SECRET,
    TOKEN,
    aio_on,
    delivered,
    payload,
    raw_request,
    read_all,
    serving,
    settings_with,
    until,
)
from server.test_hook import post


def signed(body: bytes) -> dict[str, str]:
    return sign([SECRET], "msg_1", int(time.time()), body)


# Signatures.


def cloud_event(mode: str) -> tuple[bytes, dict[str, str]]:
    event = CloudEvent(
        {"id": "7", "source": "https://shop.example", "type": "shop.file.created", "subject": "a.csv"}, {}
    )
    message = to_binary_event(event) if mode == "binary" else to_structured_event(event)
    return message.body if isinstance(message.body, bytes) else message.body.encode(), dict(message.headers)


def test_a_captured_signature_mints_no_events_through_headers_that_it_does_not_cover(
    store: MemoryStore, bucket: Bucket
) -> None:
    with serving(lambda: aio_on(store), settings_with(signing=[SECRET])) as running:
        body, headers = cloud_event("binary")
        for source in ("cloudevents", "auto", "azure", "gcs"):
            for subject in ("a.csv", "somebody-elses.csv"):
                forged = {**headers, "ce-subject": subject, **signed(body)}
                answer = running.stranger.post(f"/events/{source}", content=body, headers=forged)
                assert answer.status_code == 415, answer.text
                assert "structured" in answer.json()["hint"]
        body, headers = cloud_event("structured")
        answer = running.stranger.post("/events/cloudevents", content=body, headers={**headers, **signed(body)})
        assert answer.json()["accepted"] == 1
    assert [event.key for event in delivered(bucket)] == ["a.csv"]


def test_binary_mode_is_fine_for_who_shows_a_token_as_well(store: MemoryStore, bucket: Bucket) -> None:
    body, headers = cloud_event("binary")
    with serving(lambda: aio_on(store), settings_with(signing=[SECRET], bearer=[TOKEN])) as running:
        answer = running.http.post("/events/auto", content=body, headers={**headers, **signed(body)})
        assert answer.json()["accepted"] == 1
    assert [event.key for event in delivered(bucket)] == ["a.csv"]


def test_a_mounted_handler_refuses_signed_binary_mode_too(bucket: Bucket) -> None:
    called: list[Any] = []
    body, headers = cloud_event("binary")
    hook = endpoint(called.append, bucket, signing=[SECRET])
    assert post(hook, "/", body, {**headers, **signed(body)}).status_code == 415
    assert not called


def test_a_page_from_elsewhere_sends_nothing_with_the_secret_that_a_browser_keeps(
    store: MemoryStore, bucket: Bucket
) -> None:
    """A browser that was told user and password, to read `/docs`, shows them for any page that posts here."""
    with serving(lambda: aio_on(store), settings_with(basic=["mia:a-pass:word-of-mia"])) as running:
        place, body = running.url.removeprefix("http://"), payload("tigris")
        known = {"authorization": "Basic bWlhOmEtcGFzczp3b3JkLW9mLW1pYQ==", "content-type": "text/plain"}
        elsewhere = (
            {"origin": "https://evil.example"},
            {"origin": "null"},
            {"origin": f"http://{place}0"},
            {"sec-fetch-site": "cross-site"},
            {"sec-fetch-site": "same-site", "origin": f"http://{place}"},
        )
        for headers in elsewhere:
            answer = running.stranger.post("/events/tigris", content=body, headers={**known, **headers})
            assert answer.status_code == 403, headers
        assert not [name for name in bucket.queues() if name == "events"]
        for headers in ({}, {"origin": f"http://{place}", "sec-fetch-site": "same-origin"}):
            answer = running.stranger.post("/events/tigris", content=body, headers={**known, **headers})
            assert answer.status_code == 200, answer.text
        shown = running.stranger.get("/docs", headers={**known, "sec-fetch-site": "cross-site"})
        assert shown.status_code == 200 and shown.headers["x-frame-options"] == "DENY", "a link may lead here"


# Guessing.


def wrong(number: int) -> dict[str, str]:
    return {"authorization": f"Bearer a-wrong-token-{number:06}"}


def test_wrong_tokens_cost_the_address_that_shows_them(store: MemoryStore) -> None:
    with serving(lambda: aio_on(store), settings_with()) as running:
        statuses = [
            running.stranger.post("/events/tigris", headers=wrong(number)).status_code
            for number in range(WRONG_SECRETS_MAX + 5)
        ]
        assert statuses == [401] * WRONG_SECRETS_MAX + [429] * 5
        for path in ("/metrics", "/docs", "/openapi.json"):
            assert running.stranger.get(path, headers=wrong(0)).status_code == 429
        late = running.post("tigris", b'{"events": []}')
        assert late.status_code == 429 and 0 < int(late.headers["retry-after"]) <= FAILURES_SECONDS
        assert running.stranger.get("/healthz").status_code == 200


def test_guesses_in_parallel_get_no_further(store: MemoryStore) -> None:
    with serving(lambda: aio_on(store), settings_with()) as running, ThreadPoolExecutor(30) as pool:
        url = f"{running.url}/events/tigris"
        answers = list(pool.map(lambda n: httpx2.post(url, headers=wrong(n), timeout=30).status_code, range(90)))
    assert answers.count(401) == WRONG_SECRETS_MAX and answers.count(429) == 90 - WRONG_SECRETS_MAX


def test_showing_nothing_is_not_a_guess(store: MemoryStore) -> None:
    """Health checks and scanners without a token must not lock the real senders out behind the same address."""
    with serving(lambda: aio_on(store), settings_with()) as running:
        for _ in range(WRONG_SECRETS_MAX + 5):
            assert running.stranger.post("/events/tigris").status_code == 401
        assert running.post("tigris", b'{"events": []}').status_code == 200


def test_behind_a_trusted_proxy_each_caller_counts_for_itself(store: MemoryStore) -> None:
    with serving(lambda: aio_on(store), settings_with(trusted_proxies=("127.0.0.0/8",))) as running:
        guesser = {"x-forwarded-for": "198.51.100.7"}
        for number in range(WRONG_SECRETS_MAX + 1):
            answer = running.stranger.post("/events/tigris", headers={**wrong(number), **guesser})
        assert answer.status_code == 429
        honest = running.post("tigris", b'{"events": []}', x_forwarded_for="198.51.100.7, 203.0.113.9")
        assert honest.status_code == 200


def test_without_a_trusted_proxy_nobody_changes_his_address_by_a_header(store: MemoryStore) -> None:
    with serving(lambda: aio_on(store), settings_with()) as running:
        statuses = [
            running.stranger.post(
                "/events/tigris", headers={**wrong(number), "x-forwarded-for": f"198.51.100.{number}"}
            ).status_code
            for number in range(WRONG_SECRETS_MAX + 1)
        ]
        assert statuses[-1] == 429


PROXIES = proxies_of(["10.0.0.0/8", "fd00::/8"])


@pytest.mark.parametrize(
    ("peer", "told", "caller"),
    [
        ("198.51.100.7", "203.0.113.9", "198.51.100.7"),
        ("10.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", "192.0.2.66, 203.0.113.9, 10.0.0.2", "203.0.113.9"),
        ("10.0.0.1", "nonsense, 203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", "203.0.113.9, nonsense", "10.0.0.1"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("10.0.0.1", "10.0.0.3", "10.0.0.3"),
        ("::ffff:10.0.0.1", "203.0.113.9:4711", "203.0.113.9"),
        ("fd00::1", "[2001:db8::9]:443", "2001:db8::9"),
    ],
)
def test_the_last_address_that_is_not_a_proxy_is_the_caller(peer: str, told: str, caller: str) -> None:
    scope = {"client": (peer, 1), "headers": [(b"x-forwarded-for", told.encode())] if told else []}
    assert caller_address(scope, PROXIES) == caller
    assert caller_address({**scope, "headers": []}, ()) == peer


def test_a_proxy_that_is_not_a_network_is_refused_at_the_start() -> None:
    with pytest.raises(Invalid, match="network of proxies"):
        check_settings(settings_with(trusted_proxies=("the-proxy",)))


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_failures_are_remembered_for_a_bounded_number_of_addresses_and_by_site() -> None:
    clock = Clock()
    limit = Limit(2, clock=clock)
    for _ in range(2):
        limit.failed("2001:db8:1:2::1")
    assert limit.wait_seconds("2001:db8:1:2:ffff::9") == FAILURES_SECONDS, "one site has many addresses"
    assert limit.wait_seconds("2001:db8:1:3::1") == 0
    limit.forgive("2001:db8:1:2::5")
    assert limit.wait_seconds("2001:db8:1:2::1") == 0
    for number in range(ADDRESSES_MAX + 10):
        limit.failed(f"10.{number >> 16}.{(number >> 8) & 255}.{number & 255}")
        assert limit.wait_seconds(f"192.0.{number & 255}.1") == 0
    assert len(limit._failures) <= ADDRESSES_MAX


@pytest.mark.parametrize("secret", ["x", "short", "fifteen-letters", "a" * 40, "abababababababababab"])
def test_a_secret_that_could_be_guessed_is_refused_at_the_start(secret: str) -> None:
    for options in ({"bearer": [secret]}, {"basic": [f"mia:{secret}"]}):
        with pytest.raises(Invalid, match="at least 16 characters") as refused:
            make_access(**options)  # type: ignore[arg-type]
        assert secret == "x" or secret not in str(refused.value)


# Filling up.


def test_bodies_without_a_proof_hold_a_bounded_amount_of_memory(store: MemoryStore) -> None:
    with serving(lambda: aio_on(store), settings_with(signing=[SECRET], bearer=[TOKEN])) as running:
        size, budget = running.parts.settings.body_bytes_max, running.parts.guard.unproven
        head = f"Webhook-Signature: v1,AAAA\r\nContent-Length: {size}\r\n\r\n".encode()
        request = raw_request(running, "POST /events/tigris HTTP/1.1", head, token=None)
        connections = [running.connect() for _ in range(UNPROVEN_BYTES_MAX // 4 // size)]
        try:
            for connection in connections:
                connection.sendall(request + b" " * 1000)  # the rest does not come
            until(lambda: budget.held_bytes == UNPROVEN_BYTES_MAX // 4)
            with running.connect() as late:
                late.sendall(request)
                assert read_all(late).startswith(b"HTTP/1.1 503 ")
            body = payload("tigris")
            assert running.stranger.post("/events/tigris", content=body, headers=signed(body)).status_code == 503
            assert running.post("tigris", body).status_code == 200, "who shows a token needs no proof"
        finally:
            for connection in connections:
                connection.close()
        until(lambda: budget.held_bytes == 0)
        assert running.stranger.post("/events/tigris", content=body, headers=signed(body)).status_code == 200


def test_one_address_holds_a_part_of_what_all_may_hold() -> None:
    budget = Budget(100, 25)
    with contextlib.ExitStack() as stack:
        for address in ("a", "b", "c", "d"):
            stack.enter_context(budget.held(address, 20))
            with pytest.raises(Refusal), budget.held(address, 10):
                pass
        with pytest.raises(Refusal), budget.held("e", 21):
            pass
        assert budget.held_bytes == 80
    assert budget.held_bytes == 0
