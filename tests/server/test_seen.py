"""A mounted handler that keeps `webhook-id`s in the bucket: a repeat is recognised, also after a restart."""

from __future__ import annotations

import asyncio
import functools
import re
import time
from typing import Any

import httpx2
import pytest

from bucketmq.bucket.memory import MemoryStore
from bucketmq.client import Bucket
from bucketmq.errors import Invalid, Unavailable
from bucketmq.events.signing import sign
from bucketmq.server import Endpoint, endpoint
from bucketmq.server import seen as seen_module
from bucketmq.server.place import bus_of, run_now
from bucketmq.server.seen import PERIOD_SECONDS, TIDY_EVERY, SeenIds
from server.running import SECRET, TOKEN, sync_on
from server.test_hook import batch, post

CALLS: list[str] = []


def handle(change: Any) -> None:
    CALLS.append(change.key)
    if change.json().get("fail"):
        raise RuntimeError("not now")


@pytest.fixture(autouse=True)
def nothing_was_called() -> None:
    CALLS.clear()


def hook_on(bucket: Bucket) -> Endpoint:
    return endpoint(handle, bucket, signing=[SECRET], bearer=[TOKEN], seen="bucket")


def send(hook: Endpoint, body: bytes, id: str = "msg_1") -> httpx2.Response:
    headers = {"content-type": "application/json", **sign([SECRET], id, int(time.time()), body)}
    return post(hook, "/", body, headers)


def test_a_repeat_is_answered_without_calling_the_handler_even_after_a_restart(
    store: MemoryStore, bucket: Bucket
) -> None:
    bucket.put("a.json", {"n": 1})
    hook = hook_on(bucket)
    assert [send(hook, batch("a.json")).json() for _ in range(2)] == [{"status": "ok"}] * 2
    assert CALLS == ["a.json"]
    with sync_on(store) as restarted:
        again = hook_on(restarted)
        assert send(again, batch("a.json")).json() == {"status": "ok"}
        assert CALLS == ["a.json"]
        assert send(again, batch("a.json"), "msg_2").json() == {"status": "ok"}
        assert CALLS == ["a.json", "a.json"], "another id is another delivery"


def test_what_failed_is_not_remembered(bucket: Bucket) -> None:
    bucket.put("a.json", {"fail": True})
    hook = hook_on(bucket)
    assert send(hook, batch("a.json")).status_code == 500
    bucket.put("a.json", {"n": 1})
    assert send(hook, batch("a.json")).json() == {"status": "ok"}
    assert len(CALLS) == 2


def test_a_repeat_while_the_handler_works_waits_for_it(bucket: Bucket) -> None:
    bucket.put("a.json", {"n": 1})
    started = asyncio.Event()
    called = []

    async def slow(change: Any) -> None:
        called.append(change.key)
        started.set()
        await go.wait()

    async def both() -> list[int]:
        hook = endpoint(slow, bucket, bearer=[TOKEN], seen="bucket", name="slow")
        headers = {"authorization": f"Bearer {TOKEN}", "webhook-id": "msg_1"}
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(hook), base_url="http://here") as client:
            first = asyncio.create_task(client.post("/", content=batch("a.json"), headers=headers))
            await started.wait()
            second = asyncio.create_task(client.post("/", content=batch("a.json"), headers=headers))
            while len(hook._busy["msg_1"]._waiters or ()) == 0:
                await asyncio.sleep(0)
            go.set()
            statuses = [(await first).status_code, (await second).status_code]
        assert not hook._busy
        return statuses

    go = asyncio.Event()
    assert asyncio.run(both()) == [200, 200]
    assert called == ["a.json"]


def test_two_handlers_of_one_bucket_do_not_share_what_they_have_seen(bucket: Bucket) -> None:
    bucket.put("a.json", {"n": 1})
    others: list[str] = []

    def other(change: Any) -> None:
        others.append(change.key)

    assert send(hook_on(bucket), batch("a.json")).status_code == 200
    elsewhere = endpoint(other, bucket, signing=[SECRET], seen="bucket", name="other")
    assert send(elsewhere, batch("a.json")).status_code == 200
    assert (CALLS, others) == (["a.json"], ["a.json"])


