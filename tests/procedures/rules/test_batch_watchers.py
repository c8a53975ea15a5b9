"""Watchers that take batches: what they are given, what they return, and what it costs."""

from __future__ import annotations

from typing import Any

import pytest

import bucketmq
from bucketmq import AsyncChanges, Bury, Changes, Failed, Release, Retry
from bucketmq.server import endpoint
from procedures.objects.world import World, attempts_of, summary, told

INBOX = 'WHERE key LIKE "in/%" AND NOT kind = "deleted"'


def run(bucket: Any, *names: str) -> None:
    bucket.run_watchers(*names, stop_when_empty=True, signals=False)


@pytest.fixture(params=["blocking", "asyncio"])
def both(request: pytest.FixtureRequest, memory: World) -> Any:
    """A bucket on either facade."""
    return memory.connect() if request.param == "blocking" else memory.connect_async()


def test_a_plain_handler_is_given_changes_together_and_does_what_it_does_for_all(memory: World, both: Any) -> None:
    sizes: list[int] = []

    def handle(changes: Changes) -> None:
        sizes.append(len(changes))
        read = changes.get_many()
        assert [each.key for each in read] == [change.key for change in changes]
        moved = changes.move_many({change: f"out/{change.json()['n']}" for change in changes if change.json()["n"] % 2})
        assert not any(isinstance(each, Failed) for each in moved)
        changes.put_many({f"seen/{change.name}": change.attempt for change in changes})
        changes.delete_many(change for change in changes if not change.json()["n"] % 2)

    both.watch(INBOX, batch=4)(handle)
    run(both)
    both.put_many({f"in/{n}": {"n": n} for n in range(10)})
    run(both)
    run(both)
    assert sorted(sizes) == [2, 4, 4]
    assert memory.objects("in/") == {}
    assert sorted(memory.objects("out/")) == [f"out/{n}" for n in range(1, 10, 2)]
    assert sorted(memory.objects("seen/")) == [f"seen/{n}" for n in range(10)]
    written = [event for event in told(memory.connect()) if not event.key.startswith("in/")]
    assert {event.hops for event in written} == {1}
    assert all(event.lineage for event in written)


def test_an_async_handler_awaits_the_same(memory: World, both: Any) -> None:
    async def handle(changes: AsyncChanges) -> None:
        await changes.get_many()
        await changes.move_many({change: f"out/{await change.text()}" for change in changes})

    both.watch(INBOX, batch=10)(handle)
    run(both)
    both.put_many({f"in/{n}": f"t{n}" for n in range(3)})
    run(both)
    assert sorted(memory.objects()) == ["out/t0", "out/t1", "out/t2"]


def test_each_change_has_an_outcome_of_its_own(memory: World) -> None:
    bucket = memory.connect()
    calls: list[list[str]] = []

    def handle(changes: Changes) -> list[Any]:
        calls.append([change.name for change in changes])
        if len(calls) > 1:
            return [None] * len(changes)
        answers = {"a": None, "b": Retry("not yet", delay_seconds=0.0), "c": Bury("never"), "d": Release, "e": None}
        return [answers[change.name] for change in changes]

    bucket.watch(INBOX, batch=10, concurrency=1)(handle)
    run(bucket)
    bucket.put_many({f"in/{name}": name for name in "abcde"})
    run(bucket)
    assert calls[0] == ["a", "b", "c", "d", "e"]
    assert sorted(name for call in calls[1:] for name in call) == ["b", "d"]
    (letter,) = memory.connect().queue("events").dead_letters.peek()
    assert (letter.body["key"], letter.reason) == ("in/c", "never")
    outcomes = sorted((each["key"], each["outcome"]) for each in attempts_of(bucket, "handle"))
    assert outcomes == [
        ("in/a", "done"),
        ("in/b", "done"),
        ("in/b", "retry"),
        ("in/c", "bury"),
        ("in/d", "done"),
        ("in/e", "done"),
    ]


def test_a_handler_that_raises_is_given_all_of_them_again_each_with_its_attempt(memory: World) -> None:
    bucket = memory.connect()
    attempts: list[list[int]] = []

    def handle(changes: Changes) -> None:
        attempts.append([change.attempt for change in changes])
        if len(attempts) < 3:
            raise RuntimeError("the printer is on fire")

    bucket.watch(INBOX, batch=3, concurrency=1, retry_seconds=(0.0, 0.0, 0.0), jitter=0.0)(handle)
    run(bucket)
    bucket.put_many({f"in/{n}": n for n in range(3)})
    for _ in range(6):
        run(bucket)
        memory.advance(10)
    assert attempts == [[1, 1, 1], [2, 2, 2], [3, 3, 3]]
    reasons = {each["reason"][:9] for each in attempts_of(bucket, "handle") if each["outcome"] == "retry"}
    assert reasons == {"Traceback"}


