"""Delivery to webhooks that are really there, and misbehave: what is sent, when again, when never, and to whom."""

from __future__ import annotations

import base64
import itertools
import logging
import socket
import threading
from email.utils import formatdate
from typing import Any

import msgspec
import pytest
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

from bucketmq.events.event import ObjectEvent, Order, event_id, time_text
from bucketmq.procedures.requests import Get, Look
from bucketmq.rulebook import rotated
from bucketmq.testing.endpoints import Endpoint, HangUp, Received, Reply, Silent, endpoint
from procedures.objects.world import World, attempts_of, told

SECRET = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
OTHER = "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"


def add(bucket: Any, there: Endpoint | str, name: str = "r", **options: Any) -> Any:
    url = there if isinstance(there, str) else there.url
    return bucket.rules.add(name, to=url, **{"private": True, "jitter": 0, **options})


def run(bucket: Any, *names: str) -> None:
    bucket.notify(only=names or None, stop_when_empty=True, signals=False)


def keys_of(request: Received) -> list[str]:
    return [each["object"]["key"] for each in msgspec.json.decode(request.body)["events"]]


def keys(there: Endpoint) -> list[str]:
    return [key for request in there.requests for key in keys_of(request)]


def letters(bucket: Any) -> list[Any]:
    found: list[Any] = bucket.queue("events").dead_letters.peek(100)
    return found


# What is sent


def test_an_event_is_sent_once_with_a_stable_id_and_who_we_are(bucket: Any) -> None:
    with endpoint() as there:
        add(bucket, there)
        stored = bucket.put("docs/a.json", {"n": 1})
        run(bucket)
        run(bucket)
        (request,) = there.requests
    assert request.headers["webhook-id"] == stored.event.id
    assert (request.headers["bucketmq-rule"], request.headers["bucketmq-attempt"]) == ("r", "1")
    assert "authorization" not in request.headers
    body = msgspec.json.decode(request.body)
    assert body["events"][0]["object"] == {"key": "docs/a.json", "size": 7, "eTag": stored.version}
    assert msgspec.convert(body["events"][0]["bucketmq"], ObjectEvent) == stored.event
    (line,) = attempts_of(bucket, "r")
    assert (line["outcome"], line["status"], line["event"]) == ("done", 200, stored.event.id)


@pytest.mark.parametrize(
    ("options", "header"),
    [
        ({"bearer": "token-1"}, "Bearer token-1"),
        ({"basic": "rosa:secret"}, "Basic " + base64.b64encode(b"rosa:secret").decode()),
    ],
)
def test_bearer_and_basic_are_sent(bucket: Any, options: dict[str, str], header: str) -> None:
    with endpoint() as there:
        add(bucket, there, **options)
        bucket.put("a", "x")
        run(bucket)
        assert there.requests[0].headers["authorization"] == header


