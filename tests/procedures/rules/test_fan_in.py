"""Fan-in: `when_all` fires once for each set, complete or at the deadline, whoever fails or dies on the way."""

from __future__ import annotations

import threading
from typing import Any

import msgspec
import pytest

import bucketmq
from bucketmq import Bury, Retry
from bucketmq.testing.simulation.bus.plan import FINE, Tilt
from bucketmq.testing.simulation.bus.run import run_seed
from bucketmq.testing.simulation.faults import NONE
from procedures.objects.world import Killed, World, attempts_of
from procedures.rules.test_watchers import run, run_until_death


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


@pytest.mark.parametrize("seed", range(6))
def test_a_set_whose_handler_outlasts_the_lease_fires_once(seed: int) -> None:
    """In virtual time: other events of the set come while the handler runs, and two processes look."""
    report = run_seed(seed, tilt=Tilt(fan_in=True, slow_sets=True, faults=NONE, weather=FINE, watchers=2))
    assert report.problems == []
    assert report.covered["right to fire renewed"] > 0


def registers(world: World) -> list[str]:
    return [key for key in world.everything() if "/sets/" in key]


@pytest.mark.parametrize("deadline_seconds", [None, 60])
def test_a_set_that_never_completes_is_forgotten_too(memory: World, deadline_seconds: float | None) -> None:
    bucket = memory.connect()

    def handle(_: Any) -> Any:
        return Bury("a handler that never succeeds")

    bucket.when_all("a/{id}", "b/{id}", name="set", deadline_seconds=deadline_seconds)(handle)
    run(bucket, "set")
    bucket.put("a/1", 1)
    for _ in range(6):
        run(bucket, "set")
        assert registers(memory)
        memory.advance(86400)
    for _ in range(3):  # what the deadline did to it counts, too
        memory.advance(86400)
        run(bucket, "set")
    assert registers(memory) == []


def test_a_set_is_not_forgotten_while_members_come(memory: World) -> None:
    bucket, fired = memory.connect(), []
    watching(bucket, fired, "a/{id}", "b/{id}", "c/{id}")
    for key in ("a/1", "b/1"):
        bucket.put(key, 1)
        run(bucket, "set")
        memory.advance(5 * 86400)
    run(bucket, "set")  # ten days after the first, five after the second
    assert fired == []
    bucket.put("c/1", 1)
    run(bucket, "set")
    assert [found.keys for found in fired] == [("a/1", "b/1", "c/1")]
    memory.advance(6 * 86400)
    run(bucket, "set")
    assert registers(memory)  # it fired six days ago
    memory.advance(2 * 86400)
    run(bucket, "set")
    assert registers(memory) == []


def test_a_set_that_was_forgotten_can_begin_and_end_again(memory: World) -> None:
    bucket, fired = memory.connect(), []
    watching(bucket, fired, "a/{id}", "b/{id}")
    for _ in range(2):
        bucket.put("a/1", 1)
        run(bucket, "set")
        memory.advance(8 * 86400)
        run(bucket, "set")
        assert registers(memory) == []
    for key in ("a/1", "b/1"):
        bucket.put(key, 1)
        run(bucket, "set")
    assert len(fired) == 1


def test_an_event_that_finds_another_worker_firing_is_no_failed_attempt(memory: World) -> None:
    first, second = memory.connect(), memory.connect()
    calls: list[str] = []

    def handle(found: Any) -> None:
        calls.append("first")
        second.put("b/1", 2)  # replaced while the handler runs
        run(second, "set")
        second.put("a/1", 2)
        run(second, "set")

    first.when_all("a/{id}", "b/{id}", name="set")(handle)
    second.when_all("a/{id}", "b/{id}", name="set")(lambda _: calls.append("second"))
    run(first, "set")
    first.put("a/1", 1)
    first.put("b/1", 1)
    run(first, "set")
    assert calls == ["first"]
    assert [each["outcome"] for each in attempts_of(first, "set")] == ["done"] * 4
    memory.advance(1000)
    run(second, "set")
    assert calls == ["first"]


@pytest.mark.parametrize("another", [False, True])
def test_a_set_whose_worker_dies_in_the_handler_fires_when_its_lease_is_over(memory: World, *, another: bool) -> None:
    """Also if another event of the set came meanwhile and was settled, because somebody was firing."""
    dying, living, fired = memory.connect(at=10**6, fault="dies before"), memory.connect(), []

    def die(_: Any) -> None:
        dying.hands.dead = True
        raise Killed

    options: dict[str, Any] = {"name": "set", "lease_seconds": 20, "concurrency": 1}
    living.when_all("a/{id}", "b/{id}", **options)(lambda found: fired.append(found.keys))
    run(living, "set")
    dying.when_all("a/{id}", "b/{id}", **options)(die)
    living.put("a/1", 1)
    living.put("b/1", 1)
    run_until_death(dying)
    if another:
        memory.advance(1)
        living.put("a/1", 2)
    run(living, "set")
    assert fired == []
    memory.advance(21)
    run(living, "set")
    assert fired == [("a/1", "b/1")]
    memory.advance(1000)
    run(living, "set")
    assert len(fired) == 1
    assert "retry" not in [each["outcome"] for each in attempts_of(living, "set")]


def test_a_message_that_a_firing_worker_lost_stays_until_the_right_to_fire_is_over(memory: World) -> None:
    """It is all that is left of the set: settled because somebody seems to be firing, it would be lost with him."""
    dying, living, fired = memory.connect(at=10**6, fault="dies before"), memory.connect(), []

    def die(_: Any) -> None:
        (key,) = registers(memory)
        state = msgspec.json.decode(memory.everything()[key])
        assert state["firing_until"] <= memory.time.now() + 20
        state["firing_until"] += 15  # renewed once more than the message's own lease
        memory.write(key, msgspec.json.encode(state))
        dying.hands.dead = True
        raise Killed

    options: dict[str, Any] = {"name": "set", "lease_seconds": 20, "concurrency": 1}
    living.when_all("a/{id}", "b/{id}", **options)(lambda found: fired.append(memory.time.now()))
    run(living, "set")
    dying.when_all("a/{id}", "b/{id}", **options)(die)
    living.put("a/1", 1)
    living.put("b/1", 1)
    began = memory.time.now()
    run_until_death(dying)
    memory.advance(21)
    run(living, "set")  # a pause takes no time here: it moves the clock
    assert [round(at - began) >= 35 for at in fired] == [True]
    assert [each["outcome"] for each in attempts_of(living, "set")].count("retry") == 0
