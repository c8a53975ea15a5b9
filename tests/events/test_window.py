"""Duplicates collapse on the log itself: what is an echo, what never is, and that nothing is lost by it."""

from __future__ import annotations

import tracemalloc
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketmq.events.event import ObjectEvent, Source, event_id, time_text
from bucketmq.events.window import NEAR_SECONDS, Window

T = 1_800_000_000.0
APART = NEAR_SECONDS * 2 + 1


def event(source: Source, at: float = 0.0, *, key: str = "a", kind: Any = "created", **fields: Any) -> ObjectEvent:
    """A telling; its id is made of all of it."""
    made = ObjectEvent(id="", kind=kind, key=key, at=time_text(T + at), source=source, **{"version": "v1", **fields})
    return msgspec.structs.replace(made, id=event_id(source, "", key, repr(made)))


def fresh(*events: ObjectEvent) -> list[bool]:
    window = Window(0)
    return [not window.judge(offset, each).duplicate for offset, each in enumerate(events)]


def test_the_same_notification_again_is_a_duplicate_whenever_it_comes() -> None:
    one = event("s3")
    assert fresh(one, one, event("s3", key="b"), one) == [True, False, True, False]


def test_two_writes_of_the_same_bytes_are_two_changes() -> None:
    assert fresh(event("s3", 0), event("s3", 0.001), event("s3", APART)) == [True, True, True]


@pytest.mark.parametrize("kind", ["created", "deleted"])
def test_two_writes_far_apart_are_two_changes_whoever_tells_them(kind: Any) -> None:
    tellings = [event(source, at, kind=kind) for at in (0, APART, APART * 2) for source in ("s3", "writer")]
    assert fresh(*tellings) == [True, False] * 3


def test_an_exact_version_told_by_another_source_is_an_echo_at_any_time() -> None:
    assert fresh(event("writer", exact=True), event("gcs", 10_000, exact=True)) == [True, False]
    assert fresh(event("writer", exact=True), event("gcs", exact=True, version="v2")) == [True, True]


def test_a_state_that_a_sweep_saw_is_an_echo_of_what_was_told_since_it_was_stored() -> None:
    assert fresh(event("s3", 0.4), event("sweep", 0)) == [True, False]
    assert fresh(event("s3", 0), event("sweep", 0.4)) == [True, True]  # stored after what was told: another write


def test_what_is_told_soon_after_the_state_that_a_sweep_saw_is_an_echo() -> None:
    assert fresh(event("sweep", 0), event("s3", NEAR_SECONDS)) == [True, False]
    assert fresh(event("sweep", 0), event("s3", NEAR_SECONDS + 0.1)) == [True, True]
    assert fresh(event("sweep", NEAR_SECONDS + 0.1), event("s3", 0)) == [True, True]


def test_two_sources_that_tell_within_moments_are_one_change_each_time() -> None:
    assert fresh(event("s3", 0), event("writer", NEAR_SECONDS)) == [True, False]
    assert fresh(event("s3", 0), event("writer", NEAR_SECONDS + 0.1)) == [True, True]
    # the second telling by each of them is about a second write
    assert fresh(event("s3", 0), event("writer", 0.1), event("s3", 0.5), event("writer", 0.6)) == [True, False] * 2


def test_deletions_told_by_several_are_one() -> None:
    assert fresh(event("writer", 0, kind="deleted"), event("s3", 1, kind="deleted", version=None)) == [True, False]
    assert fresh(event("writer", 0, kind="deleted"), event("s3", APART, kind="deleted")) == [True, True]


def test_a_deletion_that_a_sweep_found_is_an_echo_of_one_told_since_the_state_was_stored() -> None:
    gone = event("sweep", 50, kind="deleted", seen_at=time_text(T + 10))
    assert fresh(event("writer", 20, kind="deleted"), gone) == [True, False]
    assert fresh(event("writer", 5, kind="deleted"), gone) == [True, True]
    assert fresh(gone, event("writer", 20, kind="deleted")) == [True, False]
    assert fresh(gone, event("writer", 60, kind="deleted")) == [True, True]


def test_an_object_deleted_and_made_again_is_told_each_time() -> None:
    steps = [
        event("writer", 0),
        event("writer", 10, kind="deleted"),
        event("writer", 20),
        event("writer", 30, kind="deleted"),
    ]
    assert fresh(*steps) == [True] * 4


