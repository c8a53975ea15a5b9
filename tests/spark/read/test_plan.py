"""Planning, which is pure: every row is in one partition, and limits are kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketmq.errors import Invalid
from bucketmq.spark.read.offsets import Position, from_json, share_rows
from bucketmq.spark.read.plan import Gap, Piece, between, end_by_bytes, gaps, pack, partition_count

MIB = 1 << 20


@st.composite
def shard_pieces(draw: st.DrawFn) -> list[Piece]:
    """Pieces of a few shards, each without gaps."""
    pieces = []
    for shard in range(draw(st.integers(1, 3))):
        start = draw(st.integers(0, 5))
        for count, size in draw(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 10_000)), max_size=6)):
            pieces.append(Piece(shard, start, start, start + count, size))
            start += count
    return pieces


def rows(pieces: list[Piece]) -> list[tuple[int, int]]:
    return [(piece.shard, offset) for piece in pieces for offset in range(piece.start, piece.end)]


@given(shard_pieces(), st.integers(1, 9))
def test_packing_keeps_every_row_once_and_in_order(pieces: list[Piece], partitions: int) -> None:
    packed = pack(pieces, partitions)
    assert rows([piece for group in packed for piece in group]) == rows(pieces)
    assert len(packed) == min(partitions, len(rows(pieces)))
    assert all(group for group in packed)


@given(shard_pieces(), st.integers(1, 9))
def test_a_cut_piece_still_names_the_segment_it_lies_in(pieces: list[Piece], partitions: int) -> None:
    for group in pack(pieces, partitions):
        for piece in group:
            (whole,) = [one for one in pieces if one.shard == piece.shard and one.start <= piece.start < one.end]
            assert whole.base == piece.base
            assert piece.end <= whole.end


def test_partitions_are_of_about_the_same_size() -> None:
    pieces = [Piece(0, n * 10, n * 10, n * 10 + 10, 1000) for n in range(50)] + [Piece(1, 0, 0, 1000, 50_000)]
    sizes = [sum(piece.size_bytes for piece in group) for group in pack(pieces, 4)]
    assert len(sizes) == 4
    assert max(sizes) < 1.2 * min(sizes)


@pytest.mark.parametrize(
    ("size", "cores", "wanted", "count"),
    [
        (0, 2, None, 1),
        (100, 2, None, 1),
        (3 * MIB, 2, None, 3),
        (100 * MIB, 2, None, 4),
        (1024 * MIB, 2, None, 4),
        (8 * 1024 * MIB, 2, None, 8),
        (100, 2, 5, 5),
        (100 * MIB, 2, 1, 4),
    ],
)
def test_there_are_about_two_partitions_for_each_core(size: int, cores: int, wanted: int | None, count: int) -> None:
    assert partition_count([Piece(0, 0, 0, 10, size)], cores, wanted=wanted) == count


@pytest.mark.parametrize(("rows", "count"), [(1, 1), (31, 1), (32, 2), (50, 3), (1000, 4)])
def test_rows_that_take_long_are_worth_a_partition_by_their_number(rows: int, count: int) -> None:
    assert partition_count([Piece(0, 0, 0, rows, 100)], 2, worth_rows=16) == count


@given(st.dictionaries(st.integers(0, 8), st.integers(1, 1000), min_size=1), st.integers(1, 2000))
def test_a_limit_of_rows_is_exact(available: dict[int, int], rows_max: int) -> None:
    shares = share_rows(available, rows_max)
    assert sum(shares.values()) == min(rows_max, sum(available.values()))
    assert all(0 <= shares[shard] <= available[shard] for shard in available)


@given(shard_pieces(), st.integers(0, 20_000))
def test_a_limit_of_bytes_is_kept_but_for_one_row(pieces: list[Piece], budget: int) -> None:
    first = [piece for piece in pieces if piece.shard == 0]
    end = end_by_bytes(first, budget)
    if not first:
        assert end is None
        return
    assert end is not None
    assert first[0].start < end <= first[-1].end
    taken = between(first, first[0].start, end)
    assert sum(piece.size_bytes for piece in taken) <= budget or end == first[0].start + 1


def test_gaps_are_what_no_piece_holds() -> None:
    pieces = [Piece(0, 10, 10, 20, 1), Piece(0, 25, 25, 30, 1)]
    assert gaps(0, pieces, 5, 35) == [Gap(0, 5, 10), Gap(0, 20, 25), Gap(0, 30, 35)]
    assert gaps(0, pieces, 12, 20) == []
    assert gaps(0, [], 3, 4) == [Gap(0, 3, 4)]


shards = st.dictionaries(st.integers(0, 1023), st.integers(0, 10**15))


@given(shards, shards)
def test_a_position_survives_the_checkpoint(offsets: dict[int, int], bases: dict[int, int]) -> None:
    position = Position("jobs", offsets, bases)
    assert from_json(position.to_json(), "jobs") == position


def test_equal_positions_are_equal_texts() -> None:
    one, other = Position("jobs", {10: 1, 9: 2}), Position("jobs", {9: 2, 10: 1})
    assert list(one.to_json()["shards"]) == list(other.to_json()["shards"]) == ["9", "10"]


@pytest.mark.parametrize("found", [{}, {"queue": "jobs"}, [1], {"queue": "jobs", "shards": {"x": 1}}])
def test_an_offset_of_another_source_is_refused(found: object) -> None:
    with pytest.raises(Invalid, match="another checkpoint"):
        from_json(found, "jobs")


def test_a_checkpoint_of_another_queue_is_refused() -> None:
    with pytest.raises(Invalid, match="of queue 'orders', this query reads 'jobs'"):
        from_json({"queue": "orders", "shards": {}}, "jobs")
