"""The sweep: what it finds, in ranges, resumed, by several at once, with each request failing or the last of a life."""

from __future__ import annotations

import tracemalloc
from pathlib import Path
from typing import Any

import msgspec
import pytest

import bucketmq
from bucketmq.events.inventory import Manifest
from procedures.objects.sweeping import (
    all_new,
    change,
    check_bad_answer,
    check_inventory,
    check_rival,
    chunk_of,
    fill,
    has_begun,
    sweep,
    told_by_sweep,
)
from procedures.objects.world import DEATHS, FAULTS, STORES, Killed, World, log_of, told


def places(kind: str) -> range:
    """The requests at which something happens; fewer on a folder, where each costs a disk's time."""
    return range(0, 200, 11 if kind == "folder" else 1)


def test_the_first_sweep_tells_what_is_there_and_the_next_only_what_changed(world: World) -> None:
    bucket = world.connect()
    fill(world)
    first = sweep(bucket)
    assert (first.created, first.changed, first.deleted, first.keys) == (10, 0, 0, 10)
    assert told_by_sweep(bucket) == all_new()
    again = sweep(bucket)
    assert (again.created, again.changed, again.deleted, again.keys) == (0, 0, 0, 10)
    expected = change(world)
    later = sweep(bucket)
    assert (later.created, later.changed, later.deleted) == (2, 2, 2)
    assert [each for each in told_by_sweep(bucket) if each not in all_new()] == expected
    assert sweep(bucket).ranges > 1


def test_a_baseline_is_only_noted(world: World) -> None:
    bucket = world.connect()
    fill(world)
    first = sweep(bucket, baseline=True)
    assert (first.noted, first.created) == (10, 0)
    assert list(log_of(bucket)) == []
    expected = change(world)
    sweep(bucket)
    assert told_by_sweep(bucket) == expected


def test_an_empty_bucket_has_been_swept_too(world: World) -> None:
    bucket = world.connect()
    assert sweep(bucket, baseline=True).keys == 0
    fill(world, 4)
    assert sweep(bucket, baseline=True).created == 4  # the baseline was the empty bucket


@pytest.mark.parametrize("range_keys", [1, 2, 3, 7, 1000])
def test_ranges_of_any_size_find_the_same(world: World, range_keys: int) -> None:
    bucket = world.connect()
    fill(world)
    sweep(bucket, range_keys=3, baseline=True)
    expected = change(world)
    sweep(bucket, range_keys=range_keys)
    assert told_by_sweep(bucket) == expected
    assert sweep(bucket, range_keys=2).created == 0


def test_ranges_of_no_size_are_refused(bucket: Any) -> None:
    with pytest.raises(bucketmq.Invalid, match="range_keys"):
        sweep(bucket, range_keys=0)


def test_our_own_keys_are_passed_over_and_those_beside_them_are_not(world: World) -> None:
    bucket = world.connect()
    bucket.queue("jobs").send("x")
    bucket.rules.add("r", to="queue:out")
    for key in ("a", "inventories/x", "pro/x", "queued", "rule/x", "rulez", "zz", ".bucketmqs/x"):
        world.write(key, b"x")
    for range_keys in (1, 2, 100):
        sweep(bucket, name=f"by{range_keys}", range_keys=range_keys)
        assert sorted({key for key, _ in told_by_sweep(bucket)}) == sorted(world.objects())


def test_a_bucket_opened_under_a_prefix_sees_only_its_own(tmp_path: Path) -> None:
    for kind in STORES:
        for prefix in ("", "deep/er"):
            world = World(kind, tmp_path / f"{kind}{len(prefix)}", prefix=prefix)
            world.store.create("deep/other/x", b"x")
            bucket = world.connect()
            world.write("k/1", b"x")
            sweep(bucket)
            keys = [key for key, _ in told_by_sweep(bucket)]
            assert keys == (["k/1"] if prefix else ["deep/other/x", "k/1"])
            world.close()