def test_a_sweep_that_sees_an_old_deletion_late_does_not_swallow_the_next_one() -> None:
    """Seed 2139 of the simulator: deleted at 16, made again at 25, deleted at 27, and a sweep of before told at 28."""
    late = event("sweep", 28, kind="deleted", version=None, seen_at=time_text(T))
    assert fresh(
        event("s3", 16, kind="deleted", version=None),
        late,
        event("s3", 25, version="v2"),
        event("s3", 27, kind="deleted", version=None),
    ) == [True, False, True, True]


def test_a_move_whose_target_was_told_of_is_an_echo_of_that() -> None:
    window = Window(0)
    created = event("s3", exact=True)
    window.judge(0, created)
    assert window.judge(1, event("writer", kind="moved", exact=True)).of == (created,)


def test_an_echo_says_of_what() -> None:
    window = Window(0)
    first = event("writer", exact=True)
    window.judge(0, first)
    assert window.judge(1, event("gcs", exact=True)).of == (first,)
    assert window.verdict(1).duplicate
    assert not window.verdict(0).duplicate


def test_what_has_no_version_or_is_no_change_of_content_is_never_an_echo() -> None:
    assert fresh(event("s3", version=None), event("writer", version=None)) == [True, True]
    assert fresh(event("s3", kind="other"), event("writer", kind="other")) == [True, True]


def test_an_older_event_after_a_newer_one_is_stale_and_known_to_be_superseded() -> None:
    window = Window(0)
    new, old = event("s3", 10, version="v2"), event("s3", 0)
    assert not window.judge(0, new).stale
    assert window.judge(1, old).stale
    assert window.superseded(old)
    assert not window.superseded(new)
    assert not window.superseded(event("s3", 0, key="b"))


# Properties

SOURCES: list[Source] = ["s3", "writer", "gcs"]


class Write(msgspec.Struct, frozen=True):
    """Something that really happened, and who told of it."""

    key: str
    kind: str
    version: str
    at: float
    exact: bool
    tellings: tuple[ObjectEvent, ...]


@st.composite
def histories(draw: st.DrawFn, *, nothing_lost: bool = False) -> list[Write]:
    """Writes of few keys and few contents, further apart than anybody is slow, each told by somebody; with
    `nothing_lost`, each by the same sources."""
    writes = []
    everybody = draw(st.lists(st.sampled_from(SOURCES), min_size=1, max_size=3, unique=True))
    exact = draw(st.booleans())
    for number in range(draw(st.integers(1, 8))):
        key, kind = draw(st.sampled_from("ab")), draw(st.sampled_from(["created", "changed", "deleted"]))
        version = f"w{number}" if exact else draw(st.sampled_from(["x", "y"]))
        at = number * APART
        some = st.lists(st.sampled_from(SOURCES), min_size=1, max_size=3, unique=True)
        tellers = draw(st.permutations(everybody) if nothing_lost else some)
        late = draw(st.lists(st.floats(0, NEAR_SECONDS / 2), min_size=3, max_size=3))
        tellings = tuple(
            event(source, at + delay, key=key, kind=kind, version=version, exact=exact)
            for source, delay in zip(tellers, late, strict=False)
        )
        writes.append(Write(key, kind, version, at, exact, tellings))
    return writes


@st.composite
def logs(draw: st.DrawFn) -> tuple[list[Write], list[ObjectEvent]]:
    """A history, and a log of it: in any order, some notifications sent twice."""
    writes = draw(histories())
    tellings = [each for write in writes for each in write.tellings]
    again = draw(st.lists(st.sampled_from(tellings), max_size=4))
    return writes, draw(st.permutations(tellings + again))


def seen_fresh(log: list[ObjectEvent], start: int = 0) -> set[str]:
    window = Window(start)
    return {each.id for offset, each in enumerate(log[start:], start) if not window.judge(offset, each).duplicate}


@given(logs())
def test_every_write_is_told_at_least_once_whatever_the_order(drawn: tuple[list[Write], list[ObjectEvent]]) -> None:
    writes, log = drawn
    found = seen_fresh(log)
    for write in writes:
        assert any(each.id in found for each in write.tellings)


