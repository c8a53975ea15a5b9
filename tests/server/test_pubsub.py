"""Push deliveries of Pub/Sub: let in by a token that Google signed for us, checked with keys of our own on loopback."""

from __future__ import annotations

import asyncio
import base64
import contextlib
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import jwt
import pytest

from bucketmq.bucket.memory import MemoryStore
from bucketmq.client import Bucket
from bucketmq.errors import Invalid
from bucketmq.server.access import make_access
from bucketmq.server.pubsub import AGAIN_SECONDS, Push, PushTokens
from bucketmq.testing.endpoints import Endpoint, Reply, endpoint
from server.keys import google_keys, push_token, rsa_key
from server.running import TOKEN, Running, aio_on, delivered, payload, serving, settings_with, until

AUDIENCE, EMAIL = "https://events.example.com/events/gcs", "pusher@project.iam.gserviceaccount.com"


def push_of(google: Endpoint) -> Push:
    return Push(audience=AUDIENCE, email=EMAIL, keys_url=google.url)


@pytest.fixture
def google() -> Iterator[Endpoint]:
    with endpoint([Reply(200, {}, google_keys(one=rsa_key("google")))]) as there:
        yield there


@pytest.fixture
def pushed(store: MemoryStore, google: Endpoint) -> Iterator[Running]:
    with serving(lambda: aio_on(store), settings_with(bearer=[TOKEN], push=push_of(google))) as running:
        yield running


def push(running: Running, token: str, source: str = "gcs") -> httpx2.Response:
    headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
    return running.stranger.post(f"/events/{source}", content=payload("gcs"), headers=headers)


def test_what_google_signed_for_us_is_taken_and_its_keys_are_fetched_once(
    pushed: Running, bucket: Bucket, google: Endpoint
) -> None:
    for source in ("gcs", "auto"):
        assert push(pushed, push_token(rsa_key("google")), source).status_code == 200
    assert delivered(bucket)
    assert len(google.requests) == 1
    assert pushed.post("gcs", payload("gcs")).status_code == 200, "an ordinary token works beside it"


def header(text: bytes) -> str:
    return base64.urlsafe_b64encode(text).decode().rstrip("=")


def wrong_tokens() -> dict[str, str]:
    key, now = rsa_key("google"), int(time.time())
    claims = jwt.decode(push_token(key), options={"verify_signature": False})
    return {
        "of another key": push_token(rsa_key("somebody")),
        "of an unknown key": push_token(key, "two"),
        "for somebody else": push_token(key, aud="https://other.example"),
        "for several": push_token(key, aud=[AUDIENCE, "https://other.example"]),
        "of another account": push_token(key, email="other@project.iam.gserviceaccount.com"),
        "of an account nobody verified": push_token(key, email_verified=False),
        "verified by a word": push_token(key, email_verified="true"),
        "without an account": push_token(key, email=None),
        "expired": push_token(key, iat=now - 7200, exp=now - 3600),
        "without an end": push_token(key, exp=None),
        "of another issuer": push_token(key, iss="https://evil.example"),
        "not signed": jwt.encode(claims, "", algorithm="none", headers={"kid": "one"}),
        "signed with a word": jwt.encode(claims, "a-word-that-is-long-enough-for-hmac", headers={"kid": "one"}),
        "garbage": "a.b.c",
        "deep": f"{header(b'[' * 5_000)}.b.c",
        "deep and wrong": f"{header(b'[{' * 2_900)}.b.c",
        "with a name that is no text": jwt.encode(claims, "", algorithm="none", headers={"x": ["one"]}),
        "with a key of its own": jwt.encode(
            claims, rsa_key("somebody"), algorithm="RS256", headers={"kid": "one", "jku": "http://127.0.0.1:1/"}
        ),
        "with something critical": jwt.encode(
            claims, key, algorithm="RS256", headers={"kid": "one", "crit": ["b64"], "b64": False}
        ),
        "of another kind": jwt.encode(claims, key, algorithm="PS256", headers={"kid": "one"}),
        "from the future": push_token(key, iat=now + 3600, exp=now + 7200),
        "not valid yet": push_token(key, nbf=now + 3600),
        "expired by a minute and more": push_token(key, iat=now - 3600, exp=now - 62),
        "for an audience in other letters": push_token(key, aud=AUDIENCE.upper()),
        "of an account in other letters": push_token(key, email=EMAIL.upper()),
        "of an account that looks the same": push_token(key, email=EMAIL.replace("e", "\u0435")),
        "of an issuer and more": push_token(key, iss="https://accounts.google.com.evil.example"),
        "too long": push_token(key, padding="x" * 9_000),
    }


@pytest.mark.parametrize("name", list(wrong_tokens()))
def test_what_google_did_not_sign_for_us_is_refused(pushed: Running, store: MemoryStore, name: str) -> None:
    answer = push(pushed, wrong_tokens()[name])
    assert (answer.status_code, answer.json()) == (401, {"error": "unauthorized", "hint": None})
    assert not store.list("", after="", limit=10).entries


def test_guesses_that_wait_for_googles_keys_are_counted_before_they_are_compared(store: MemoryStore) -> None:
    """They look like tokens of Google's, and might be ours: all of them come in while the keys are fetched."""
    go, head = threading.Event(), header(b'{"alg": "RS256", "kid": "two"}')
    with endpoint([Reply(200, {}, google_keys(one=rsa_key("google")), go)]) as google:
        settings = settings_with(bearer=[TOKEN], push=push_of(google), wrong_secrets_max=3)
        with serving(lambda: aio_on(store), settings) as running, ThreadPoolExecutor(9) as pool:
            try:
                tokens: Any = running.parts.guard._push
                answers = [pool.submit(push, running, f"{head}.e30.guess{number:03}") for number in range(9)]
                until(lambda: len(tokens._lock._waiters or ()) == 8)
            finally:
                go.set()
            statuses = [each.result().status_code for each in answers]
    assert sorted(statuses) == [401] * 3 + [429] * 6


def test_a_push_token_opens_no_pages(pushed: Running) -> None:
    headers = {"authorization": f"Bearer {push_token(rsa_key('google'))}"}
    assert pushed.stranger.get("/metrics", headers=headers).status_code == 401


def test_without_google_nobody_gets_in_and_a_key_that_is_known_still_counts(store: MemoryStore) -> None:
    keys, clock = google_keys(one=rsa_key("google")), Clock()
    with (
        endpoint([Reply(500), Reply(200, {}, keys), Reply(500)]) as google,
        contextlib.closing(PushTokens(push_of(google), clock=clock)) as tokens,
    ):
        assert asyncio.run(tokens.fits(push_token(rsa_key("google")))) is False
        assert asyncio.run(tokens.fits(push_token(rsa_key("google")))) is False
        assert len(google.requests) == 1, "strangers do not make us ask Google for every token"
        clock.now += AGAIN_SECONDS + 1
        assert asyncio.run(tokens.fits(push_token(rsa_key("google")))) is True
        clock.now += 100_000
        assert asyncio.run(tokens.fits(push_token(rsa_key("google")))) is True
        assert len(google.requests) == 3


class Clock:
    now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_an_address_for_the_keys_that_cannot_be_is_refused_at_the_start() -> None:
    with pytest.raises(Invalid, match="keys_url"):
        make_access(push=Push(audience=AUDIENCE, email=EMAIL, keys_url="ftp://127.0.0.1/"))


@pytest.mark.parametrize("given", [{"audience": "", "email": EMAIL}, {"audience": AUDIENCE, "email": "nobody"}])
def test_half_a_setting_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(Invalid, match="both"):
        make_access(push=Push(**given))
