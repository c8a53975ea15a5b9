"""The head of a table: what a commit makes of it, and which heads cannot be."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketmq.errors import Corrupt
from bucketmq.tables.head import (
    COMMITS_MAX,
    SLOTS,
    WRITERS_MAX,
    Head,
    Mark,
    Shape,
    Shard,
    after_commit,
    check,
    slot_of,
)


def shard(start: int, name: str) -> Shard:
    return Shard(start, f"data/{name}.parquet", 1, 10, "ab")


HEAD = Head(version=1, shape=Shape(key="id"), schema="", shards=(shard(0, "a"), shard(100, "b")))


def after(head: Head, *marks: Mark, **made: tuple[Shard, ...]) -> Head:
    instead = {f"data/{name}.parquet": shards for name, shards in made.items()}
    return after_commit(head, marks, instead, schema="", swept_at=0.0)


def test_slots_are_the_first_bits_of_a_known_hash() -> None:
    assert [slot_of("a"), slot_of("7"), slot_of(7)] == [51863, 30978, 30978]


@given(st.text() | st.integers())
def test_every_slot_has_a_shard(group: str | int) -> None:
    place = HEAD.place_of(slot_of(group))
    assert HEAD.shards[place].start <= slot_of(group) < HEAD.stop_of(place) <= SLOTS


def test_a_commit_replaces_the_shards_it_touched_and_no_others() -> None:
    made = after(HEAD, Mark("c1"), b=(shard(100, "c"), shard(300, "d")))
    assert [each.file for each in made.shards] == ["data/a.parquet", "data/c.parquet", "data/d.parquet"]
    assert (made.version, made.commits) == (2, ("c1",))
    assert made.has(Mark("c1")) and not made.has(Mark("c2"))


def test_new_shards_stay_inside_the_one_they_replace() -> None:
    with pytest.raises(AssertionError):
        after(HEAD, Mark("c1"), a=(shard(0, "c"), shard(100, "d")))


def test_memory_of_commits_is_bounded_and_the_latest_stay() -> None:
    head = HEAD
    for n in range(2 * COMMITS_MAX):
        head = after(head, Mark(f"c{n}"), Mark(f"w{n}", 0))
    assert (len(head.commits), len(head.writers)) == (COMMITS_MAX, WRITERS_MAX)
    assert head.has(Mark(f"c{2 * COMMITS_MAX - 1}")) and not head.has(Mark("c0"))


def test_a_numbered_writer_is_past_every_number_up_to_its_last() -> None:
    head = after(HEAD, Mark("w", 5), Mark("w", 3))
    assert [head.has(Mark("w", n)) for n in (4, 5, 6)] == [True, True, False]
    assert not head.has(Mark("w"))


@pytest.mark.parametrize(
    "change",
    [
        {"shards": ()},
        {"shards": (shard(1, "a"),)},
        {"shards": (shard(0, "a"), shard(0, "b"))},
        {"shards": (shard(0, "a"), shard(SLOTS, "b"))},
        {"shards": (shard(0, "a"), shard(9, "a"))},
        {"shards": (Shard(0, "../secret", 1, 1, ""),)},
        {"shards": (Shard(0, "data/../../x", 1, 1, ""),)},
        {"shards": (Shard(0, "data/a", -1, 1, ""),)},
        {"version": 0},
    ],
)
def test_a_head_that_cannot_be_is_corrupt(change: dict[str, Any]) -> None:
    with pytest.raises(Corrupt):
        check(msgspec.structs.replace(HEAD, **change))