@given(logs(), st.data())
def test_a_reader_that_begins_in_the_middle_loses_nothing(
    drawn: tuple[list[Write], list[ObjectEvent]], data: st.DataObject
) -> None:
    writes, log = drawn
    start = data.draw(st.integers(0, len(log)))
    found, rest = seen_fresh(log, start), {each.id for each in log[start:]}
    for write in writes:
        if all(each.id in rest for each in write.tellings):
            assert any(each.id in found for each in write.tellings)


@given(histories(nothing_lost=True))
def test_in_the_order_in_which_it_happened_every_write_is_told_exactly_once(writes: list[Write]) -> None:
    log = [each for write in writes for each in write.tellings]
    found = seen_fresh(log)
    for write in writes:
        assert sum(each.id in found for each in write.tellings) == 1


@given(histories())
def test_a_sweep_at_the_end_tells_nothing_that_was_told(writes: list[Write]) -> None:
    log = [each for write in writes for each in write.tellings]
    last = {write.key: write for write in writes}
    for write in last.values():
        if write.kind == "deleted":
            fields: dict[str, Any] = {"kind": "deleted", "seen_at": time_text(T + write.at - 1)}
            log.append(event("sweep", 10_000, key=write.key, version=write.version, **fields))
        else:
            log.append(event("sweep", write.at, key=write.key, version=write.version, exact=write.exact))
    assert not seen_fresh(log) & {each.id for each in log if each.source == "sweep"}


@given(st.lists(st.tuples(st.sampled_from([*SOURCES, "sweep"]), st.floats(0, 3), st.booleans()), unique_by=lambda t: t))
def test_different_keys_never_collapse(tellings: list[tuple[Any, float, bool]]) -> None:
    log = [event(source, at, key=f"k{n}", exact=exact) for n, (source, at, exact) in enumerate(tellings)]
    assert fresh(*log) == [True] * len(log)


@given(logs(), st.data())
def test_verdicts_do_not_depend_on_what_lies_between_or_on_when_they_are_asked_for(
    drawn: tuple[list[Write], list[ObjectEvent]], data: st.DataObject
) -> None:
    """A reader judges segment by segment, with other messages in between; the verdicts are the log's alone."""
    _, log = drawn
    plain = Window(0)
    expected = [plain.judge(offset, each) for offset, each in enumerate(log)]
    gaps = data.draw(st.lists(st.integers(0, 3), min_size=len(log), max_size=len(log)))
    spread = Window(0)
    places = []
    for gap, each in zip(gaps, log, strict=True):
        for _ in range(gap):
            spread.skip(spread.high)
        places.append(spread.high)
        spread.judge(spread.high, each)
    assert [spread.verdict(place) for place in places] == expected
    assert spread.verdicts(0, spread.high) == {
        place: verdict for place, verdict in zip(places, expected, strict=True) if verdict != Window(0).verdict(0)
    }


@settings(max_examples=25)
@given(st.integers(1, 20), st.lists(st.sampled_from("abcdef"), min_size=30, max_size=120))
def test_a_short_memory_delivers_again_and_never_less(events_max: int, keys: list[str]) -> None:
    log = [event("s3", key=key) for key in keys]
    short, long = Window(0, events_max=events_max), Window(0)
    for offset, each in enumerate(log):
        forgetful, perfect = short.judge(offset, each), long.judge(offset, each)
        assert forgetful.duplicate <= perfect.duplicate


def test_memory_is_bounded_however_long_the_log() -> None:
    def used(count: int) -> int:
        tracemalloc.start()
        try:
            window = Window(0, events_max=200)
            for offset in range(count):
                source: Source = "s3" if offset % 3 else "writer"
                window.judge(offset, event(source, offset / 7, key=f"k{offset // 2}", version=str(offset // 4)))
            return tracemalloc.get_traced_memory()[0]
        finally:
            tracemalloc.stop()

    assert used(6_000) < used(1_500) * 1.3 + 50_000


def test_a_window_knows_what_it_was_asked_about_last_and_forgets_the_oldest() -> None:
    window = Window(0, events_max=10)
    for offset in range(100):
        window.judge(offset, event("s3"))
    assert (window.low, window.high) == (90, 100)
    assert window.verdict(99).duplicate