def both_of(bucket: Bucket, names: list[Any], calls: list[str]) -> list[Endpoint]:
    """Two handlers of one make."""

    def make(number: int) -> Any:
        def made(change: Any) -> None:
            calls.append(f"{number} {change.key}")

        return made

    return [
        endpoint(make(number), bucket, signing=[SECRET], seen="bucket", name=name) for number, name in enumerate(names)
    ]


def test_handlers_of_one_make_are_told_apart_by_name(bucket: Bucket) -> None:
    """Both are given the same event, under the same id: it is the event's."""
    bucket.put("a.json", {"n": 1})
    calls: list[str] = []
    for hook in both_of(bucket, ["first", "second"], calls):
        assert send(hook, batch("a.json")).status_code == 200
    assert calls == ["0 a.json", "1 a.json"]
    with pytest.raises(Invalid, match="name=") as refused:
        both_of(bucket, [None, None], calls)
    assert "no name of its own" in str(refused.value)


def test_watchers_are_told_apart_by_their_names(bucket: Bucket) -> None:
    bucket.put("a.json", {"n": 1})
    calls: list[str] = []

    def make(name: str) -> Endpoint:
        def made(change: Any) -> None:
            calls.append(f"{name} {change.key}")

        return endpoint(bucket.watch(name=name)(made), bucket, signing=[SECRET], seen="bucket")

    for hook in (make("first"), make("second")):
        assert send(hook, batch("a.json")).status_code == 200
    assert calls == ["first a.json", "second a.json"]


class Handler:
    def __call__(self, change: Any) -> None: ...
    def method(self, change: Any) -> None: ...


@pytest.mark.parametrize(
    "nameless",
    [lambda change: None, functools.partial(handle), Handler(), Handler().method],
    ids=["lambda", "partial", "object", "method"],
)
def test_what_has_no_name_of_its_own_needs_one(bucket: Bucket, nameless: Any) -> None:
    with pytest.raises(Invalid, match="name="):
        endpoint(nameless, bucket, bearer=[TOKEN], seen="bucket")
    assert endpoint(nameless, bucket, bearer=[TOKEN], seen="bucket", name="mine")
    with pytest.raises(Invalid, match="name"):
        endpoint(nameless, bucket, bearer=[TOKEN], seen="bucket", name="a/b")


@pytest.mark.parametrize("id", ["a/../../x", "..", "%2e%2e%2f", "a\x00b", "\u202e", "x" * 3_000, "msg_1, msg_1"])
def test_whatever_an_id_holds_it_is_one_id_and_one_key(store: MemoryStore, bucket: Bucket, id: str) -> None:
    bus, seen = bus_of(bucket), SeenIds("h")
    run_now(bucket, seen.note(bus, "msg_1"))
    assert not run_now(bucket, seen.has(bus, id))
    run_now(bucket, seen.note(bus, id))
    assert run_now(bucket, seen.has(bus, id))
    keys = [entry.key for entry in store.list("", after="", limit=100).entries if "seen" in entry.key]
    assert len(keys) == 2 and all(re.fullmatch(r"inventory/seen/h/\d{8}/[0-9a-f]{64}\.json", key) for key in keys)


