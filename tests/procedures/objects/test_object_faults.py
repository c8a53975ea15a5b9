"""put, delete and move with one bad answer, or a death, at every single request: nothing lost, nothing doubled.

Each test runs a verb once without faults to see how many requests it makes, then once for each request and fault.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bucketmq
from procedures.objects.world import DEATHS, FAULTS, STORES, Killed, World, summary, told

KINDS = ["put new", "put over", "delete", "move", "move over"]


def prepared(kind: str, folder: Path) -> World:
    """A bucket with an object at `a`, and one at `b`, both told."""
    world = World(kind, folder)
    bucket = world.connect()
    bucket.put("a", "old", metadata={"owner": "rosa"})
    bucket.put("b", "other")
    return world


VERBS: dict[str, Callable[[Any], Any]] = {
    "put new": lambda bucket: bucket.put("c", "new"),
    "put over": lambda bucket: bucket.put("a", "new"),
    "delete": lambda bucket: bucket.delete("a"),
    "move": lambda bucket: bucket.move("a", "c"),
    "move over": lambda bucket: bucket.move("a", "b", replace=True),
}
BEFORE = {"a": b"old", "b": b"other"}
AFTER = {
    "put new": {**BEFORE, "c": b"new"},
    "put over": {"a": b"new", "b": b"other"},
    "delete": {"b": b"other"},
    "move": {"b": b"other", "c": b"old"},
    "move over": {"b": b"old"},
}
TOLD = {
    "put new": ("c", {"created", "changed"}),
    "put over": ("a", {"changed"}),
    "delete": ("a", {"deleted"}),
    "move": ("c", {"moved"}),
    "move over": ("b", {"moved"}),
}


def places(kind: str, count: int) -> range:
    """The requests at which something happens; fewer on a folder, where each costs a disk's time."""
    return range(0, count, 4 if kind == "folder" else 1)


def how_many(kind: str, verb: str, folder: Path) -> int:
    """Requests that the verb makes when nothing goes wrong."""
    world = prepared(kind, folder)
    bucket = world.connect()
    VERBS[verb](bucket)
    count: int = bucket.hands.count
    assert world.objects() == AFTER[verb]
    world.close()
    return count


def news(bucket: Any) -> list[tuple[str, str]]:
    """What was told after the two first puts."""
    return summary(bucket)[2:]


def recovered(world: World) -> Any:
    """What everybody sees after the chores were done, long after."""
    world.advance(60)
    bucket = world.connect()
    bucket.recover()
    world.advance(3600)
    bucket.recover()
    assert world.notes() == []
    return bucket


def check_told_once(bucket: Any, verb: str) -> None:
    key, kinds = TOLD[verb]
    found = [event for event in told(bucket)[2:] if event.key == key]
    assert len(found) == 1, news(bucket)
    assert found[0].kind in kinds
    assert len(told(bucket)) == 3, news(bucket)


@pytest.mark.parametrize("verb", KINDS)
@pytest.mark.parametrize("kind", STORES)
def test_one_bad_answer_anywhere_changes_nothing_in_the_end(kind: str, verb: str, tmp_path: Path) -> None:
    count = how_many(kind, verb, tmp_path / "plain")
    for at in places(kind, count):
        for fault in FAULTS:
            world = prepared(kind, tmp_path / f"{at}{fault}")
            bucket = world.connect(at=at, fault=fault)
            try:
                VERBS[verb](bucket)
                done = True
            except bucketmq.Unavailable:
                done = False
            assert bucket.hands.hit
            where = f"{fault} at {at}"
            objects = world.objects()
            if done:
                assert objects == AFTER[verb], where
            assert "a" in objects or verb in ("delete", "move", "move over"), where
            after = recovered(world)
            objects = world.objects()
            assert objects in (BEFORE, AFTER[verb]), where
            if objects == AFTER[verb] != BEFORE:
                check_told_once(after, verb)
            else:
                assert news(after) == [], where
            world.close()


@pytest.mark.parametrize("verb", KINDS)
@pytest.mark.parametrize("kind", STORES)
def test_a_writer_that_dies_anywhere_is_finished_by_whoever_recovers(kind: str, verb: str, tmp_path: Path) -> None:
    count = how_many(kind, verb, tmp_path / "plain")
    for at in places(kind, count):
        for death in DEATHS:
            world = prepared(kind, tmp_path / f"{at}{death}")
            with pytest.raises(Killed):
                VERBS[verb](world.connect(at=at, fault=death))
            where = f"{death} request {at}"
            halfway = world.objects()
            assert b"old" in halfway.values() or verb in ("put over", "delete"), where
            after = recovered(world)
            objects = world.objects()
            assert objects in (BEFORE, AFTER[verb]), where
            if objects == AFTER[verb]:
                check_told_once(after, verb)
            else:
                assert news(after) == [], where
            world.close()