def test_signatures_hold_for_others_and_while_rotating_for_both_secrets(memory: World) -> None:
    bucket = memory.connect()
    with endpoint() as there:
        add(bucket, there, signing=SECRET)
        bucket.put("a", "x")
        run(bucket)
        bucket.rules.change_secrets("r", lambda old: rotated(old, OTHER))
        bucket.put("b", "x")
        run(bucket)
        first, second = there.requests
    Webhook(SECRET).verify(first.body, first.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(OTHER).verify(first.body, first.headers)
    Webhook(SECRET).verify(second.body, second.headers)
    Webhook(OTHER).verify(second.body, second.headers)
    with pytest.raises(WebhookVerificationError):
        Webhook(SECRET).verify(second.body + b" ", second.headers)


def test_secrets_may_be_in_the_environment_of_who_delivers(
    memory: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bucket = memory.connect()
    with endpoint() as there:
        add(bucket, there, bearer="env:HOOK_TOKEN", signing="env:HOOK_SECRET", retry_seconds=[10])
        bucket.put("a", "x")
        with caplog.at_level(logging.DEBUG):
            run(bucket)
            assert there.requests == []
            (line,) = attempts_of(bucket, "r")
            assert "env:HOOK_SECRET" in line["reason"]
            memory.advance(11)
            monkeypatch.setenv("HOOK_TOKEN", "from-outside")
            monkeypatch.setenv("HOOK_SECRET", SECRET)
            run(bucket)
        (request,) = there.requests
    assert request.headers["authorization"] == "Bearer from-outside"
    Webhook(SECRET).verify(request.body, request.headers)
    assert not any(b"from-outside" in body or SECRET.encode() in body for body in memory.everything().values())
    assert "from-outside" not in caplog.text
    assert SECRET not in caplog.text


@pytest.mark.parametrize(
    ("format", "batch", "content_type", "first"),
    [
        ("tigris", 1, "application/json", lambda body: body["events"][0]["object"]["key"]),
        ("s3", 1, "application/json", lambda body: body["Records"][0]["s3"]["object"]["key"]),
        ("cloudevents", 1, "application/cloudevents+json", lambda body: body["subject"]),
        ("cloudevents", 9, "application/cloudevents-batch+json", lambda body: body[0]["subject"]),
    ],
)
def test_each_format_is_sent_under_its_content_type(
    bucket: Any, format: str, batch: int, content_type: str, first: Any
) -> None:
    with endpoint() as there:
        add(bucket, there, format=format, batch=batch, concurrency=1)
        bucket.put("a", "x")
        bucket.put("b", "x")
        run(bucket)
        request = there.requests[0]
    assert request.headers["content-type"] == content_type
    assert first(msgspec.json.decode(request.body)) == "a"


# Batches


def test_a_batch_whose_answer_names_failures_is_tried_again_for_these_only(memory: World) -> None:
    bucket = memory.connect()
    ids: dict[str, str] = {}

    def answer(request: Received) -> Reply:
        bad = [ids[key] for key in keys_of(request) if key in ("b", "d")] if len(seen) == 0 else []
        seen.append(keys_of(request))
        body = msgspec.json.encode({"failed": [{"id": bad[0], "error": "no room"}, bad[1]]}) if bad else b""
        return Reply(200, body=body)

    seen: list[list[str]] = []
    with endpoint(answer) as there:
        add(bucket, there, batch=10, concurrency=1, retry_seconds=[5])
        for key in "abcde":
            ids[key] = bucket.put(key, "x").event.id
        run(bucket)
        memory.advance(6)
        run(bucket)
        first, second = there.requests
    assert seen == [list("abcde"), list("bd")]
    assert first.headers["webhook-id"] != second.headers["webhook-id"]
    journal = attempts_of(bucket, "r")
    assert sorted((line["key"], line["outcome"]) for line in journal) == sorted(
        [*((key, "done") for key in "abcde"), ("b", "retry"), ("d", "retry")]
    )
    assert any("no room" in line.get("reason", "") for line in journal)


def test_the_same_batch_has_the_same_id_again(memory: World) -> None:
    bucket = memory.connect()
    with endpoint([Reply(500), Reply()]) as there:
        add(bucket, there, batch=10, concurrency=1, retry_seconds=[5])
        for key in "abc":
            bucket.put(key, "x")
        run(bucket)
        memory.advance(6)
        run(bucket)
        first, second = there.requests
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert (first.headers["bucketmq-attempt"], second.headers["bucketmq-attempt"]) == ("1", "2")


# Failures


@pytest.mark.parametrize("as_date", [False, True])
def test_retry_after_is_honoured(memory: World, *, as_date: bool) -> None:
    bucket = memory.connect()
    at = memory.time.now() + 500
    header = formatdate(at, usegmt=True) if as_date else "500"
    with endpoint([Reply(503, headers={"Retry-After": header}), Reply()]) as there:
        add(bucket, there, retry_seconds=[1])
        bucket.put("a", "x")
        run(bucket)
        memory.advance(490)
        run(bucket)
        assert len(there.requests) == 1
        memory.advance(20)
        run(bucket)
        assert len(there.requests) == 2


@pytest.mark.parametrize("header", ["soon", "-5", "1e9", "9" * 30, "", "Thu, 32 Foo 2026 99:99:99 GMT"])
def test_a_retry_after_that_is_nonsense_is_passed_over(memory: World, header: str) -> None:
    bucket = memory.connect()
    with endpoint([Reply(503, headers={"Retry-After": header}), Reply()]) as there:
        add(bucket, there, retry_seconds=[1])
        bucket.put("a", "x")
        run(bucket)
        memory.advance(2)
        run(bucket)
        assert len(there.requests) == 2


def test_410_pauses_the_rule_for_everybody_and_loses_nothing(memory: World) -> None:
    bucket, other = memory.connect(), memory.connect()
    with endpoint([Reply(410), Reply()]) as there:
        add(bucket, there, concurrency=1)
        for key in "abc":
            bucket.put(key, "x")
        run(bucket)
        assert "410" in other.rules.get("r").paused
        run(other)
        assert len(there.requests) == 1
        other.rules.resume("r")
        run(other)
        assert keys(there) == ["a", "a", "b", "c"]
        assert there.requests[1].headers["bucketmq-attempt"] == "1"  # it was given back, not failed
    assert letters(bucket) == []


def test_a_redirect_is_a_failure_and_not_followed(memory: World) -> None:
    bucket = memory.connect()
    with endpoint() as elsewhere, endpoint([Reply(302, headers={"Location": elsewhere.url})]) as there:
        add(bucket, there, retry_seconds=[])
        bucket.put("a", "x")
        run(bucket)
        assert elsewhere.requests == []
    (letter,) = letters(bucket)
    assert "HTTP 302" in letter.failures[0]["error"]


def test_statuses_are_what_the_rule_says_they_are(memory: World) -> None:
    bucket = memory.connect()
    statuses = {"400": "bury", "4xx": "done", "202": "retry", "503": "pause"}
    codes = {"a": 400, "b": 404, "c": 202, "d": 200}
    with endpoint(lambda request: Reply(codes[keys_of(request)[0]])) as there:
        add(bucket, there, statuses=statuses, retry_seconds=[100, 100])
        for key in codes:
            bucket.put(key, "x")
        run(bucket)
        assert sorted(keys(there)) == ["a", "b", "c", "d"]
    journal = {line["key"]: line["outcome"] for line in attempts_of(bucket, "r")}
    assert journal == {"a": "bury", "b": "done", "c": "retry", "d": "done"}
    assert [letter.body["key"] for letter in letters(bucket)] == ["a"]


def closed_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_silence_a_hangup_and_nobody_there_are_failures_that_say_so(memory: World) -> None:
    bucket = memory.connect()
    with endpoint([Silent()]) as silent, endpoint([HangUp()]) as rude:
        add(bucket, silent, "silent", timeout_seconds=0.2, retry_seconds=[])
        add(bucket, rude, "rude", retry_seconds=[])
        add(bucket, f"http://127.0.0.1:{closed_port()}/hook", "nobody", retry_seconds=[])
        bucket.put("a", "x")
        run(bucket)
    found = {letter.subscription.split("-")[1]: letter.failures[0]["error"] for letter in letters(bucket)}
    assert set(found) == {"silent", "rude", "nobody"}
    assert "0.2 s" in found["silent"] or "time" in found["silent"]
    assert "refused" in found["nobody"]
    assert found["rude"]


def test_addresses_of_this_machine_are_refused_unless_allowed_and_the_failure_says_why(memory: World) -> None:
    bucket = memory.connect()
    bucket.rules.add("r", to="https://127.0.0.1/hook", retry_seconds=[])
    bucket.rules.add("s", to="https://localhost/hook", retry_seconds=[])
    bucket.put("a", "x")
    run(bucket)
    reasons = [letter.failures[0]["error"] for letter in letters(bucket)]
    assert len(reasons) == 2
    assert all("127.0.0.1" in each or "::1" in each for each in reasons)
    assert all("refused" in each and "this machine" in each for each in reasons)


def test_when_the_schedule_is_used_up_a_dead_letter_tells_every_attempt(memory: World) -> None:
    bucket = memory.connect()
    long = b"A" * 3000
    with endpoint([Reply(500, body=b"first"), Reply(429, body=long), Reply(404, body=b"third")]) as there:
        add(bucket, there, retry_seconds=[5, 300])
        stored = bucket.put("a", "x")
        run(bucket)
        memory.advance(4)
        run(bucket)
        assert len(there.requests) == 1
        memory.advance(2)
        run(bucket)
        assert len(there.requests) == 2
        memory.advance(299)
        run(bucket)
        assert len(there.requests) == 2
        memory.advance(2)
        run(bucket)
        assert len(there.requests) == 3
        memory.advance(100_000)
        run(bucket)
        assert len(there.requests) == 3
        assert {request.headers["webhook-id"] for request in there.requests} == {stored.event.id}
    (letter,) = letters(bucket)
    first, second, third = letter.failures
    assert [each["attempt"] for each in letter.failures] == [1, 2, 3]
    assert all(each["at"] and each["holder"] for each in letter.failures)
    assert "HTTP 500" in first["error"]
    assert "first" in first["error"]
    assert "HTTP 429" in second["error"]
    assert second["error"].count("A") == 1024
    assert "HTTP 404" in third["error"]
    assert "404" in letter.reason
    assert [line["outcome"] for line in attempts_of(bucket, "r")] == ["retry", "retry", "bury"]


def test_a_redriven_letter_goes_to_its_rule_alone_under_the_same_id(memory: World) -> None:
    bucket = memory.connect()
    with endpoint([Reply(500), Reply()]) as there, endpoint() as other:
        add(bucket, there, retry_seconds=[])
        add(bucket, other, "other")
        bucket.put("a", "x")
        run(bucket)
        assert bucket.queue("events").dead_letters.redrive().redriven == 1
        run(bucket)
        run(bucket)
        first, second = there.requests
        assert first.headers["webhook-id"] == second.headers["webhook-id"]
        assert len(other.requests) == 1
    assert letters(bucket) == []


def test_jitter_keeps_retries_near_their_time(memory: World) -> None:
    bucket = memory.connect()
    with endpoint([Reply(500)]) as there:
        add(bucket, there, retry_seconds=[1000], jitter=0.2)
        for n in range(5):
            bucket.put(f"k{n}", "x")
        run(bucket)
        memory.advance(795)
        run(bucket)
        assert len(there.requests) == 5
        memory.advance(410)
        run(bucket)
        assert len(there.requests) == 10


# Breaker and rate


def test_the_breaker_opens_tries_one_request_waits_longer_and_closes(memory: World) -> None:
    bucket = memory.connect()
    at: list[float] = []

    def answer(_: Received) -> Reply:
        at.append(memory.time.ahead)
        return Reply(500 if len(at) <= 4 else 200)

    with endpoint(answer) as there:
        breaker = {"failures": 2, "seconds": 10, "seconds_max": 15}
        add(bucket, there, concurrency=1, retry_seconds=[10_000], breaker=breaker)
        for n in range(8):
            bucket.put(f"k{n}", "x")
        run(bucket)
        assert len(there.requests) == 8
    gaps = [after - before for before, after in itertools.pairwise(at)]
    assert gaps[0] < 1
    assert 9 < gaps[1] < 12
    assert 14 < gaps[2] < 17  # twice as long, but no more than the most
    assert 14 < gaps[3] < 17
    assert all(gap < 1 for gap in gaps[4:])


def test_only_one_request_tries_whether_the_endpoint_is_back(memory: World) -> None:
    """While the one that tries is held, the other runners wait: their pauses move the clock, and none gets through."""
    bucket = memory.connect()
    all_out = threading.Barrier(4)
    lock = threading.Lock()
    seen: list[str] = []
    beside: list[int] = []

    def answer(request: Received) -> Reply:
        with lock:
            seen.append(keys_of(request)[0])
            number = len(seen)
        if number <= 4:
            all_out.wait(30)  # all four are out when the breaker opens
            return Reply(500)
        if number == 5:
            until = memory.time.ahead + 5
            while memory.time.ahead < until:
                pass
            beside.append(len(seen) - 5)
        return Reply()

    with endpoint(answer) as there:
        add(bucket, there, concurrency=4, retry_seconds=[10_000], breaker={"failures": 1, "seconds": 5})
        for n in range(12):
            bucket.put(f"k{n}", "x")
        run(bucket)
        assert set(keys(there)) == {f"k{n}" for n in range(12)}
    assert beside == [0]


def test_those_who_were_out_when_the_breaker_opened_do_not_open_it_further(memory: World) -> None:
    bucket = memory.connect()
    all_out = threading.Barrier(4)
    at: list[float] = []

    def answer(_: Received) -> Reply:
        at.append(memory.time.ahead)
        if len(at) <= 4:
            all_out.wait(30)
            return Reply(500)
        return Reply()

    with endpoint(answer) as there:
        add(bucket, there, concurrency=4, retry_seconds=[10_000], breaker={"failures": 1, "seconds": 10})
        for n in range(5):
            bucket.put(f"k{n}", "x")
        run(bucket)
        assert len(there.requests) == 5
    assert 9 < at[4] - at[3] < 12


@pytest.mark.parametrize("concurrency", [1, 3])
def test_the_rate_is_kept_by_the_stores_clock(memory: World, concurrency: int) -> None:
    bucket = memory.connect()
    with endpoint() as there:
        add(bucket, there, rate_per_second=2, concurrency=concurrency)
        for n in range(9):
            bucket.put(f"k{n}", "x")
        before = memory.time.now()
        run(bucket)
        assert len(there.requests) == 9
    assert memory.time.now() - before >= 8 * 0.5


def test_a_dead_endpoint_does_not_delay_another_rule(memory: World) -> None:
    """The dead one holds every request until the other rule has got all of its events."""
    bucket = memory.connect()
    all_there = threading.Event()
    count = 30

    def live(_: Received) -> Reply:
        if len(alive.requests) >= count:
            all_there.set()
        return Reply()

    with endpoint([Reply(500, until=all_there)]) as dead, endpoint(live) as alive:
        add(bucket, dead, "dead", concurrency=2, timeout_seconds=100, retry_seconds=[], breaker={"failures": 1000})
        add(bucket, alive, "alive")
        for n in range(count):
            bucket.put(f"k{n}", "x")
        run(bucket)
        assert len(alive.requests) == count
        assert len(dead.requests) == count
    assert len(letters(bucket)) == count


# Order


def test_in_order_a_failing_key_holds_up_itself_alone(memory: World) -> None:
    bucket = memory.connect()
    broken = [True]

    def answer(request: Received) -> Reply:
        return Reply(500 if broken[0] and keys_of(request) == ["a"] else 200)

    with endpoint(answer) as there:
        add(bucket, there, ordered=True, concurrency=4, retry_seconds=[10, 10])
        for n in range(3):
            bucket.put("a", str(n))
            bucket.put("b", str(n))
        run(bucket)
        assert keys(there).count("a") == 1
        assert keys(there).count("b") == 3
        broken[0] = False
        memory.advance(11)
        run(bucket)
        ids = {key: [r.headers["webhook-id"] for r in there.requests if keys_of(r) == [key]] for key in "ab"}
    order = {key: [event.id for event in told(bucket) if event.key == key] for key in "ab"}
    assert ids["b"] == order["b"]
    assert ids["a"] == [order["a"][0], *order["a"]]


def event(key: str, mark: str, at: float = 0.0, **fields: Any) -> ObjectEvent:
    return ObjectEvent(
        id=event_id("s3", "", key, mark),
        kind="changed",
        key=key,
        at=time_text(at),
        source="s3",
        version=mark,
        order=Order("sequencer", mark),
        **fields,
    )


@pytest.mark.parametrize(("stale", "expected"), [("drop", ["02", "03"]), ("deliver", ["02", "01", "03"])])
def test_an_event_older_than_one_before_it_is_dropped_if_asked(memory: World, stale: str, expected: list[str]) -> None:
    bucket = memory.connect()
    now = memory.time.now()
    with endpoint() as there:
        add(bucket, there, stale=stale, concurrency=1)
        for mark in ("02", "01", "03"):
            bucket.report([event("a", mark, now)])
            run(bucket)
        marks = [msgspec.json.decode(r.body)["events"][0]["object"]["eTag"] for r in there.requests]
    assert marks == expected


def test_a_retry_that_is_overtaken_is_dropped_if_asked(memory: World) -> None:
    bucket = memory.connect()
    with endpoint([Reply(500), Reply()]) as there:
        add(bucket, there, stale="drop", concurrency=1, retry_seconds=[10])
        bucket.report([event("a", "01", memory.time.now())])
        run(bucket)
        bucket.report([event("a", "02", memory.time.now())])
        memory.advance(11)
        run(bucket)
        marks = [msgspec.json.decode(r.body)["events"][0]["object"]["eTag"] for r in there.requests]
    assert marks == ["01", "02"]


# What the object itself decides


@pytest.mark.parametrize(("gone", "sent", "dead"), [("deliver", 3, 0), ("drop", 1, 0), ("bury", 1, 2)])
def test_an_object_that_is_gone_or_changed_by_then_is_what_the_rule_says(
    memory: World, gone: str, sent: int, dead: int
) -> None:
    bucket = memory.connect()
    with endpoint() as there:
        add(bucket, there, gone=gone)
        for key in ("gone", "changed", "same"):
            bucket.put(key, "x")
        memory.delete("gone")
        memory.write("changed", b"y")
        run(bucket)
        assert len(there.requests) == sent
    reasons = sorted(letter.reason for letter in letters(bucket))
    assert len(reasons) == dead
    if dead:
        assert "'changed' is in another version by now" in reasons[0]
        assert "'gone' is gone by now" in reasons[1]


def test_a_deletion_is_delivered_though_its_object_is_gone(memory: World) -> None:
    bucket = memory.connect()
    with endpoint() as there:
        bucket.put("a", "x")
        add(bucket, there, gone="drop")
        bucket.delete("a")
        run(bucket)
        assert keys(there) == ["a"]


def test_a_filter_on_the_body_reads_each_object_once_and_no_large_one(memory: World) -> None:
    bucket = memory.connect()
    with endpoint() as there:
        text = 'WHERE key LIKE "in/%" AND body.ok = true AND body.n > 1'
        add(bucket, there, filter=text, body_bytes_max=100)
        bucket.put("in/yes.json", {"ok": True, "n": 2})
        bucket.put("in/no.json", {"ok": False, "n": 2})
        bucket.put("in/large.json", {"ok": True, "n": 2, "fill": "x" * 100})
        bucket.put("in/text.txt", "no json")
        bucket.put("in/deep.json", b"[" * 100)
        bucket.put("other.json", {"ok": True, "n": 2})
        seen: list[Any] = []
        bucket.hands.meddle = lambda _, request: seen.append(request)
        run(bucket)
        assert keys(there) == ["in/yes.json"]
    objects = [request for request in seen if isinstance(request, Get | Look) and "/queues/" not in request.key]
    fetched = sorted(request.key for request in objects if request.key.startswith("app/in/"))
    assert fetched == ["app/in/deep.json", "app/in/no.json", "app/in/text.txt", "app/in/yes.json"]
    assert not any("other.json" in request.key for request in objects)


def test_a_chain_that_is_too_long_is_a_dead_letter_that_says_so(memory: World) -> None:
    bucket = memory.connect()
    with endpoint() as there:
        add(bucket, there, hops_max=3)
        lineage = tuple(f"evt_{n}" for n in range(4))
        bucket.report([event("a", "01", 1.0, hops=4, lineage=lineage), event("b", "01", 1.0, hops=3)])
        run(bucket)
        assert keys(there) == ["b"]
    (letter,) = letters(bucket)
    assert "loop guard" in letter.reason
    assert "evt_0 -> evt_1" in letter.reason
    assert "allows 3" in letter.reason


# Facades


def test_the_asyncio_facade_delivers_the_same(memory: World) -> None:
    bucket = memory.connect_async()
    plain = memory.connect()
    with endpoint([Reply(500), Reply()]) as there:
        add(plain, there, retry_seconds=[5], concurrency=1)
        for key in "abc":
            bucket.put(key, "x")
        bucket.notify(stop_when_empty=True, signals=False)
        memory.advance(6)
        bucket.notify(stop_when_empty=True, signals=False)
        assert sorted(keys(there)) == ["a", "a", "b", "c"]


def test_two_processes_deliver_everything_once(memory: World) -> None:
    first, second = memory.connect(), memory.connect()
    with endpoint() as there:
        add(first, there)
        for n in range(60):
            first.put(f"k{n}", "x")
        threads = [threading.Thread(target=run, args=(each,)) for each in (first, second)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        run(first)
        assert sorted(keys(there)) == sorted(f"k{n}" for n in range(60))


def test_only_the_named_rules_are_run(memory: World) -> None:
    bucket = memory.connect()
    with endpoint() as one, endpoint() as two:
        add(bucket, one, "one")
        add(bucket, two, "two")
        bucket.put("a", "x")
        run(bucket, "two")
        assert (len(one.requests), len(two.requests)) == (0, 1)


# To queues


def test_a_queue_gets_each_event_with_its_key_and_id(memory: World) -> None:
    bucket = memory.connect()
    bucket.rules.add("r", to="queue:out", filter='WHERE key LIKE "in/%"')
    stored = bucket.put("in/a", "x")
    bucket.put("other", "x")
    run(bucket)
    (delivery,) = bucket.queue("out").receive(10)
    assert msgspec.convert(delivery.body, ObjectEvent) == stored.event
    assert (delivery.key, delivery.headers["event-id"], delivery.headers["bucketmq-rule"]) == (
        "in/a",
        stored.event.id,
        "r",
    )


def test_a_key_too_long_for_a_message_still_has_one_of_its_own(memory: World) -> None:
    bucket = memory.connect()
    bucket.rules.add("r", to="queue:out", ordered=True)
    long = "k" * 800
    bucket.put(long, "1")
    bucket.put(long, "2")
    run(bucket)
    run(bucket)
    first, second = bucket.queue("out").receive(10)
    assert first.key == second.key
    assert first.body["key"] == long


def test_what_is_no_event_is_a_dead_letter_and_holds_up_nobody(memory: World) -> None:
    bucket = memory.connect()
    rule = bucket.rules.add("r", to="queue:out")
    bucket.put("a", "x")
    bucket.queue("events").send({"not": "an event"}, key="x")
    bucket.put("b", "x")
    run(bucket)
    assert sorted(each.body["key"] for each in bucket.queue("out").receive(10)) == ["a", "b"]
    assert (bucket.audit("r").ready, bucket.audit("r").delayed) == (0, 0)
    assert rule.name == "r"