def test_a_repeat_that_waited_for_a_failure_still_keeps_others_out(bucket: Bucket) -> None:
    """Three requests with one id: the first fails, then the second is at work, and the third waits for it."""
    bucket.put("a.json", {"n": 1})
    at_once, most = 0, 0
    gates = [asyncio.Event() for _ in range(3)]
    begun = [asyncio.Event() for _ in range(3)]
    calls = 0

    async def slow(change: Any) -> None:
        nonlocal at_once, most, calls
        number, calls, at_once = calls, calls + 1, at_once + 1
        most = max(most, at_once)
        begun[number].set()
        await gates[number].wait()
        at_once -= 1
        if number == 0:
            raise RuntimeError("not now")

    async def all_three() -> list[int]:
        hook = endpoint(slow, bucket, bearer=[TOKEN], seen="bucket", name="slow")
        headers = {"authorization": f"Bearer {TOKEN}", "webhook-id": "msg_1"}
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(hook), base_url="http://here") as client:
            tasks = [asyncio.create_task(client.post("/", content=batch("a.json"), headers=headers))]
            await begun[0].wait()
            tasks.append(asyncio.create_task(client.post("/", content=batch("a.json"), headers=headers)))
            while not hook._busy["msg_1"]._waiters:
                await asyncio.sleep(0)
            gates[0].set()
            await tasks[0]
            tasks.append(asyncio.create_task(client.post("/", content=batch("a.json"), headers=headers)))
            await begun[1].wait()
            while not hook._busy["msg_1"]._waiters:
                await asyncio.sleep(0)
            gates[1].set()
            return [(await each).status_code for each in tasks]

    assert asyncio.run(all_three()) == [500, 200, 200]
    assert (calls, most) == (2, 1)


def test_it_costs_two_gets_and_one_put_for_a_request_and_two_gets_for_a_repeat(bucket: Bucket) -> None:
    seen = SeenIds("h")
    bus = bus_of(bucket)
    run_now(bucket, seen.note(bus, "first"))  # the first one tidies
    before = bucket.requests
    assert not run_now(bucket, seen.has(bus, "msg_1"))
    run_now(bucket, seen.note(bus, "msg_1"))
    assert run_now(bucket, seen.has(bus, "msg_1"))
    spent = bucket.requests - before
    assert (spent.get, spent.create, spent.list) == (4, 1, 0)


def test_ids_are_forgotten_after_two_periods_and_nothing_piles_up(
    store: MemoryStore, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = bus_of(bucket)
    period = int(bucket.now_seconds // PERIOD_SECONDS)

    def at(number: int) -> None:
        monkeypatch.setattr(seen_module, "_period", lambda _now: number)

    def keys() -> list[str]:
        return [entry.key for entry in store.list("inventory/seen/", after="", limit=10_000).entries]

    for number in range(5):
        at(period + number)
        seen = SeenIds("h")
        for each in range(TIDY_EVERY + 1):
            run_now(bucket, seen.note(bus, f"msg_{number}_{each}"))
        assert run_now(bucket, seen.has(bus, f"msg_{number}_7"))
        assert number == 0 or run_now(bucket, seen.has(bus, f"msg_{number - 1}_7"))
        assert number < 2 or not run_now(bucket, seen.has(bus, f"msg_{number - 2}_7"))
        assert len(keys()) <= 3 * (TIDY_EVERY + 1)


class Broken(MemoryStore):
    broken = False

    def get(self, key: str) -> Any:
        if self.broken and "inventory/seen" in key:
            raise Invalid("this store is broken") if self.broken == "badly" else Unavailable("503")
        return super().get(key)


def test_when_it_cannot_be_known_the_sender_comes_again() -> None:
    store = Broken()
    with sync_on(store) as bucket:
        bucket.put("a.json", {"n": 1})
        hook = hook_on(bucket)
        store.broken = "badly"  # type: ignore[assignment]
        answer = send(hook, batch("a.json"))
        assert (answer.status_code, "retry-after" in answer.headers) == (503, True)
        assert CALLS == [] and not hook._busy
        store.broken = False
        assert send(hook, batch("a.json")).json() == {"status": "ok"}


def test_a_place_that_there_is_not_is_refused(bucket: Bucket) -> None:
    with pytest.raises(Invalid, match="nowhere, bucket"):
        endpoint(handle, bucket, bearer=[TOKEN], seen="memory")  # type: ignore[arg-type]
