"""A sweep in shares: what one process finds, many find together, whoever dies and whoever else sweeps."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import bucketmq
from bucketmq.procedures.objects.sweep import Swept, begin, compare, finish, take
from bucketmq.procedures.objects.sweep_split import middle, shares, split
from bucketmq.procedures.requests import Procedure
from procedures.objects.sweeping import (
    Sweep,
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
from procedures.objects.world import DEATHS, FAULTS, Killed, World


def in_shares(bucket: Any, *, tasks: int = 3, keys_max: int = 4, range_keys: int = 3, **options: Any) -> Swept:
    """As the chore does it, one share after the other, the last one first."""
    given = {"prefix": "", "name": None, "baseline": False, **options}

    def run() -> Procedure[Swept]:
        here = yield from bucket.api.open()
        work = yield from begin(here, **given)
        done = Swept()
        while work.todo:
            work = yield from split(here, work, tasks)
            compared = []
            for share in reversed(shares(work, tasks)):
                compared.append((yield from compare(here, work, share, keys_max=keys_max, range_keys=range_keys)))
                done.add(compared[-1].swept)
            work = yield from take(here, work, compared)
        yield from finish(here, work)
        return done

    return bucket.run(run())


@pytest.mark.parametrize(
    ("low", "high"), [("a", "b"), ("", "~"), ("data/2026/01/", "data/2026/12/"), ("a/x", "a/x0"), ("k", "k\U0010ffff")]
)
def test_the_middle_lies_between(low: str, high: str) -> None:
    found = middle(low, high)
    assert found is not None and low < found < high


def test_neighbours_have_no_middle() -> None:
    assert middle("a", "a ") is None
    assert middle("é1", "é1") is None


@pytest.mark.parametrize("tasks", [1, 2, 8])
@pytest.mark.parametrize("keys_max", [1, 5, 1000])
def test_shares_of_any_size_find_what_one_sweep_finds(world: World, tasks: int, keys_max: int) -> None:
    bucket = world.connect()
    fill(world)
    first = in_shares(bucket, tasks=tasks, keys_max=keys_max)
    assert (first.created, first.keys) == (10, 10)
    expected = sorted([*told_by_sweep(bucket), *change(world)])
    later = in_shares(bucket, tasks=tasks, keys_max=keys_max)
    assert (later.created, later.changed, later.deleted) == (2, 2, 2)
    assert told_by_sweep(bucket) == expected
    again = in_shares(bucket, tasks=tasks, keys_max=keys_max)
    assert (again.created, again.changed, again.deleted) == (0, 0, 0)
    check_inventory(world)
    assert told_by_sweep(bucket) == expected


def test_a_baseline_is_only_noted_however_it_is_cut(world: World) -> None:
    bucket = world.connect()
    fill(world)
    assert in_shares(bucket, baseline=True).noted == 10
    expected = change(world)
    in_shares(bucket)
    assert told_by_sweep(bucket) == expected
    check_inventory(world)


def test_histories_by_chance_give_the_same_inventory_and_events_as_one_process(tmp_path: Path) -> None:
    for seed in range(12):
        chance = random.Random(seed)
        shared, alone = (World("copying", tmp_path) for _ in range(2))
        keys = [f"{chance.choice(['big/', 'big/', 'big/', 'a/b/', 'z/', ''])}{chance.randrange(60)}" for _ in range(80)]
        for n in range(4):
            for key in chance.sample(keys, 30):
                gone = chance.random() < 0.3
                body = b"%d" % n
                for world in (shared, alone):
                    world.delete(key) if gone else world.write(key, body)
            for world in (shared, alone):
                world.advance(5)
            many = in_shares(shared.connect(), tasks=chance.randrange(1, 6), keys_max=chance.randrange(1, 40))
            one = sweep(alone.connect())
            assert (many.keys, many.created, many.changed, many.deleted) == (
                one.keys,
                one.created,
                one.changed,
                one.deleted,
            ), seed
        assert told_by_sweep(shared.connect()) == told_by_sweep(alone.connect()), seed
        check_inventory(shared)
        for world in (shared, alone):
            world.close()


@pytest.mark.parametrize("baseline", [True, False])
def test_a_sweep_that_dies_anywhere_is_followed_by_one_of_either_sort(tmp_path: Path, *, baseline: bool) -> None:
    for at in range(300):
        over = True
        for place, death in enumerate(DEATHS):
            world = World("copying", tmp_path)
            fill(world)
            try:
                in_shares(world.connect(at=at, fault=death), baseline=baseline)
            except Killed:
                over = False
            bucket = world.connect()
            follow = in_shares if place else sweep
            follow(bucket, baseline=baseline if not has_begun(world) else not baseline)
            expected = [] if baseline else all_new()
            assert told_by_sweep(bucket) == expected, (at, death)
            expected = sorted([*expected, *change(world)])
            in_shares(bucket)
            assert told_by_sweep(bucket) == expected, (at, death)
            check_inventory(world)
            world.close()
        if over:
            assert at > 20
            return
    raise AssertionError("it never got through")


def test_one_bad_answer_anywhere_changes_nothing(tmp_path: Path) -> None:
    for at in range(300):
        hit = False
        for fault in FAULTS:
            world = World("hashing", tmp_path)
            hit = check_bad_answer(world, in_shares, at=at, fault=fault) or hit
            world.close()
        if not hit:
            assert at > 10
            return
    raise AssertionError("it never got through")


@pytest.mark.parametrize("rival", [sweep, in_shares])
def test_two_sweepers_one_within_the_other_tell_everything_once(tmp_path: Path, rival: Sweep) -> None:
    for at in range(300):
        world = World("copying", tmp_path)
        met = check_rival(world, in_shares, rival, at=at)
        world.close()
        if not met:
            assert at > 10
            return
    raise AssertionError("it never got through")


def test_an_inventory_with_a_part_missing_says_so(memory: World) -> None:
    bucket = memory.connect()
    fill(memory)
    sweep(bucket)
    memory.delete(chunk_of(memory))
    with pytest.raises(bucketmq.Corrupt, match="start over"):
        in_shares(bucket)


def test_nearly_all_keys_below_one_prefix_are_cut_all_the_same(memory: World) -> None:
    bucket = memory.connect()
    for n in range(2000):
        memory.store.create(f"app/data/2026/11/{n:06}.json", b"")
    for n in range(20):
        memory.store.create(f"app/other/{n}", b"")
    run = bucket.run
    here = run(bucket.api.open())
    work = run(begin(here, prefix="", name=None, baseline=True))
    rounds: list[list[int]] = []
    while work.todo:
        work = run(split(here, work, 8))
        compared = [run(compare(here, work, each, keys_max=300, range_keys=100)) for each in shares(work, 8)]
        rounds.append([each.swept.keys for each in compared])
        work = run(take(here, work, compared))
    assert sum(map(sum, rounds)) == 2020
    assert max(map(max, rounds)) <= 300
    assert len(rounds) <= 4, rounds  # one after the other it would be seven


def test_a_round_that_took_too_long_is_not_trusted_and_done_again(memory: World) -> None:
    bucket = memory.connect()
    fill(memory)
    run = bucket.run
    here = run(bucket.api.open())
    work = run(begin(here, prefix="", name=None, baseline=False))
    compared = [run(compare(here, work, share)) for share in shares(work, 1)]
    memory.advance(2000)
    with pytest.raises(bucketmq.Unavailable, match="33 minutes"):
        run(take(here, work, compared))
    assert in_shares(bucket).created == 10
    assert told_by_sweep(bucket) == all_new()