def test_a_prefix_is_swept_by_itself(world: World) -> None:
    bucket = world.connect()
    fill(world)
    world.write("other/1", b"x")
    world.write("kk", b"x")
    sweep(bucket, prefix="k/")
    assert {key for key, _ in told_by_sweep(bucket)} == {f"k/{n:02}" for n in range(10)}
    assert bucket.sweep("other/").created == 1
    with pytest.raises(bucketmq.Invalid, match="another name"):
        bucket.sweep("other/", name="k")
    for bad in ("k", "/k/", "queues/", "rules/", "inventory/"):
        with pytest.raises(bucketmq.Invalid):
            bucket.sweep(bad)


def test_what_a_writer_told_is_not_told_again(world: World) -> None:
    bucket = world.connect()
    bucket.put("a", "1")
    bucket.put("b", "1")
    bucket.delete("b")
    bucket.move("a", "c")
    before = [event.id for event in told(bucket)]
    sweep(bucket)
    assert [event.id for event in told(bucket)] == before
    bucket.put("c", "2")
    bucket.delete("c")
    before = [event.id for event in told(bucket)]
    sweep(bucket)
    assert [event.id for event in told(bucket)] == before


def test_progress_is_told_after_each_range(bucket: Any, memory: World) -> None:
    fill(memory)
    seen: list[int] = []
    sweep(bucket, progress=lambda done: seen.append(done.keys))
    assert seen == [3, 6, 9, 10]


def test_a_sweeper_that_dies_anywhere_is_followed_by_one_that_goes_on(tmp_path: Path) -> None:
    for kind in ("copying", "hashing", "folder"):
        resumed = False
        for at in places(kind):
            over = True
            for death in DEATHS:
                world = World(kind, tmp_path / f"{kind}{at}{death}")
                fill(world)
                sweep(world.connect(), baseline=True)
                expected = change(world)
                try:
                    sweep(world.connect(at=at, fault=death))
                except Killed:
                    over = False
                bucket = world.connect()
                done = sweep(bucket)
                resumed = resumed or done.resumed
                assert told_by_sweep(bucket) == expected, (kind, at, death)
                sweep(bucket)
                assert told_by_sweep(bucket) == expected, (kind, at, death)
                check_inventory(world)
                world.close()
            if over:
                break
        assert at > 15
        assert resumed


def test_a_sweep_that_goes_on_also_sees_what_changed_behind_the_one_that_died(tmp_path: Path) -> None:
    world = World("copying", tmp_path)
    fill(world)
    sweep(world.connect(), baseline=True)
    change(world)
    at = 0
    while True:  # until one dies with a part of its way behind it
        with pytest.raises(Killed):
            sweep(world.connect(at=at, fault=DEATHS[-1]))
        manifest = msgspec.json.decode(world.everything()["inventory/sweeps/all/manifest.json"], type=Manifest)
        if manifest.position:
            break
        at += 1
    world.advance(5)
    world.write("k/00", b"behind")
    bucket = world.connect()
    done = sweep(bucket)
    assert done.resumed
    assert ("k/00", "changed") in told_by_sweep(bucket)
    check_inventory(world)
    world.close()


@pytest.mark.parametrize("kind", ["copying", "hashing", "folder"])
@pytest.mark.parametrize("baseline", [True, False])
def test_a_first_sweep_that_dies_anywhere_goes_on_as_it_began(kind: str, tmp_path: Path, *, baseline: bool) -> None:
    for at in places(kind):
        world = World(kind, tmp_path / str(at))
        fill(world, 7)
        try:
            sweep(world.connect(at=at, fault="dies after"), baseline=baseline)
            over = True
        except Killed:
            over = False
        bucket = world.connect()
        sweep(bucket, baseline=baseline if not has_begun(world) else not baseline)
        expected = [] if baseline else all_new(7)
        assert told_by_sweep(bucket) == expected, at
        world.write("k/99", b"x")
        sweep(bucket)
        assert told_by_sweep(bucket) == [*expected, ("k/99", "created")]
        world.close()
        if over:
            return
    raise AssertionError("it never got through")


@pytest.mark.parametrize("kind", ["copying", "hashing", "folder"])
def test_one_bad_answer_anywhere_changes_nothing(kind: str, tmp_path: Path) -> None:
    for at in places(kind):
        hit = False
        for fault in FAULTS:
            world = World(kind, tmp_path / f"{at}{fault}")
            hit = check_bad_answer(world, sweep, at=at, fault=fault) or hit
            world.close()
        if not hit:
            assert at > 10
            return


