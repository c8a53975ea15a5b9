"""Watchers: plain and async handlers on both facades, called again until they succeed, never again after that."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

import bucketmq
from bucketmq import Bury, Done, Release, Retry
from bucketmq.events.event import ObjectEvent, event_id
from procedures.objects.world import FAULTS, Killed, World, attempts_of, summary, told


def run(bucket: Any, *names: str) -> None:
    bucket.run_watchers(*names, stop_when_empty=True, signals=False)


@pytest.fixture(params=["blocking", "asyncio"])
def both(request: pytest.FixtureRequest, memory: World) -> Any:
    """A bucket on either facade."""
    return memory.connect() if request.param == "blocking" else memory.connect_async()


def letters(world: World) -> list[Any]:
    found: list[Any] = world.connect().queue("events").dead_letters.peek(100)
    return found


def test_a_plain_handler_is_given_each_change_and_what_it_needs(memory: World, both: Any) -> None:
    seen: list[Any] = []

    def handle(change: Any) -> None:
        seen.append((change.kind, change.key, change.name, change.json(), change.attempt, change.hops))
        assert change.text() == '{"n":1}'
        assert change.metadata() == {"owner": "rosa"}

    both.watch('WHERE key LIKE "in/%"')(handle)
    run(both)
    both.put("in/a.json", {"n": 1}, metadata={"owner": "rosa"})
    both.put("other", "x")
    run(both)
    run(both)
    assert seen == [("created", "in/a.json", "a.json", {"n": 1}, 1, 0)]
    assert [rule.name for rule in memory.connect().rules.list()] == ["handle"]


def test_an_async_handler_awaits_the_same(memory: World, both: Any) -> None:
    seen: list[Any] = []

    async def handle(change: Any) -> None:
        await asyncio.sleep(0)
        record = await change.json()
        await change.put(f"copy/{change.name}", record)
        await change.move(f"out/{change.name}")
        seen.append(record)

    both.watch('WHERE key LIKE "in/%"')(handle)
    run(both)
    both.put("in/a.json", {"n": 1})
    run(both)
    assert seen == [{"n": 1}]
    assert memory.objects() == {"copy/a.json": b'{"n":1}', "out/a.json": b'{"n":1}'}
    assert [event.hops for event in told(memory.connect())] == [0, 1, 1]


def test_a_handler_that_failed_is_called_again_until_it_succeeds_and_then_never(memory: World, both: Any) -> None:
    """The defect of a deduper that marks before the work: the second call never comes."""
    attempts: list[int] = []

    def handle(change: Any) -> None:
        attempts.append(change.attempt)
        if len(attempts) < 3:
            raise RuntimeError("not yet")

    both.watch(retry_seconds=[1, 1, 1], jitter=0)(handle)
    run(both)
    both.put("a", "x")
    for _ in range(5):
        run(both)
        memory.advance(2)
    assert attempts == [1, 2, 3]
    assert [line["outcome"] for line in attempts_of(memory.connect(), "handle")] == ["retry", "retry", "done"]
    assert letters(memory) == []


def test_a_handler_that_always_fails_ends_as_a_dead_letter_with_its_tracebacks(memory: World, both: Any) -> None:
    def handle(change: Any) -> None:
        raise ValueError(f"attempt {change.attempt}")

    both.watch(retry_seconds=[1, 1], jitter=0)(handle)
    run(both)
    both.put("a", "x")
    for _ in range(4):
        run(both)
        memory.advance(2)
    (letter,) = letters(memory)
    assert [f"attempt {n}" in each["error"] for n, each in enumerate(letter.failures, 1)] == [True] * 3
    assert "ValueError" in letter.reason
    both.queue("events").dead_letters.redrive()
    run(both)
    assert attempts_of(memory.connect(), "handle")[-1]["outcome"] == "retry"


OUTCOMES = [
    (None, "done"),
    (Done(), "done"),
    ("anything else", "done"),
    (Retry("why", delay_seconds=3), "retry"),
    (Retry, "retry"),
    (Bury("why"), "bury"),
    (Bury, "bury"),
]


@pytest.mark.parametrize(("outcome", "becomes"), OUTCOMES, ids=[str(each[0]) for each in OUTCOMES])
def test_what_a_handler_returns_is_what_becomes_of_the_event(memory: World, outcome: Any, becomes: str) -> None:
    bucket = memory.connect()
    bucket.watch(name="w")(lambda _: outcome)
    run(bucket)
    bucket.put("a", "x")
    run(bucket)
    assert [line["outcome"] for line in attempts_of(bucket, "w")] == [becomes]
    assert len(letters(memory)) == (becomes == "bury")


def test_a_delay_that_the_handler_asks_for_is_kept(memory: World) -> None:
    bucket = memory.connect()
    calls: list[int] = []

    def handle(change: Any) -> Any:
        calls.append(change.attempt)
        return Retry("later", delay_seconds=50) if change.attempt == 1 else None

    bucket.watch(retry_seconds=[1], jitter=0)(handle)
    run(bucket)
    bucket.put("a", "x")
    run(bucket)
    memory.advance(45)
    run(bucket)
    assert calls == [1]
    memory.advance(6)
    run(bucket)
    assert calls == [1, 2]


def test_a_released_event_comes_again_as_the_same_attempt(memory: World) -> None:
    bucket = memory.connect()
    calls: list[int] = []

    def handle(change: Any) -> Any:
        calls.append(change.attempt)
        return Release() if len(calls) == 1 else None

    bucket.watch()(handle)
    run(bucket)
    bucket.put("a", "x")
    run(bucket)
    run(bucket)
    assert calls == [1, 1]


def test_a_watcher_killed_anywhere_has_its_event_handled_by_the_next(memory: World) -> None:
    """Marked after success only: whatever the last request of its life was, the event is not lost."""
    setup = memory.connect()
    handled: list[str] = []
    setup.watch(name="w", start="beginning")(lambda change: handled.append(change.key))
    run(setup)
    for at in range(40):
        key = f"k{at}"
        setup.put(key, "x")
        dying = memory.connect(at=at, fault="dies after")
        began: list[str] = []

        def die(change: Any) -> None:
            began.append(change.key)  # noqa: B023

        dying.watch(name="w")(die)
        run_until_death(dying)
        memory.advance(100)  # its lease is over
        run(setup)
        assert key in handled or key in began, at
        assert key in handled or at > 3, "a mark before the work"
        if not dying.hands.dead:
            assert began == [key]
            assert key not in handled
            return
        memory.advance(100)


def run_until_death(bucket: Any) -> None:
    """Its threads die with it, one after the other."""
    hook, threading.excepthook = threading.excepthook, lambda _: None
    try:
        thread = threading.Thread(target=lambda: quietly(bucket))
        thread.start()
        thread.join(30)
    finally:
        threading.excepthook = hook


def quietly(bucket: Any) -> None:
    try:
        run(bucket)
    except Killed:
        pass


def test_a_handler_killed_in_the_middle_is_called_again(memory: World) -> None:
    bucket = memory.connect()
    calls: list[str] = []
    bucket.watch(name="w", start="beginning")(lambda change: calls.append(change.key))
    run(bucket)
    bucket.put("a", "x")
    dying = memory.connect(at=10**9, fault="dies before")

    def die(change: Any) -> None:
        calls.append("began " + change.key)
        dying.hands.dead = True  # the process is gone: nothing of it reaches the store any more

    dying.watch(name="w", start="beginning")(die)
    run_until_death(dying)
    memory.advance(30)
    run(bucket)
    assert calls == ["began a"]  # its lease still runs
    memory.advance(100)
    run(bucket)
    assert calls == ["began a", "a"]


@pytest.mark.parametrize("facades", [("blocking", "blocking"), ("blocking", "asyncio"), ("asyncio", "asyncio")])
def test_replicas_share_the_work_and_nothing_is_handled_twice(memory: World, facades: tuple[str, str]) -> None:
    buckets = [memory.connect() if each == "blocking" else memory.connect_async() for each in facades]
    handled: list[str] = []
    for bucket in buckets:
        bucket.watch(name="w")(lambda change: handled.append(change.key))
    for bucket in buckets:
        run(bucket)
    for n in range(60):
        buckets[0].put(f"k{n}", "x")
    threads = [threading.Thread(target=run, args=(bucket,)) for bucket in buckets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    run(buckets[0])
    assert sorted(handled) == sorted(f"k{n}" for n in range(60))


def test_what_several_sources_tell_is_handled_once(memory: World) -> None:
    bucket = memory.connect()
    handled: list[str] = []
    bucket.watch(name="w")(lambda change: handled.append(change.event.source))
    run(bucket)
    stored = bucket.put("a", "x")
    at = stored.event.at
    notification = ObjectEvent(
        id=event_id("gcs", "", "a", stored.version),
        kind="created",
        key="a",
        at=at,
        source="gcs",
        version=stored.version,
        exact=True,
    )
    bucket.report([notification])
    run(bucket)
    bucket.report([notification])
    bucket.sweep()
    run(bucket)
    assert handled == ["writer"]


def test_objects_that_are_gone_are_no_error(memory: World, both: Any) -> None:
    calls: list[str] = []

    def handle(change: Any) -> None:
        calls.append(change.key)
        memory.delete(change.key)  # somebody is faster
        change.json()

    both.watch()(handle)
    run(both)
    both.put("a", "x")
    both.put("b", "x")
    memory.delete("a")
    run(both)
    memory.advance(1000)
    run(both)
    assert calls == ["b"]
    assert letters(memory) == []


def test_an_object_that_changed_meanwhile_is_left_to_the_newer_event(memory: World, both: Any) -> None:
    seen: list[str] = []

    def handle(change: Any) -> None:
        seen.append(change.text())
        if len(seen) == 1:
            memory.connect().put("in/a", "new")
        change.move("out/a")

    both.watch('WHERE key LIKE "in/%"', concurrency=1)(handle)
    run(both)
    both.put("in/a", "old")
    run(both)
    run(both)
    assert seen == ["old", "new"]
    assert memory.objects() == {"out/a": b"new"}
    assert letters(memory) == []


def test_a_failure_that_is_not_about_the_object_is_not_taken_for_one(memory: World) -> None:
    """`NotFound` of something else is a failure of the handler, not news that the change is over."""
    bucket = memory.connect()
    calls: list[int] = []

    def handle(change: Any) -> None:
        calls.append(change.attempt)
        if change.attempt == 1:
            bucket.get("settings")

    bucket.watch('WHERE key = "a"', retry_seconds=[1], jitter=0)(handle)
    run(bucket)
    bucket.put("a", "x")
    run(bucket)
    memory.advance(2)
    run(bucket)
    assert calls == [1, 2]


def test_hops_and_lineage_grow_with_every_step(memory: World) -> None:
    bucket = memory.connect()
    bucket.watch('WHERE key LIKE "a/%"', name="first")(lambda change: change.put("b/x", "2"))
    bucket.watch('WHERE key LIKE "b/%"', name="second")(lambda change: change.move("c/x"))
    bucket.watch('WHERE key LIKE "c/%"', name="third")(lambda change: change.put("d/x", "3"))
    run(bucket)
    bucket.put("a/x", "1")
    for _ in range(4):
        run(bucket)
    events = told(bucket)
    assert [(event.key, event.hops) for event in events] == [("a/x", 0), ("b/x", 1), ("c/x", 2), ("d/x", 3)]
    ids = [event.id for event in events]
    assert [event.lineage for event in events] == [(), (ids[0],), tuple(ids[:2]), tuple(ids[:3])]
    assert bucket.get("c/x").hops == 2
    assert bucket.look("c/x").attributes.metadata["bucketmq-hops"] == "2"


def test_two_watchers_that_play_ping_pong_stop(memory: World) -> None:
    bucket = memory.connect()
    calls: list[str] = []

    def ping(change: Any) -> None:
        calls.append(change.key)
        change.put("pong/x", "x")

    def pong(change: Any) -> None:
        calls.append(change.key)
        change.put("ping/x", "x")

    bucket.watch('WHERE key LIKE "ping/%"', hops_max=6)(ping)
    bucket.watch('WHERE key LIKE "pong/%"', hops_max=6)(pong)
    run(bucket)
    bucket.put("ping/x", "start")
    for _ in range(12):
        run(bucket)
    assert len(calls) == 7
    (letter,) = letters(memory)
    assert "loop guard" in letter.reason
    assert "break the loop, or raise hops_max" in letter.reason


def test_a_watcher_that_moves_in_a_circle_stops_too(world: World) -> None:
    bucket = world.connect()
    calls: list[str] = []

    def there(change: Any) -> None:
        calls.append(change.key)
        change.move("b/x" if change.key == "a/x" else "a/x")

    bucket.watch(hops_max=5)(there)
    run(bucket)
    bucket.put("a/x", "start")
    for _ in range(10):
        run(bucket)
    assert len(calls) == 6
    assert len(world.objects()) == 1


def test_a_watcher_keeps_its_place_while_nothing_runs_and_its_rule_follows_the_code(memory: World) -> None:
    bucket = memory.connect()
    seen: list[str] = []
    bucket.watch('WHERE key LIKE "a%"', name="w")(lambda change: seen.append(change.key))
    run(bucket)
    bucket.put("a1", "x")
    later = memory.connect()
    later.watch('WHERE key LIKE "a%" OR key LIKE "b%"', name="w")(lambda change: seen.append(change.key))
    later.put("b1", "x")
    run(later)
    assert seen == ["a1", "b1"]
    later.rules.pause("w", "for repairs")
    later.put("b2", "x")
    again = memory.connect()
    again.watch('WHERE key LIKE "b%"', name="w")(lambda change: seen.append(change.key))
    run(again)
    assert seen == ["a1", "b1"]  # a pause stays when the code changes
    again.rules.resume("w")
    run(again)
    assert seen == ["a1", "b1", "b2"]


def test_what_cannot_be_a_watcher_is_refused(memory: World) -> None:
    bucket = memory.connect()
    with pytest.raises(bucketmq.Invalid, match="function"):
        bucket.watch()("no function")
    with pytest.raises(bucketmq.Invalid):
        bucket.watch("WHERE key =")
    with pytest.raises(bucketmq.Invalid, match="unknown option"):
        bucket.watch(colour="red")(print)
    bucket.watch(name="w")(lambda _: None)
    with pytest.raises(bucketmq.Invalid, match="already"):
        bucket.watch(name="w")(lambda _: None)
    with pytest.raises(bucketmq.Invalid, match="no watcher"):
        run(bucket, "nobody")
    bucket.rules.add("r", to="queue:out")
    bucket.watch(name="r")(lambda _: None)
    with pytest.raises(bucketmq.Invalid, match="another name"):
        run(bucket, "r")


def test_bad_answers_anywhere_lose_no_event_and_leave_no_object_in_two_places(memory: World) -> None:
    """One request of the router goes wrong, each in turn; then everything is let run."""
    setup = memory.connect()
    route = 'WHERE key LIKE "in/%"'
    setup.watch(route, name="w", start="beginning", retry_seconds=[1] * 5)(lambda c: c.move("out/" + c.name))
    run(setup)
    for fault in FAULTS[:5]:
        for at in range(0, 36, 2):
            key = f"{fault.replace(' ', '-')}-{at}"
            setup.put(f"in/{key}", key)
            shaky = memory.connect(at=at, fault=fault)
            shaky.watch(route, name="w", start="beginning", retry_seconds=[1] * 5)(lambda c: c.move("out/" + c.name))
            run(shaky)
            memory.advance(100)
            run(setup)
            objects = memory.objects()
            assert f"in/{key}" not in objects, (fault, at)
            assert objects[f"out/{key}"] == key.encode()
    memory.advance(4000)
    setup.recover()
    moved = [key for kind, key in summary(setup) if kind == "moved"]
    assert sorted(set(moved)) == sorted(memory.objects())
    assert letters(memory) == []


def test_a_running_watcher_takes_what_comes_and_stops_when_told(both: Any) -> None:
    handled = threading.Event()
    notifiers: list[Any] = []
    ready = threading.Event()

    def started(notifier: Any) -> None:
        notifiers.append(notifier)
        notifier.ready.on_open(ready.set)

    both.watch(name="w")(lambda _: handled.set())
    thread = threading.Thread(target=lambda: both.run_watchers(signals=False, started=started))
    thread.start()
    assert ready.wait(30)
    both.put("a", "x")
    assert handled.wait(30)
    notifiers[0].stop()
    thread.join(30)
    assert not thread.is_alive()