@pytest.mark.parametrize("verb", ["move", "move over"])
@pytest.mark.parametrize("kind", STORES)
@pytest.mark.parametrize("knows_version", [True, False])
def test_a_move_that_died_anywhere_is_repeated_to_the_same_end(
    kind: str, verb: str, tmp_path: Path, *, knows_version: bool
) -> None:
    count = how_many(kind, verb, tmp_path / "plain")
    target = TOLD[verb][0]
    for at in places(kind, count):
        for death in DEATHS:
            world = prepared(kind, tmp_path / f"{at}{death}")
            version = world.connect().look("a").version.strip('"') if knows_version else None
            options = {"replace": verb == "move over", "if_version": version}
            with pytest.raises(Killed):
                world.connect(at=at, fault=death).move("a", target, **options)
            again = world.connect()
            try:
                stored = again.move("a", target, **options)
            except bucketmq.NotFound:
                # It was through to the last request: its note is gone, and nothing tells whose the target is.
                assert (at, death) == (count - 1, "dies after"), (at, death)
                assert not knows_version or world.store.renames
            else:
                assert again.get(target).version == stored.version
            where = f"{death} request {at}"
            assert world.objects() == AFTER[verb], where
            check_told_once(again, verb)
            check_told_once(recovered(world), verb)
            world.close()


@pytest.mark.parametrize("kind", STORES)
def test_a_recovery_that_dies_anywhere_is_done_by_the_next(kind: str, tmp_path: Path) -> None:
    """The worst notes: of a put and a move that died half-way."""
    for at in range(0, 40, 3 if kind == "folder" else 1):
        for death in DEATHS:
            world = prepared(kind, tmp_path / f"{at}{death}")
            for verb, request in (("move", 3), ("put new", 3)):
                verbs = {"move": lambda bucket: bucket.move("a", "d"), "put new": VERBS["put new"]}
                with pytest.raises(Killed):
                    verbs[verb](world.connect(at=request, fault="dies after"))
            world.advance(60)
            dying = world.connect(at=at, fault=death)
            try:
                dying.recover()
            except Killed:
                over = False
            else:
                over = True
            after = recovered(world)
            objects = world.objects()
            assert sorted(objects.values()).count(b"old") == 1
            moved = [event.key for event in told(after) if event.kind == "moved"]
            assert moved == ["d"] * ("d" in objects)
            assert [event.key for event in told(after)].count("c") == ("c" in objects)
            world.close()
            if over:
                assert at > 4
                return


@pytest.mark.parametrize("kind", STORES)
def test_two_recoveries_at_once_tell_everything_once(kind: str, tmp_path: Path) -> None:
    for at in range(0, 16, 4 if kind == "folder" else 1):
        world = prepared(kind, tmp_path / str(at))
        with pytest.raises(Killed):
            world.connect(at=3, fault="dies after").move("a", "c")
        world.advance(60)
        first, second = world.connect(), world.connect()
        started: list[int] = []

        def meddle(number: int, request: Any) -> None:
            if number == at and not started:  # noqa: B023
                started.append(number)  # noqa: B023
                second.recover()  # noqa: B023

        first.hands.meddle = meddle
        first.recover()
        after = recovered(world)
        objects = world.objects()
        assert sorted(objects.values()) == [b"old", b"other"]
        assert [event.key for event in told(after) if event.kind == "moved"] == ["c"] * ("c" in objects)
        world.close()


def test_a_report_that_fails_is_said_so_and_made_later(memory: World) -> None:
    """The object is written; the log cannot be reached for longer than a writer's patience."""
    memory.connect().put("warm", "x")
    bucket = memory.connect()
    bucket.put("warm", "y")

    def cut(number: int, request: Any) -> None:
        if "/queues/" in getattr(request, "key", ""):
            raise bucketmq.Unavailable("no way through")

    bucket.hands.meddle = cut
    stored = bucket.put("a", "x")
    assert not stored.reported
    assert len(memory.notes()) == 1
    after = recovered(memory)
    assert ("changed", "a") in summary(after)
    assert [event.id for event in told(after) if event.key == "a"] == [stored.event.id]


def test_a_move_over_an_object_that_never_happened_is_not_reported_where_stores_rename(tmp_path: Path) -> None:
    """Its source was deleted, and the object at the target is the one that was to be replaced."""
    world = prepared("renaming", tmp_path)
    with pytest.raises(Killed):
        world.connect(at=1, fault="dies after").move("a", "b", replace=True)  # the note is written, nothing else
    assert len(world.notes()) == 1
    world.delete("a")
    after = recovered(world)
    assert world.objects() == {"b": b"other"}
    assert [kind for kind, _ in news(after) if kind == "moved"] == []
    world.close()


def test_a_rename_is_recovered_by_a_process_whose_store_does_not_rename(tmp_path: Path) -> None:
    world = prepared("renaming", tmp_path)
    with pytest.raises(Killed):
        world.connect(at=2, fault="dies after").move("a", "c")  # the rename has landed, nobody was told
    assert world.objects() == {"b": b"other", "c": b"old"}
    world.store.renames = False
    after = recovered(world)
    assert news(after) == [("moved", "c")]
    assert world.notes() == []
    world.close()
