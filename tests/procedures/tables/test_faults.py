"""Committers that die, replies that are lost, and rivals: a commit is in the table once or not at all."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

import bucketmq
from bucketmq.procedures import verbs
from bucketmq.procedures.requests import Get, List, Pause, Replace
from bucketmq.procedures.tables import commit as committing
from bucketmq.procedures.tables import files as table_files
from bucketmq.procedures.tables import unused
from bucketmq.procedures.tables.commit import commit_steps
from bucketmq.procedures.tables.read import Wanted, read
from bucketmq.procedures.tables.steps import step_of
from bucketmq.tables import Delete, Upsert
from bucketmq.tables import Replace as ReplaceGroup
from bucketmq.tables.head import Head, slot_of
from procedures.bulk.test_publish import FaultyStore
from procedures.tables.shards import SHAPE, chunks, content, files, interrupted, texts
from procedures.test_faults import FlakyStore
from procedures.world import Killed, World

FAULTS = ["lost", "landed", "refused", "landed and refused"]
HEAD = "app/tables/t/head.json"


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "PAUSE_FIRST_SECONDS", 0.001)
    monkeypatch.setattr(table_files, "SPLIT_BYTES", 4_000)


@pytest.fixture
def faulty() -> Iterator[World]:
    made = World(store=FaultyStore())
    yield made
    made.close()


def prepared(world: World) -> Any:
    """A table of several shards, as a process has it open."""
    table = world.connect().table("t", **SHAPE)
    table.commit(*(ReplaceGroup(chunks(f"d{n}", 4), f"d{n}") for n in range(30)))
    assert len(table.snapshot().files) > 3
    return table


CHANGES = (ReplaceGroup(chunks("d1", 1, rev=2), "d1"), Delete(["d2"], 2), Upsert(chunks("new", 2)))


def expected() -> dict[str, list[str]]:
    rows = {f"d{n}": texts(f"d{n}", 4) for n in range(30) if n != 2}
    return dict(sorted({**rows, "d1": texts("d1", 1, 2), "new": texts("new")}.items()))


@pytest.mark.parametrize("fault", FAULTS)
def test_one_bad_answer_at_any_request_does_no_harm(fault: str) -> None:
    at, hit = 0, True
    while hit:
        world = World(store=FaultyStore())
        table, store = prepared(world), world.store
        version = table.snapshot().version
        assert isinstance(store, FaultyStore)
        store.arm(at, fault)
        done = table.commit(*CHANGES)
        hit = store.asked > at
        store.arm(-1, "")
        assert content(table) == expected()
        assert (done.already, done.stale, done.version) == (False, (), version + 1)
        world.close()
        at += 1
    assert at > 8


@pytest.mark.parametrize("fault", FAULTS)
def test_one_bad_answer_when_a_table_is_made(fault: str) -> None:
    for at in range(4):
        world = World(store=FaultyStore())
        table, store = world.connect().table("t", **SHAPE), world.store
        assert isinstance(store, FaultyStore)
        store.arm(at, fault)
        table.replace("a", chunks("a"))
        store.arm(-1, "")
        assert content(table) == {"a": texts("a")}
        assert table.snapshot().version == 1
        world.close()


def test_a_committer_killed_between_any_two_requests_leaves_all_or_nothing() -> None:
    lives, outcomes = 1, []
    while True:
        world = World()
        table = prepared(world)
        before = content(table)
        mortal = world.mortal(lives)
        try:
            mortal.table("t", **SHAPE).commit(*CHANGES, id="mine")
        except Killed:
            pass
        else:
            break
        found = content(table)
        assert found in (before, expected())
        outcomes.append(found == before)
        # Another process goes on, and the one that died comes back with its commit.
        table.replace("other", chunks("other"))
        table.commit(*CHANGES, id="mine")
        assert content(table) == dict(sorted({**expected(), "other": texts("other")}.items()))
        world.close()
        lives += 1
    assert {True, False} == set(outcomes)


@pytest.mark.parametrize("seed", range(4))
def test_racing_committers_on_a_bad_store_lose_nothing(seed: int) -> None:
    store = FlakyStore(seed, 0.2)
    world = World(["blocking", "asyncio"][seed % 2], store)
    errors: list[BaseException] = []

    def one(name: int) -> None:
        try:
            table = world.connect().table("t", **SHAPE)
            for n in range(6):
                changes = ReplaceGroup(chunks(f"{name}-{n}"), f"{name}-{n}"), Upsert([row(name, n)])
                table.commit(*changes, id=f"{name}.{n}")
        except BaseException as error:
            errors.append(error)

    def row(name: int, n: int) -> dict[str, Any]:
        return {"id": name, "doc": "shared", "rev": n, "text": f"{name} {n}"}

    threads = [threading.Thread(target=one, args=(name,)) for name in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    store.chance = 0.0
    assert not errors
    table = world.connect().table("t")
    found = content(table)
    assert found.keys() == {"shared", *(f"{name}-{n}" for name in range(3) for n in range(6))}
    assert table.snapshot().version <= 18
    for name in range(3):  # a rival with a higher state may have been first, then the others are left out
        assert set(found["shared"]) <= {f"{name} {n}" for name in range(3) for n in range(6)}
    world.close()


def test_a_rival_between_reading_and_writing_is_not_overwritten(blocking: World) -> None:
    table = prepared(blocking)
    bucket, rival = blocking.connect(), blocking.connect().table("t", **SHAPE)
    opened = bucket.run(bucket.table("t", **SHAPE).api.open())
    for doc, rev, stale in (("d2", 2, ()), ("d1", 3, ("d1",))):  # a rival in another shard, and in the same
        step = step_of(ReplaceGroup(chunks("d1", 1, rev), "d1"), opened.shape)
        frozen = commit_steps(opened, [step])
        done = bucket.run(interrupted(frozen, is_head, lambda doc=doc: rival.replace(doc, chunks(doc, 3, rev=5))))
        assert done.stale == stale
    assert content(table, groups=["d1", "d2"]) == {"d1": texts("d1", 3, 5), "d2": texts("d2", 3, 5)}


def test_files_of_shards_that_no_rival_touched_are_not_written_again(blocking: World) -> None:
    prepared(blocking)
    bucket, rival = blocking.connect(), blocking.connect().table("t", **SHAPE)
    opened = bucket.run(bucket.table("t", **SHAPE).api.open())
    head: Head = rival.snapshot().head
    other = next(f"x{n}" for n in range(99) if shard_of(head, f"x{n}") != shard_of(head, "d1"))
    step = step_of(ReplaceGroup(chunks("d1", 1, rev=2), "d1"), opened.shape)
    before = bucket.requests
    bucket.run(interrupted(commit_steps(opened, [step]), is_head, lambda: rival.replace(other, chunks(other))))
    after = bucket.requests
    assert after.create - before.create == 1
    assert after.replace - before.replace == 2


def is_head(request: object) -> bool:
    return isinstance(request, Replace) and request.key == HEAD


def is_pause(request: object) -> bool:
    return isinstance(request, Pause)


def is_list(request: object) -> bool:
    return isinstance(request, List) and request.prefix.endswith("/data/")


def is_file(request: object) -> bool:
    return isinstance(request, Get) and "/data/" in request.key


def shard_of(head: Head, doc: str) -> int:
    return head.place_of(slot_of(doc))


def test_files_that_no_head_names_are_removed_and_readers_have_an_hour(blocking: World) -> None:
    table = blocking.connect().table("t", **SHAPE)
    table.replace("a", chunks("a"))
    old = table.snapshot()
    mortal = blocking.mortal(3)
    with pytest.raises(Killed):
        mortal.table("t", **SHAPE).replace("b", chunks("b"))
    for rev in range(2, 6):
        table.replace("a", chunks("a", rev=rev))
    assert len(files(blocking)) == 6
    blocking.advance(unused.SWEEP_SECONDS + 1)
    table.replace("a", chunks("a", rev=6))  # notes them
    assert content(table, at=old) == {"a": texts("a")}
    blocking.advance(unused.KEEP_SECONDS - 1)
    table.replace("a", chunks("a", rev=7))
    assert content(table, at=old) == {"a": texts("a")}
    blocking.advance(unused.SWEEP_SECONDS)
    table.replace("a", chunks("a", rev=8))  # removes them
    assert len(files(blocking)) == 3  # the living one, and the two that were replaced since they were noted
    with pytest.raises(bucketmq.NotFound, match="take another snapshot"):
        table.read(at=old)
    assert content(table) == {"a": texts("a", 2, 8)}


def test_a_rivals_file_that_a_look_met_by_chance_stays_as_long_as_any(blocking: World) -> None:
    table, rival = (blocking.connect().table("t", **SHAPE) for _ in range(2))
    table.replace("a", chunks("a"))
    blocking.advance(unused.SWEEP_SECONDS + 1)
    bucket = blocking.connect()
    opened = bucket.run(bucket.table("t", **SHAPE).api.open())
    step = step_of(ReplaceGroup(chunks("a", rev=2), "a"), opened.shape)
    # Between the head of the commit that looks, and its listing.
    bucket.run(interrupted(commit_steps(opened, [step]), is_list, lambda: rival.replace("a", chunks("a", rev=3))))
    blocking.advance(unused.SWEEP_SECONDS + 1)
    old = rival.snapshot()
    table.replace("a", chunks("a", rev=4))  # looks again, and ends the time of the rival's file
    assert content(table, at=old) == {"a": texts("a", 2, 3)}
    blocking.advance(unused.SWEEP_SECONDS + 1)
    table.replace("a", chunks("a", rev=5))
    blocking.advance(unused.SWEEP_SECONDS + 1)
    table.replace("a", chunks("a", rev=6))
    assert len(files(blocking)) == 2  # the living one, and the one that it replaced


def test_what_is_stored_does_not_grow_with_history(blocking: World) -> None:
    table = blocking.connect().table("t", **SHAPE)
    sizes = []
    for rev in range(60):
        table.replace("a", chunks("a", rev=rev + 10))
        table.delete("b", newer=rev)
        blocking.advance(unused.SWEEP_SECONDS / 4)
        sizes.append(sum(len(body) for key, body in blocking.everything().items() if "/tables/" in key))
    assert max(sizes[30:]) <= max(sizes[:30]) * 1.1


def frozen_for_hours(world: World) -> Any:
    """A committer is frozen between its files and the head, while others commit and remove what no head names."""
    table = prepared(world)
    head: Head = table.snapshot().head
    other = next(f"x{n}" for n in range(99) if shard_of(head, f"x{n}") != shard_of(head, "d1"))
    bucket = world.connect()
    opened = bucket.run(bucket.table("t", **SHAPE).api.open())

    def hours() -> None:
        for rev in range(2, 5):
            world.advance(unused.SWEEP_SECONDS + 1)
            table.replace(other, chunks(other, rev=rev))

    step = step_of(ReplaceGroup(chunks("d1", 1, rev=2), "d1"), opened.shape)
    bucket.run(interrupted(commit_steps(opened, [step]), is_head, hours))
    return table


def test_a_committer_that_was_frozen_for_hours_names_no_removed_file(blocking: World) -> None:
    assert content(frozen_for_hours(blocking), groups=["d1"]) == {"d1": texts("d1", 1, 2)}


def test_planted_files_of_any_age_are_named(blocking: World) -> None:
    with patch.object(committing, "FRESH_SECONDS", float("inf")), pytest.raises(bucketmq.Corrupt, match="is missing"):
        frozen_for_hours(blocking).read()


def test_a_commit_whose_reply_was_lost_is_not_applied_again_over_what_came_after_it(faulty: World) -> None:
    table, store = faulty.connect().table("t", key="id"), faulty.store
    table.upsert([{"id": 1, "n": 0}])
    bucket, rival = faulty.connect(), faulty.connect().table("t")
    opened = bucket.run(bucket.table("t", key="id").api.open())
    assert isinstance(store, FaultyStore)
    losing = interrupted(
        commit_steps(opened, [step_of(Upsert([{"id": 1, "n": 1}]), opened.shape)]),
        is_head,
        lambda: store.arm(0, "landed"),
    )
    done = bucket.run(interrupted(losing, is_pause, lambda: rival.upsert([{"id": 1, "n": 2}])))
    assert table.read().to_pylist() == [{"id": 1, "n": 2}]
    assert (done.version, table.snapshot().version) == (2, 3)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (b"{", "head.json cannot be read as Head"),
        (b'{"format":2}', "format 2"),
        (b'{"version":1,"shape":{"key":"id"},"schema":"","shards":[]}\n', "head.json: its shards"),
    ],
)
def test_a_damaged_head_is_refused_by_name(blocking: World, damage: bytes, says: str) -> None:
    table = blocking.connect().table("t", key="id")
    table.upsert([{"id": 1}])
    blocking.overwrite(HEAD, damage)
    for act in (table.read, table.snapshot, lambda: table.upsert([{"id": 2}])):
        with pytest.raises(bucketmq.Corrupt, match=says):
            act()
    assert blocking.read(HEAD) == damage


def test_a_damaged_file_is_refused_by_name(blocking: World) -> None:
    table = blocking.connect().table("t", key="id")
    table.upsert([{"id": 1}])
    (key,) = table.snapshot().files
    body = blocking.read(key)
    for act in (table.read, lambda: table.upsert([{"id": 2}])):
        blocking.overwrite(key, body[:-1] + b"x")
        with pytest.raises(bucketmq.Corrupt, match=f"{key} is not the file"):
            act()
        blocking.store.delete(key)
        with pytest.raises(bucketmq.Corrupt, match=f"{key} is missing"):
            act()
        blocking.store.create(key, body)
    head = blocking.read(HEAD)
    blocking.overwrite(HEAD, head.replace(b'"schema":"', b'"schema":"x'))
    with pytest.raises(bucketmq.Corrupt, match=r"head\.json has a schema"):
        table.read()


def test_a_reader_whose_head_was_replaced_long_ago_reads_the_new_one(blocking: World) -> None:
    table = blocking.connect().table("t", **SHAPE)
    table.replace("a", chunks("a"))
    bucket = blocking.connect()
    opened = bucket.run(bucket.table("t").api.open())

    def hours() -> None:
        for rev in range(2, 6):
            blocking.advance(unused.SWEEP_SECONDS + 1)
            table.replace("a", chunks("a", rev=rev))

    rows = bucket.run(interrupted(read(opened, Wanted()), is_file, hours))
    assert rows.column("rev").to_pylist() == [5, 5]