def test_two_sweepers_one_within_the_other_tell_everything_once(tmp_path: Path) -> None:
    for kind in ("copying", "hashing", "folder"):
        for at in places(kind):
            world = World(kind, tmp_path / f"{kind}{at}")
            met = check_rival(world, sweep, sweep, at=at)
            world.close()
            if not met:
                break
        assert at > 10


def test_two_sweepers_and_a_manifest_write_without_an_answer(tmp_path: Path) -> None:
    """The write landed, and before its writer reads back the other has replaced what it named."""
    for at in range(60):
        world = World("copying")
        fill(world)
        sweep(world.connect(), baseline=True)
        expected = change(world)
        first, second = world.connect(at=at, fault="landed"), world.connect()
        done: list[int] = []

        def meddle(number: int, request: Any) -> None:
            if number == at + 1 and not done:  # noqa: B023
                done.append(number)  # noqa: B023
                world.write("k/00", b"while they sweep")  # noqa: B023
                sweep(second)  # noqa: B023

        first.hands.meddle = meddle
        try:
            sweep(first)
        except bucketmq.Unavailable:
            pass
        sweep(second)
        expected = sorted([*expected, *([("k/00", "changed")] if done else [])])
        assert told_by_sweep(second) == expected, at
        check_inventory(world)
        world.close()
        if not done:
            return


def test_an_inventory_with_a_part_missing_says_so(memory: World) -> None:
    bucket = memory.connect()
    fill(memory)
    sweep(bucket)
    memory.delete(chunk_of(memory))
    with pytest.raises(bucketmq.Corrupt, match="start over"):
        sweep(bucket)


def test_an_inventory_that_nobody_can_read_says_so(memory: World) -> None:
    bucket = memory.connect()
    fill(memory)
    sweep(bucket)
    memory.write(chunk_of(memory), b"[broken\n")
    with pytest.raises(bucketmq.Corrupt, match="delete the sweep's folder"):
        sweep(bucket)


def test_memory_is_bounded_by_a_range_however_many_keys_there_are(memory: World) -> None:
    bucket = memory.connect()

    def peak(keys: int) -> int:
        for n in range(keys):
            memory.store.create(f"app/k/{n:06}", b"")
        tracemalloc.start()
        try:
            sweep(bucket, range_keys=500, baseline=True, name=f"n{keys}")
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    few, many = peak(5_000), peak(20_000)
    # The inventory itself lies in the memory store; a chunk of it is about 30 bytes a key.
    assert many - 15_000 * 60 < few + 500_000
    assert sweep(bucket, range_keys=500, name="n20000").keys == 20_000


def test_the_asyncio_facade_sweeps_too(memory: World) -> None:
    fill(memory)
    bucket = memory.connect_async()
    assert bucket.sweep("k/", baseline=True).noted == 10
    memory.write("k/new", b"x")
    assert bucket.sweep("k/").created == 1


def test_a_first_sweep_that_kept_its_place_in_the_manifest_goes_on_with_seeds(memory: World) -> None:
    """As another program may have left it, by the format: chunks up to a key, and nothing looked at behind it."""
    bucket = memory.connect()
    fill(memory)
    sweep(bucket, baseline=True)
    folder = "inventory/sweeps/all/"
    manifest = msgspec.json.decode(memory.everything()[f"{folder}manifest.json"], type=Manifest)
    first = manifest.chunks[0]
    memory.write(f"{folder}chunks/rest.ndjson", b"\n")
    left = Manifest(
        chunks=(first, msgspec.structs.replace(first, name="rest", count=0, upto="")),
        baseline=True,
        first_to=first.upto,
        position=first.upto,
        revision=9,
    )
    memory.write(f"{folder}manifest.json", msgspec.json.encode(left))
    memory.advance(5)
    memory.write("k/00", b"changed before the first sweep was over")
    swept = sweep(bucket)
    assert (swept.noted, swept.resumed) == (10 - first.count, True)
    assert told_by_sweep(bucket) == [("k/00", "changed")]
    check_inventory(memory)
