"""Which of two events of a key is newer, as far as anybody can know."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketmq.events.event import KINDS, Kind, ObjectEvent, Order, Source, time_text
from bucketmq.events.order import newer

EARLY, LATE = "2026-03-04T10:30:00.000000Z", "2026-03-04T10:30:01.000000Z"


def event(
    id_: str = "evt_1", *, at: str = EARLY, order: Order | None = None, kind: Kind = "created", source: Source = "s3"
) -> ObjectEvent:
    return ObjectEvent(id=id_, kind=kind, key="k", at=at, source=source, order=order)


def by(sort: str, a: str, b: str) -> bool | None:
    """The answer by marks, with times that say the opposite."""
    orders = [msgspec.convert({"by": sort, "mark": mark}, Order) for mark in (a, b)]
    return newer(event("evt_a", at=EARLY, order=orders[0]), event("evt_b", at=LATE, order=orders[1]))


@pytest.mark.parametrize(
    ("a", "b", "answer"),
    [
        ("0055AED6DCD90281E6", "0055AED6DCD90281E5", True),
        ("0055aed6dcd90281e6", "0055AED6DCD90281E5", True),
        ("0055AED6DCD90282", "0055AED6DCD90281E5", True),  # shorter, and greater once filled up
        ("0055AED6DCD90281", "0055AED6DCD90281E5", False),
        ("0055AED6DCD90281", "0055aed6dcd9028100", None),
    ],
)
def test_sequencers_are_filled_up_at_the_right(a: str, b: str, answer: bool | None) -> None:
    assert by("sequencer", a, b) is answer


@pytest.mark.parametrize(
    ("a", "b", "answer"),
    [("10", "9", True), ("9", "10", False), ("10.2", "10.1", True), ("10.10", "10.9", True), ("10.1", "9.7", True)],
)
def test_generations_are_numbers(a: str, b: str, answer: bool) -> None:
    assert by("generation", a, b) is answer


def test_a_generations_end_is_newer_than_all_else_about_it() -> None:
    for mark in ("10", "10.1", "10.7"):
        ended = event("evt_a", order=Order("generation", "10.1"), kind="deleted")
        lived = event("evt_b", order=Order("generation", mark), at=LATE)
        assert (newer(ended, lived), newer(lived, ended)) == (True, False)


def test_a_generation_without_metageneration_says_nothing_about_its_metadata() -> None:
    assert by("generation", "10", "10.2") is None
    assert by("generation", "10.2", "10.2") is None


def test_texts_compare_as_texts() -> None:
    assert by("text", "B", "A") is True
    assert by("text", "AA", "B") is False
    assert by("text", "A", "A") is None


def test_without_marks_of_one_sort_the_time_decides() -> None:
    marked = event("evt_a", at=LATE, order=Order("sequencer", "00"))
    for other in (event("evt_b"), event("evt_b", order=Order("text", "ff"))):
        assert (newer(marked, other), newer(other, marked)) == (True, False)
    assert newer(event("evt_a"), event("evt_b")) is None
    odd = event("evt_b", order=Order("generation", "ten"))
    assert newer(event("evt_a", at=LATE, order=Order("generation", "9")), odd) is True


@pytest.mark.parametrize("source", ["sweep", "writer", "gcs"])
def test_times_of_two_sources_are_certain_only_when_they_are_seconds_apart(source: Source) -> None:
    def at(second: int) -> ObjectEvent:
        return event("evt_a", at=f"2026-03-04T10:30:{second:02}.000000Z")

    other = event("evt_b", at="2026-03-04T10:30:10.000000Z", source=source)
    assert [newer(at(second), other) for second in (7, 8, 9, 11, 12, 13)] == [False, None, None, None, None, True]


def test_one_event_told_twice_and_events_of_two_keys_have_no_order() -> None:
    assert newer(event(at=LATE), event()) is None
    assert newer(event("evt_a", at=LATE), msgspec.structs.replace(event("evt_b"), key="other")) is None


def test_a_deletion_that_a_sweep_found_happened_between_two_looks() -> None:
    def at(second: int) -> str:
        return f"2026-03-04T10:30:{second:02}.000000Z"

    found = ObjectEvent(id="evt_s", kind="deleted", key="k", at=at(30), seen_at=at(10), source="sweep")
    answers = [newer(found, event("evt_b", at=at(second))) for second in (5, 10, 20, 30, 35)]
    assert answers == [True, None, None, None, False]


orders = st.none() | st.builds(
    Order,
    by=st.sampled_from(["sequencer", "generation", "text"]),
    mark=st.sampled_from(["", "1", "10", "0A", "0a00", "2.1", "2.2", "x"]),
)
few_times = st.integers(0, 3).map(time_text)
any_events = st.builds(
    ObjectEvent,
    id=st.uuids().map(str),
    kind=st.sampled_from(KINDS),
    key=st.just("k"),
    at=few_times,
    seen_at=st.none() | few_times,
    source=st.sampled_from(["s3", "sweep", "seaweedfs", "gcs"]),
    order=orders,
)


@given(any_events, any_events)
def test_the_answer_is_the_opposite_the_other_way_round(a: ObjectEvent, b: ObjectEvent) -> None:
    there, back = newer(a, b), newer(b, a)
    assert (there is None) == (back is None)
    assert there is None or there is not back
