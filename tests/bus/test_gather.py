"""Fan-in: `when_all` fires once for each set, complete or at the deadline, whoever fails or dies on the way."""

from __future__ import annotations

import threading
from typing import Any

import pytest

import bucketmq
from bucketmq import Bury, Retry

from .test_watchers import run, run_until_death
from .world import World


@pytest.fixture(params=["blocking", "asyncio"])
def both(request: pytest.FixtureRequest, memory: World) -> Any:
    return memory.connect() if request.param == "blocking" else memory.connect_async()


def watching(bucket: Any, fired: list[Any], *templates: str, **options: Any) -> None:
    bucket.when_all(*templates, name="set", **options)(fired.append)
    run(bucket, "set")


def test_a_set_fires_once_when_it_is_complete(both: Any) -> None:
    fired: list[Any] = []
    watching(both, fired, "a/{id}.json", "b/{id}.json")
    both.put("a/1.json", 1)
    both.put("a/2.json", 1)
    run(both, "set")
    assert fired == []
    version = both.put("b/1.json", 2).version
    both.put("unrelated", 2)
    run(both, "set")
    (found,) = fired
    assert (found.values, found.keys, found.missing) == ({"id": "1"}, ("a/1.json", "b/1.json"), ())
    assert found.versions["b/1.json"] == version
    both.put("a/1.json", 3)  # the set has fired
    run(both, "set")
    assert len(fired) == 1


def test_an_async_handler_is_awaited(both: Any) -> None:
    fired: list[Any] = []

    async def handle(found: Any) -> None:
        fired.append(found.keys)

    both.when_all("x", "y", name="set")(handle)
    run(both, "set")
    both.put("x", 1)
    both.put("y", 1)
    run(both, "set")
    assert fired == [("x", "y")]


def test_keys_without_placeholders_are_one_set(memory: World) -> None:
    bucket, fired = memory.connect(), []
    watching(bucket, fired, "x", "y", "z")
    for key in ("z", "x", "y"):
        bucket.put(key, 1)
        run(bucket, "set")
    assert [found.keys for found in fired] == [("x", "y", "z")]


def test_special_characters_in_templates_are_taken_as_they_are(memory: World) -> None:
    bucket, fired = memory.connect(), []
    watching(bucket, fired, "a.(1)/{id}+'x'", "b[2]/{id}^$")
    bucket.put("a.(1)/7+'x'", 1)
    bucket.put("b[2]/7^$", 1)
    bucket.put("aX(1)/8+'x'", 1)
    run(bucket, "set")
    assert [found.values for found in fired] == [{"id": "7"}]


def test_the_deadline_fires_with_what_is_missing(memory: World, both: Any) -> None:
    fired: list[Any] = []
    watching(both, fired, "a/{id}", "b/{id}", deadline_seconds=60)
    both.put("a/1", 1)
    both.put("a/2", 1)
    run(both, "set")
    memory.advance(30)
    both.put("b/2", 1)
    run(both, "set")
    assert [found.values["id"] for found in fired] == ["2"]
    memory.advance(40)
    run(both, "set")
    run(both, "set")
    assert [(found.values["id"], found.missing) for found in fired] == [("2", ()), ("1", ("b/1",))]
    both.put("b/1", 1)
    run(both, "set")
    assert len(fired) == 2


def test_a_handler_that_failed_is_called_again(memory: World, both: Any) -> None:
    calls: list[int] = []

    def handle(_: Any) -> Any:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("not yet")
        return Retry("again", delay_seconds=1) if len(calls) == 2 else None

    both.when_all("x", "y", name="set", retry_seconds=[1, 1, 1], jitter=0)(handle)
    run(both, "set")
    both.put("x", 1)
    both.put("y", 1)
    for _ in range(5):
        run(both, "set")
        memory.advance(2)
    assert len(calls) == 3


def test_a_handler_that_failed_at_the_deadline_is_called_again(memory: World) -> None:
    bucket = memory.connect()
    calls: list[int] = []

    def handle(_: Any) -> None:
        calls.append(1)
        if len(calls) == 1:
            raise RuntimeError("not yet")

    bucket.when_all("x", "y", name="set", deadline_seconds=10, retry_seconds=[1, 1], jitter=0)(handle)
    run(bucket, "set")
    bucket.put("x", 1)
    run(bucket, "set")
    memory.advance(11)
    for _ in range(4):
        run(bucket, "set")
        memory.advance(2)
    assert len(calls) == 2


