"""The simulator itself: it is deterministic, loses no event, runs every request, and sees nothing where nothing is."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from bucketmq.bucket.port import Missing, Object, Page, Refused, Unknown, Written
from bucketmq.errors import Unavailable
from bucketmq.procedures.requests import (
    Call,
    Chance,
    Create,
    Delete,
    Get,
    Latch,
    List,
    NewId,
    Now,
    Pause,
    Procedure,
    Replace,
    Spawn,
    Together,
    Wait,
)
from bucketmq.testing.simulation import main_run, run_seed, trace
from bucketmq.testing.simulation.engine import Process
from bucketmq.testing.simulation.faults import KINDS, NONE, Faults, only
from bucketmq.testing.simulation.plan import SHORT
from bucketmq.testing.simulation.store import SimStore
from bucketmq.testing.simulation.world import EPOCH, World

SEEDS = [3, 11, 42, 1_000_003]


def a_store(world: World, **options: Any) -> SimStore:
    given = {"lists_in_order": True, "answer_stamps": True, "content_versions": False, "whole_seconds": False}
    return SimStore(world, **{**given, **options})


def carry(world: World, process: Process, procedure: Procedure[Any]) -> Any:
    """What a procedure returns or raises when a process runs it."""
    ended: list[Any] = []
    process.start(procedure, "test", lambda value, error: ended.append(error or value))
    world.run(lambda: bool(ended), world.now + 1_000)
    return ended[0]


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_seed_gives_the_same_history(seed: int) -> None:
    first, second = run_seed(seed, traced=True), run_seed(seed, traced=True)

    assert first.trace
    assert first.digest == second.digest
    assert first == second


def test_the_same_seed_gives_the_same_history_in_another_process() -> None:
    script = "from bucketmq.testing.simulation import run_seed; print(run_seed(42, traced=True).digest)"
    digests = {
        subprocess.run(
            [sys.executable, "-c", script],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
        for hash_seed in ("1", "2")
    }
    assert digests == {run_seed(42, traced=True).digest}


def test_tracing_changes_nothing() -> None:
    plain, traced = run_seed(42), run_seed(42, traced=True)

    assert (plain.requests, plain.faults, plain.covered) == (traced.requests, traced.faults, traced.covered)


def test_other_seeds_give_other_histories() -> None:
    assert len({run_seed(seed, traced=True).digest for seed in SEEDS}) == len(SEEDS)


def test_a_run_without_faults_shows_no_anomaly_at_all() -> None:
    report = run_seed(42, faults=NONE, tilt=SHORT)

    assert report.problems == []
    assert report.faults == {}
    assert (report.lost, report.unexpected, report.duplicated, report.recovered, report.redeliveries) == (0, 0, 0, 0, 0)


def test_one_worker_alone_never_collides() -> None:
    import msgspec

    from bucketmq.testing.simulation.plan import SHORT, Job, Role, draw
    from bucketmq.testing.simulation.run import Run

    jobs = tuple(Job((f"t{number}",), (None,), 0.5) for number in range(10))
    plan = msgspec.structs.replace(
        draw(1, NONE, SHORT),
        roles=(Role("p0", 1, (), (), jobs), Role("p1", 0, (("main", "hand"),), ())),
        subscriptions=("main",),
    )
    report = Run(plan).report()

    assert report.problems == []
    assert report.conflicts == 0
    assert report.redeliveries == 0


def test_the_scheduler_loses_no_event_and_keeps_time_in_order() -> None:
    world, seen = World("test"), []
    for number in range(1_000):
        world.after(world.between(0, 100), lambda number=number: seen.append((world.now, number)))

    for limit in (10, 10, 50, 200):
        world.run(lambda: False, EPOCH + limit)

    assert sorted(number for _, number in seen) == list(range(1_000))
    assert [moment for moment, _ in seen] == sorted(moment for moment, _ in seen)
    assert world.pushed == world.popped == 1_000
    assert world.pending == 0


def test_events_of_one_moment_come_in_an_order_that_the_seed_decides() -> None:
    def order(seed: str) -> list[int]:
        world, seen = World(seed), []
        for number in range(20):
            world.after(1.0, seen.append, number)
        world.run(lambda: False, EPOCH + 2)
        return seen

    assert order("a") == order("a") != order("b")


def test_a_process_is_answered_every_request_that_procedures_may_make() -> None:
    world = World("test")
    store = a_store(world)
    latch, spawned = Latch(), []

    def other() -> Procedure[None]:
        yield from Pause(1.0)
        spawned.append((yield from Now()))
        latch.open()

    def handler(number: int) -> Procedure[int]:
        yield from Pause(0.5)
        return number + 1

    def broken(_: object) -> None:
        raise LookupError("mine")

    def procedure() -> Procedure[list[Any]]:
        began = yield from Now()
        replies = [(yield from Get("a")), (yield from Create("a", b"1")), (yield from Create("a", b"2"))]
        version = replies[1].version
        replies += yield from Together((Replace("a", b"2", version), Get("missing"), List("", "", 10)))
        replies.append((yield from Replace("a", b"3", version)))
        replies.append((yield from Delete("a")))
        yield from Spawn(other(), "other")
        yield from Wait(latch)
        yield from Wait(Latch(), 2.0)
        replies += [
            (yield from Call(handler, 1)),
            (yield from Call(len, "four")),
            (yield from NewId()),
            (yield from Chance()),
        ]
        try:
            yield from Call(broken, None)
        except LookupError as error:
            replies.append(error)
        replies.append((yield from Now()) - began)
        return replies

    replies = carry(world, Process(world, store, "p"), procedure())

    kinds = [Missing, Written, Refused, Written, Missing, Page, Refused, type(None), int, int, str, float, LookupError]
    assert [type(reply) for reply in replies] == [*kinds, float]
    assert replies[8:10] == [2, 4]
    assert 3.5 < replies[-1] < 5.0
    assert spawned


def test_a_killed_process_asks_nothing_more_but_what_it_sent_lands() -> None:
    world = World("test")
    store, deaths = a_store(world), []
    process = Process(world, store, "p")
    process.on_request = lambda _: "after" if store.requests == 1 else None
    process.on_death = deaths.append

    def procedure() -> Procedure[None]:
        for key in "abc":
            yield from Create(key, b"1")

    process.start(procedure(), "test")
    world.run(lambda: False, EPOCH + 10)

    assert sorted(store.objects) == ["a", "b"]
    assert deaths == [process]


def test_a_frozen_process_hears_its_answers_when_it_thaws() -> None:
    world = World("test")
    store = a_store(world)
    process = Process(world, store, "p")
    heard = []

    def procedure() -> Procedure[None]:
        yield from Create("a", b"1")
        heard.append((yield from Now()))

    process.start(procedure(), "test")
    world.run(lambda: False, EPOCH)  # it has asked, and nothing has arrived yet
    process.freeze(100.0)
    world.run(lambda: False, EPOCH + 99)
    assert list(store.objects) == ["a"]
    assert heard == []
    world.run(lambda: False, EPOCH + 200)
    assert 99 < heard[0] - EPOCH < 101


@pytest.mark.parametrize(
    ("kind", "written", "read", "lands"),
    [
        ("lost_request", Unknown, Unavailable, False),
        ("lost_reply", Unknown, Unavailable, True),
        ("late_landing", Unknown, Missing, True),
        ("conflict_409", Refused, Missing, False),
        ("error_503", Unknown, Unavailable, False),
    ],
)
def test_each_fault_of_a_request_looks_as_it_should(kind: str, written: type, read: type, lands: bool) -> None:
    world = World("test")
    store = a_store(world)
    store.faults = Faults(**{kind: 1.0})
    process = Process(world, store, "p")

    def ask(request: Get | Create) -> Procedure[Any]:
        return (yield request)

    assert type(carry(world, process, ask(Get("a")))) is read
    assert type(carry(world, process, ask(Create("a", b"1")))) is written
    world.run(lambda: False, world.now + 60)
    assert ("a" in store.objects) is lands


def test_an_unordered_store_lists_the_same_keys_in_another_order() -> None:
    world = World("test")
    store = a_store(world, lists_in_order=False)
    for number in range(20):
        store.perform(Create(f"k/{number:02}", b"1"))

    page = store.perform(List("k/", "k/04", 10))

    assert isinstance(page, Page)
    keys = [entry.key for entry in page.entries]
    assert page.more
    assert sorted(keys) == [f"k/{number:02}" for number in range(5, 15)]
    assert keys != sorted(keys)


def test_versions_by_content_are_equal_for_equal_bytes() -> None:
    store = a_store(World("test"), content_versions=True)
    store.perform(Create("a", b"1"))
    store.perform(Create("b", b"1"))

    one, other = store.perform(Get("a")), store.perform(Get("b"))

    assert isinstance(one, Object)
    assert isinstance(other, Object)
    assert one.version == other.version


def test_every_fault_kind_can_be_had_alone() -> None:
    for kind in KINDS:
        faults = only([kind])
        assert [name for name in KINDS if getattr(faults, name)] == [kind]


def test_a_trace_tells_the_plan_and_every_step() -> None:
    plan, *steps = trace(42)

    assert '"seed": 42' in plan
    assert any("-> Written" in step for step in steps)
    assert any("HEAL" in step for step in steps)


def test_the_summary_of_a_run_is_plain_values() -> None:
    import msgspec

    told: list[str] = []
    summary = main_run(seed=None, seeds=5, first_seed=0, jobs=1, trace=False, mutants=False, progress=told.append)

    assert msgspec.json.decode(msgspec.json.encode(summary)) == summary
    assert summary["seeds"] == 5
    assert summary["failures"] == []
    assert summary["messages"] > 0
    assert summary["virtual_hours"] > 0


def test_a_failure_says_how_to_replay_it() -> None:
    from bucketmq.testing.simulation.mutants import MUTANTS
    from bucketmq.testing.simulation.swarm import swarm

    mutant = next(each for each in MUTANTS if each.name == "an expired lease is dropped")
    told: list[str] = []
    with mutant.plant():
        totals = swarm(range(10), progress=told.append)

    first = totals.failures[0]
    assert f"bucketmq sim --seed {first.seed} --trace" in str(first)
    assert str(first) in told
