"""The simulator of the event bus itself: deterministic, sees nothing where nothing is, and its network is a network."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import msgspec
import pytest

from bucketmq.bucket.port import Attributes, Found, Missing
from bucketmq.events import formats
from bucketmq.events.event import ObjectEvent
from bucketmq.procedures.requests import Answer, Delete, Look, NoAnswer, Post, Procedure
from bucketmq.testing.simulation import BUS, main_run, trace
from bucketmq.testing.simulation.bus import run_seed
from bucketmq.testing.simulation.bus.network import SimNetwork
from bucketmq.testing.simulation.bus.plan import FINE, WEATHERS, Tilt, Weather, draw, just
from bucketmq.testing.simulation.bus.provider import Provider
from bucketmq.testing.simulation.engine import Process
from bucketmq.testing.simulation.faults import NONE
from bucketmq.testing.simulation.store import SimStore
from bucketmq.testing.simulation.world import World

SEEDS = [3, 11, 42, 1_000_003]
EVENTS = [
    ObjectEvent(id=f"evt_{name}", kind="created", key=name, at="2027-01-15T08:00:00.000000Z", source="s3")
    for name in "abcdef"
]


def a_network(**weather: float) -> tuple[World, SimNetwork, list[str]]:
    arrived: list[str] = []
    world = World("test")
    plan = draw(1, Tilt(weather=Weather(**weather)))
    return world, SimNetwork(plan, world, lambda url, id_, event: arrived.append(event.id)), arrived


def post(world: World, network: SimNetwork, *, deadly: str | None = None) -> Any:
    """What a process hears that posts all of `EVENTS`; None if it died."""
    store = SimStore(world, lists_in_order=True, answer_stamps=True, content_versions=False, whole_seconds=False)
    process = Process(world, store, "p")
    process.http = network
    process.on_request = lambda _: deadly
    heard: list[Any] = []

    def ask() -> Procedure[Any]:
        body, _ = formats.encode("tigris", EVENTS)
        return (yield from Post("https://a.example/hook", {"webhook-id": "evt_x"}, body, 5.0))

    process.start(ask(), "test", lambda value, error: heard.append(error or value))
    world.run(lambda: bool(heard), world.now + 100)
    return heard[0] if heard else None


@pytest.mark.parametrize("seed", SEEDS)
def test_the_same_seed_gives_the_same_history_of_the_bus(seed: int) -> None:
    first, second = run_seed(seed, traced=True), run_seed(seed, traced=True)

    assert first.trace
    assert first.digest == second.digest
    assert first == second


def test_the_same_seed_gives_the_same_history_of_the_bus_in_another_process() -> None:
    script = "from bucketmq.testing.simulation.bus import run_seed; print(run_seed(42, traced=True).digest)"
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


def test_tracing_changes_nothing_of_a_history() -> None:
    plain, traced = run_seed(42), run_seed(42, traced=True)

    assert plain == msgspec.structs.replace(traced, trace=None)


def test_a_history_without_faults_has_none() -> None:
    report = run_seed(7, tilt=Tilt(faults=NONE, weather=FINE))

    assert report.problems == []
    assert not any(report.faults.values())
    assert report.repeated == 0


def test_one_seed_is_replayed_with_its_plan_and_its_trace() -> None:
    lines = trace(7, kit=BUS)

    assert '"seed": 7' in lines[0]
    assert any("HEAL" in line for line in lines)
    assert main_run(seed=7, kit=BUS)["failures"] == []


def test_many_seeds_are_summed_up_the_same_in_several_processes() -> None:
    alone, together = main_run(seeds=30, kit=BUS), main_run(seeds=30, jobs=2, kit=BUS)

    assert alone["seeds"] == 30
    assert {**alone, "wall_seconds": 0} == {**together, "wall_seconds": 0}


def test_an_endpoint_that_works_processes_what_it_is_sent() -> None:
    world, network, arrived = a_network()

    answer = post(world, network)

    assert isinstance(answer, Answer)
    assert answer.status == 200
    assert arrived == [event.id for event in EVENTS]


@pytest.mark.parametrize(("kind", "status"), [("answer_500", 500), ("answer_503", 503), ("answer_302", 302)])
def test_an_endpoint_that_fails_processes_nothing_and_says_so(kind: str, status: int) -> None:
    world, network, arrived = a_network(**{kind: 1.0})

    answer = post(world, network)

    assert isinstance(answer, Answer)
    assert answer.status == status
    assert ("retry-after" in answer.headers) == (status == 503)
    assert arrived == []


def test_an_endpoint_that_is_gone_says_so_once() -> None:
    world, network, arrived = a_network(answer_410=1.0)

    assert [post(world, network).status for _ in range(2)] == [410, 200]
    assert len(arrived) == len(EVENTS)


def test_an_endpoint_that_names_failed_events_has_processed_the_others() -> None:
    world, network, arrived = a_network(answer_partial=1.0)

    answer = post(world, network)

    failed = formats.failures(answer.body, [event.id for event in EVENTS])
    assert failed
    assert sorted([*failed, *arrived]) == [event.id for event in EVENTS]


@pytest.mark.parametrize(("kind", "processed"), [("no_answer", False), ("late_answer", True), ("vanish", False)])
def test_an_endpoint_that_does_not_answer_may_have_processed_it(kind: str, processed: bool) -> None:
    world, network, arrived = a_network(**{kind: 1.0})

    assert isinstance(post(world, network), NoAnswer)
    assert bool(arrived) is processed


def test_an_endpoint_that_vanished_stays_away_until_all_is_healed() -> None:
    world, network, arrived = a_network(vanish=1.0)
    assert isinstance(post(world, network), NoAnswer)
    network.weather = FINE
    assert isinstance(post(world, network), NoAnswer)
    network.heal()

    assert isinstance(post(world, network), Answer)
    assert len(arrived) == len(EVENTS)


@pytest.mark.parametrize(("fate", "processed"), [("before", False), ("after", True)])
def test_a_process_may_die_before_its_post_leaves_or_after_it_arrived(fate: str, processed: bool) -> None:
    world, network, arrived = a_network()

    assert post(world, network, deadly=fate) is None
    assert bool(arrived) is processed


def test_a_plain_write_lands_whatever_is_there() -> None:
    store = SimStore(World("test"), lists_in_order=True, answer_stamps=True, content_versions=True, whole_seconds=False)
    for text in (b"one", b"two"):
        store.overwrite("foreign", "docs/a", text, Attributes("text/plain"))

    found = store.perform(Look("docs/a"))
    assert isinstance(found, Found)
    assert found.size_bytes == 3
    assert store.keys("docs/") == ["docs/a"]
    store.perform(Delete("docs/a"))
    assert store.perform(Look("docs/a")) == Missing()


def test_notifications_are_lost_doubled_and_late_as_the_weather_is() -> None:
    for kind, in_flight in (("notice_lost", 0), ("notice_doubled", 2), ("notice_late", 1)):
        world = World("test")
        provider = Provider(draw(1, Tilt(weather=Weather(**{kind: 1.0}), notifies=True)), world)
        provider.changed("docs/a", "v", 3, bookkeeping=False)
        assert (world.faults[kind], provider.in_flight) == (1, in_flight)


def test_every_kind_of_weather_can_be_had_alone() -> None:
    for kind in WEATHERS:
        weather = just([kind])
        assert [name for name in WEATHERS if getattr(weather, name)] == [kind]
