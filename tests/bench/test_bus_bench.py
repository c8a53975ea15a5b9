"""The benchmarks of the event bus measure what they say: everything is counted, and a wrong count is an error."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import msgspec
import pytest

import bucketmq
from bench import command, matching, reception, suite, sweeping, webhooks
from bench.happenings import BUCKET, event, events, notification
from bench.machine import peak_bytes, resident_bytes
from bench.results import BARE, OURS, Measurement, measured, with_ratios
from bench.serving import Address, post_all, served
from bench.sink import Sink, Taken, sink
from bench.sizes import TINY
from bench.sweeping import fill_folder, key_of
from bucketmq import aio
from bucketmq.events import filters
from bucketmq.events.filters import Decision
from bucketmq.events.parse import parse
from bucketmq.procedures.rules.notifier import Notifier
from bucketmq.testing.servers import skip_or_fail

pytestmark = pytest.mark.timeout(120)

KEYS = 1_234


def nothing() -> None:
    """Every process is ready."""


def by_place(found: list[Measurement], unit: str) -> dict[tuple[str, str], Measurement]:
    return {(each.what, each.subject): each for each in found if each.unit == unit}


@pytest.fixture
def there() -> Iterator[Sink]:
    with sink() as found:
        yield found


@pytest.fixture
def swept_folder(tmp_path: Path) -> str:
    fill_folder(tmp_path, KEYS)
    return tmp_path.as_uri()


@pytest.mark.long
@pytest.mark.parametrize("scenario", ["receiver", "webhooks", "rules"])
def test_what_has_a_bare_part_is_given_beside_it_with_the_ratio(scenario: str) -> None:
    report = suite.measure(command.SCENARIOS, [scenario], TINY)

    assert not report.broken
    rows = by_place(report.measurements, "events/s")
    compared = {what for what, subject in rows if subject == BARE}
    assert compared
    for what in compared:
        ours, bare = rows[what, OURS], rows[what, BARE]
        assert ours.value > 0
        assert ours.ratio == pytest.approx(ours.value / bare.value)


@pytest.mark.long
def test_a_sweep_is_given_beside_its_listing_with_its_memory() -> None:
    report = suite.measure(
        command.SCENARIOS, ["sweep"], msgspec.structs.replace(TINY, sweep_keys=(300, 500), sweep_keys_remote=())
    )

    assert not report.broken
    assert {each.depth for each in report.measurements} == {300, 500}
    for depth in (300, 500):
        found = [each for each in report.measurements if each.depth == depth]
        rows = by_place(found, "keys/s")
        kinds = {"first sweep, baseline", "first sweep, all reported", "sweep, nothing changed"}
        assert set(rows) == {(what, subject) for what in kinds for subject in (OURS, BARE)}
        assert all(rows[what, OURS].ratio is not None for what in kinds)
        assert {what for what, _ in by_place(found, "MiB")} == kinds


@pytest.mark.long
def test_a_sweep_is_measured_on_a_real_object_store() -> None:
    report = suite.measure(
        command.SCENARIOS, ["sweep"], msgspec.structs.replace(TINY, sweep_keys=(), sweep_keys_remote=(50,))
    )

    if "not installed" in report.broken.get("sweep", ""):
        skip_or_fail(report.broken["sweep"])
    assert not report.broken
    assert {(each.store, each.depth) for each in report.measurements} == {("SeaweedFS", 50)}


def test_the_number_of_keys_is_an_option() -> None:
    options = command._parser().parse_args(["--size", "tiny", "--keys", "10", "20", "--keys-remote"])

    amounts = command._amounts(options)

    assert amounts.sweep_keys == (10, 20)
    assert amounts.sweep_keys_remote == ()
    assert amounts.messages == TINY.messages


def test_the_files_that_are_swept_are_as_many_as_was_said(swept_folder: str, tmp_path: Path) -> None:
    names = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.json")}

    assert names == {key_of(number) for number in range(KEYS)}
    assert sweeping._list(nothing, swept_folder, KEYS).seconds > 0


def test_a_listing_that_misses_keys_is_no_measurement(swept_folder: str) -> None:
    with pytest.raises(AssertionError, match=f"listed {KEYS} keys"):
        sweeping._list(nothing, swept_folder, KEYS + 1)


def test_a_sweep_that_finds_something_else_is_no_measurement(swept_folder: str, tmp_path: Path) -> None:
    sweep = partial(sweeping._sweep, nothing, swept_folder, KEYS)
    first = sweep("baseline", {"noted": KEYS})
    (tmp_path / key_of(7)).write_text("changed")

    assert first.requests > 0
    assert first.peak_bytes >= first.before_bytes
    with pytest.raises(AssertionError, match="'changed': 1"):
        sweep("baseline", {})
    assert sweep("baseline", {}).seconds > 0


def test_a_sweep_that_is_to_report_everything_fills_the_log(swept_folder: str) -> None:
    sweeping._sweep(nothing, swept_folder, KEYS, "reported", {"created": KEYS})

    with bucketmq.connect(swept_folder, probe=False) as bucket:
        assert bucket.existing_queue("events").stats().sent == KEYS


def test_the_sink_counts_requests_and_events(there: Sink) -> None:
    seconds = webhooks._post(nothing, there.url, 25, 10)

    assert seconds > 0
    assert there.taken() == Taken(1 + 3, 10 + 25)  # the first request is posted twice
    assert there.taken() == Taken(0, 0)


@pytest.mark.parametrize("batch", [1, 10])
def test_a_rule_delivers_each_event_once_to_the_sink(there: Sink, tmp_path: Path, batch: int) -> None:
    _, asked = webhooks._deliver(nothing, tmp_path.as_uri(), there.url, 50, batch)

    taken = there.taken()
    assert taken.events == 50 + webhooks.WARM_EVENTS
    assert taken.requests >= taken.events / batch
    assert asked > 0


def test_events_that_did_not_arrive_are_an_error(there: Sink) -> None:
    with pytest.raises(AssertionError, match="not 1 events"):
        webhooks._check(there, 1)


def test_the_server_persists_what_is_posted_and_leaves_out_other_buckets(tmp_path: Path) -> None:
    bodies = reception._bodies(60, 7)
    with served(tmp_path.as_uri(), BUCKET) as address:
        others = reception._post(nothing, address, reception._bodies(60, 7, "somewhere-else"), 4)
        answers = reception._post(nothing, address, bodies, 4)

    assert (others.accepted, others.outside) == (0, 60)
    assert (answers.accepted, answers.outside) == (60, 0)
    with bucketmq.connect(tmp_path.as_uri(), probe=False) as bucket:
        assert bucket.existing_queue("events").stats().sent == 60


def test_a_refused_notification_is_an_error(tmp_path: Path) -> None:
    with served(tmp_path.as_uri(), BUCKET) as address, pytest.raises(ExceptionGroup) as caught:
        asyncio.run(post_all(Address(address.url, "wrong"), "/events/tigris", [notification(0, 1)], 1))

    assert caught.group_contains(AssertionError, match="401")


def test_receiving_without_http_persists_everything_with_few_writes(tmp_path: Path) -> None:
    seconds, parsing, writes = reception._receive(nothing, tmp_path.as_uri(), 200, 1, 20)

    assert seconds > 0
    assert parsing > 0
    assert 0 < writes < 200


def test_a_notification_holds_the_events_it_is_made_of() -> None:
    parsed = parse("tigris", {}, notification(5, 20))

    assert not parsed.bad
    assert [(each.key, each.kind, each.version) for each in parsed.events] == [
        (each.key, each.kind, each.version) for each in events(5, 20)
    ]
    assert {each.bucket for each in parse("tigris", {}, notification(0, 3, bucket="other")).events} == {"other"}


def test_every_event_is_of_an_object_of_its_own() -> None:
    made = events(0, 1_000)

    assert len({each.key for each in made}) == len({each.id for each in made}) == 1_000
    assert event(3) == made[3]


def test_each_filter_and_its_question_by_hand_agree_on_every_event() -> None:
    told = events(0, 2_000)
    matches = dict.fromkeys(range(100), 0)
    for number in matches:
        text, question = matching.rule(number)
        chosen = filters.parse(text)
        for each in told:
            found = chosen.decide(each)
            assert found in (Decision.MATCH, Decision.NO_MATCH)
            assert (found is Decision.MATCH) == question(each), (text, each)
            matches[number] += found is Decision.MATCH
    assert sum(map(bool, matches.values())) > 50


def test_every_rule_passes_over_every_event(tmp_path: Path) -> None:
    seconds, requests = matching._pass_over(nothing, tmp_path.as_uri(), 300, 7)

    assert seconds > 0
    assert requests > 0


def test_the_most_memory_is_not_less_than_what_is_in_use() -> None:
    assert peak_bytes() >= resident_bytes() * 0.9  # the kernel counts both in steps


def test_the_bare_part_is_a_peer_too() -> None:
    rows = [
        measured("sweep", "unchanged", [50.0], "keys/s", subject=OURS, depth=10),
        measured("sweep", "unchanged", [100.0], "keys/s", subject=BARE, depth=10),
        measured("sweep", "unchanged", [70.0], "MiB", subject=OURS, depth=10),
    ]

    assert [each.ratio for each in with_ratios(rows)] == [0.5, None, None]


def test_a_hundred_rules_of_a_process_judge_the_log_once(tmp_path: Path) -> None:
    """They start at the same moment, and each would read and judge the log before its place for itself."""

    async def run() -> Notifier:
        notifiers: list[Notifier] = []
        async with aio.connect(tmp_path.as_uri(), probe=False) as bucket:
            for number in range(100):
                bucket.watch('key LIKE "elsewhere/%"', name=f"rule-{number}", start="beginning")(lambda change: None)
            for start in range(0, 600, 200):
                await bucket.report(events(start, 200))
            await bucket.run_watchers(stop_when_empty=True, started=notifiers.append)
        return notifiers[0]

    choices = [each.choice for each in asyncio.run(run()).runs()]

    assert [choice.passed_over for choice in choices] == [600] * 100
    assert len({id(window) for choice in choices for window in choice._windows.values()}) == 1