def test_a_buried_set_is_a_dead_letter_and_fires_when_redriven(memory: World) -> None:
    bucket = memory.connect()
    outcome: list[Any] = [Bury("no"), None]
    calls: list[int] = []

    def handle(_: Any) -> Any:
        calls.append(1)
        return outcome.pop(0)

    bucket.when_all("x", "y", name="set")(handle)
    run(bucket, "set")
    bucket.put("x", 1)
    bucket.put("y", 1)
    run(bucket, "set")
    assert len(bucket.queue("events").dead_letters.peek()) == 1
    bucket.queue("events").dead_letters.redrive()
    run(bucket, "set")
    assert len(calls) == 2


def test_two_replicas_fire_each_set_once(memory: World) -> None:
    fired: list[str] = []
    buckets = [memory.connect(), memory.connect()]
    for bucket in buckets:
        bucket.when_all("a/{id}", "b/{id}", name="set")(lambda found: fired.append(found.values["id"]))
    for bucket in buckets:
        run(bucket, "set")
    for n in range(20):
        buckets[0].put(f"a/{n}", 1)
        buckets[1].put(f"b/{n}", 1)
    threads = [threading.Thread(target=run, args=(bucket, "set")) for bucket in buckets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    for _ in range(4):
        memory.advance(130)  # whoever found another one firing looks again
        run(buckets[0], "set")
    assert sorted(fired) == sorted(str(n) for n in range(20))


def test_a_gatherer_killed_anywhere_loses_no_set(memory: World) -> None:
    setup = memory.connect()
    fired: list[str] = []
    templates = "a/{id}", "b/{id}"
    setup.when_all(*templates, name="set", deadline_seconds=10_000)(lambda found: fired.append(found.values["id"]))
    run(setup, "set")
    for at in range(60):
        setup.put(f"a/{at}", 1)
        setup.put(f"b/{at}", 1)
        dying = memory.connect(at=at, fault="dies after")
        begun: list[str] = []
        dying.when_all(*templates, name="set", deadline_seconds=10_000)(
            lambda found: begun.append(found.values["id"])  # noqa: B023
        )
        run_until_death(dying)
        for _ in range(3):
            memory.advance(130)
            run(setup, "set")
        assert str(at) in fired or begun == [str(at)], at
        assert fired.count(str(at)) <= 1
        if not dying.hands.dead:
            assert str(at) not in fired
            return


def test_a_set_is_forgotten_after_a_week(memory: World) -> None:
    bucket, fired = memory.connect(), []
    watching(bucket, fired, "a/{id}", "b/{id}")
    bucket.put("a/1", 1)
    bucket.put("b/1", 1)
    run(bucket, "set")
    assert [key for key in memory.everything() if "/sets/" in key]
    memory.advance(8 * 86400)
    run(bucket, "set")
    assert [key for key in memory.everything() if "/sets/" in key] == []


def test_a_watcher_made_anew_begins_with_empty_sets_and_the_old_ones_are_tidied(memory: World) -> None:
    bucket, fired = memory.connect(), []
    watching(bucket, fired, "a/{id}", "b/{id}")
    bucket.put("a/1", 1)
    bucket.put("b/1", 1)
    run(bucket, "set")
    bucket.rules.remove("set")
    again = memory.connect()
    watching(again, fired, "a/{id}", "b/{id}")
    again.put("a/1", 2)
    again.put("b/1", 2)
    run(again, "set")
    assert len(fired) == 2
    again.rules.remove("set")
    memory.advance(61)
    again.rules.tidy()
    memory.advance(700)
    again.rules.tidy()


@pytest.mark.parametrize(
    ("templates", "options"),
    [
        ((), {}),
        (("a", "a"), {}),
        (("a/{id}", "b"), {}),
        (("a/{id}", "b/{other}"), {}),
        (("a", "b"), {"deadline_seconds": 0}),
        (("a", "b"), {"deadline_seconds": float("nan")}),
    ],
)
def test_sets_that_make_no_sense_are_refused(memory: World, templates: Any, options: Any) -> None:
    with pytest.raises(bucketmq.Invalid):
        memory.connect().when_all(*templates, **options)