@pytest.mark.parametrize(
    "returned",
    [[None], [None] * 4, "done", {"in/0": None}, Retry(), [Failed("in/0", "unavailable", "?")] * 3],
    ids=repr,
)
def test_an_answer_that_does_not_fit_is_a_retry_for_all_that_says_what_fits(memory: World, returned: Any) -> None:
    bucket = memory.connect()

    def handle(changes: Changes) -> Any:
        return returned if changes[0].attempt == 1 else None

    bucket.watch(INBOX, batch=3, concurrency=1, retry_seconds=(0.0,), jitter=0.0)(handle)
    run(bucket)
    bucket.put_many({f"in/{n}": n for n in range(3)})
    for _ in range(3):
        run(bucket)
        memory.advance(10)
    outcomes = [each["outcome"] for each in attempts_of(bucket, "handle")]
    assert sorted(outcomes) == ["done"] * 3 + ["retry"] * 3


def test_changes_that_are_over_are_dropped_when_the_handler_raises_and_only_they(memory: World) -> None:
    bucket = memory.connect()
    calls: list[list[str]] = []

    def handle(changes: Changes) -> None:
        calls.append([change.name for change in changes])
        if len(calls) == 1:
            memory.delete("in/a")
        read = changes.get_many()
        if any(isinstance(each, Failed) for each in read):
            raise RuntimeError("one is not there")

    bucket.watch(INBOX, batch=3, concurrency=1, retry_seconds=(0.0,), jitter=0.0)(handle)
    run(bucket)
    bucket.put_many({"in/a": 1, "in/b": 2})
    for _ in range(3):
        run(bucket)
        memory.advance(10)
    assert calls == [["a", "b"], ["b"]]


def test_one_batch_has_no_two_changes_of_one_object(memory: World) -> None:
    bucket = memory.connect()
    calls: list[list[str]] = []

    def handle(changes: Changes) -> None:
        calls.append([change.key for change in changes])

    bucket.watch(INBOX, batch=10, concurrency=1, gone="deliver")(handle)
    run(bucket)
    for n in range(3):
        bucket.put("in/a", f"{n}")
        bucket.put("in/b", f"{n}")
    run(bucket)
    assert all(len(set(call)) == len(call) for call in calls)
    assert sorted(key for call in calls for key in call) == ["in/a"] * 3 + ["in/b"] * 3


def test_in_order_a_key_is_in_one_pair_of_hands_at_a_time(memory: World) -> None:
    bucket = memory.connect()
    seen: list[str] = []

    def handle(changes: Changes) -> list[Any]:
        seen.extend(f"{change.key}:{change.version}" for change in changes)
        return [Retry("again", delay_seconds=0.0) if change.attempt == 1 else None for change in changes]

    bucket.watch(INBOX, batch=10, ordered=True, gone="deliver", retry_seconds=(0.0,), jitter=0.0)(handle)
    run(bucket)
    versions = [bucket.put("in/a", f"{n}").version for n in range(3)]
    for _ in range(8):
        run(bucket)
        memory.advance(10)
    assert seen == [f"in/a:{version}" for version in versions for _ in range(2)]


def test_what_is_not_there_any_more_is_asked_for_together(memory: World) -> None:
    bucket = memory.connect()
    given: list[str] = []

    def handle(changes: Changes) -> None:
        given.extend(change.name for change in changes)

    bucket.watch(INBOX, batch=10)(handle)
    run(bucket)
    bucket.put_many({f"in/{n}": n for n in range(4)})
    memory.delete("in/2")
    before = bucket.requests
    run(bucket)
    assert sorted(given) == ["0", "1", "3"]
    assert (bucket.requests - before).look == 4


def test_routing_a_batch_costs_what_the_objects_cost_and_a_share(memory: World) -> None:
    bucket = memory.connect()

    def handle(changes: Changes) -> None:
        changes.get_many()
        changes.move_many({change: f"out/{change.name}" for change in changes})

    bucket.watch(INBOX, batch=100, concurrency=1, gone="deliver")(handle)
    run(bucket)
    bucket.put_many({"in/warm": 1})
    run(bucket)
    bucket.put_many({f"in/{n}": n for n in range(100)})
    before = bucket.requests
    run(bucket)
    spent = bucket.requests - before
    assert len(memory.objects("out/")) == 101
    assert (spent.create, spent.remove) == (100 + 3, 100)  # targets, note, events, journal
    assert spent.get <= 200 + 10


def test_a_batch_is_a_number_of_changes_and_cannot_be_mounted(memory: World) -> None:
    bucket = memory.connect()
    for bad in (0, 1_001, "10", 2.5):
        with pytest.raises(bucketmq.Invalid, match="batch must be"):
            bucket.watch(INBOX, batch=bad)

    @bucket.watch(INBOX, batch=10)
    def handle(changes: Changes) -> None: ...

    with pytest.raises(bucketmq.Invalid, match="can only pull"):
        endpoint(handle, bucket, bearer=["a-long-random-text"])


def test_what_a_batch_leaves_to_be_told_is_told(memory: World) -> None:
    bucket = memory.connect()

    @bucket.watch(INBOX, batch=5)
    def handle(changes: Changes) -> None:
        outcomes = changes.move_many({change: "out/same" if change.name in "ab" else "out/c" for change in changes[2:]})
        assert [type(each).__name__ for each in outcomes] == ["Stored"]

    run(bucket)
    bucket.put_many({f"in/{name}": name for name in "abc"})
    run(bucket)
    assert ("moved", "out/c") in summary(bucket)
