"""copy on every sort of store: what it does, what it refuses, and with one bad answer or a death at every request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import bucketmq
from bucketmq import Failed, Invalid
from bucketmq.bucket import port
from bucketmq.bucket.port import Attributes
from bucketmq.procedures.objects.copy import Copying, Decided, copy_many
from bucketmq.procedures.requests import Copy, Create, Remove, StoreRequest
from procedures.objects.world import DEATHS, FAULTS, STORES, Killed, World, summary, told


def test_a_copy_has_everything_and_is_told_as_a_new_object(world: World) -> None:
    bucket = world.connect()
    put = bucket.put("a.txt", "text", metadata={"owner": "rosa"})
    copied = bucket.copy("a.txt", "b.txt", if_version=put.version)
    assert world.objects() == {"a.txt": b"text", "b.txt": b"text"}
    read = bucket.get("b.txt")
    assert (read.content_type, read.metadata, read.version) == ("text/plain", {"owner": "rosa"}, copied.version)
    assert summary(bucket) == [("created", "a.txt"), ("created", "b.txt")]
    assert (copied.event.size_bytes, copied.event.metadata) == (4, {"owner": "rosa"})
    assert world.notes() == []


def test_what_cannot_be_copied_is_refused_and_leaves_no_trace(world: World) -> None:
    bucket = world.connect()
    bucket.put_many({"a": "mine", "b": "theirs"})
    before = world.everything()
    for call, error, words in (
        (lambda: bucket.copy("a", "a"), bucketmq.Invalid, "itself"),
        (lambda: bucket.copy("a", "b"), bucketmq.Invalid, "not touched"),
        (lambda: bucket.copy("never", "c"), bucketmq.NotFound, "no object"),
        (lambda: bucket.copy("a", "c", if_version="other"), bucketmq.Contended, "not at version"),
        (lambda: bucket.copy("a", "queues/c"), bucketmq.Invalid, "own keys"),
    ):
        with pytest.raises(error, match=words):
            call()
    assert world.everything() == before
    bucket.copy("a", "b", replace=True)
    assert world.objects() == {"a": b"mine", "b": b"mine"}
    assert summary(bucket)[-1] == ("changed", "b")


@pytest.mark.parametrize("kind", ["cloning", "folder"])
def test_where_the_store_copies_no_body_goes_through_this_process(kind: str, tmp_path: Path) -> None:
    world = World(kind, tmp_path)
    bucket = world.connect()
    bucket.put("a", b"x" * 1_000_000)
    asked: list[StoreRequest] = []
    bucket.hands.meddle = lambda _number, request: asked.append(request)
    before = bucket.requests
    bucket.copy("a", "b")
    bucket.move("b", "c")
    spent = bucket.requests - before
    assert (spent.copy, spent.look, spent.bytes_in) == (2, 2, 0)
    assert spent.bytes_out < 10_000
    assert len(bucket.get("c").body) == 1_000_000
    assert not any(isinstance(each, Create) and each.key.endswith(("/b", "/c")) for each in asked)
    world.close()


def test_a_source_that_changes_meanwhile_is_not_copied_in_part() -> None:
    world = World("cloning")
    bucket = world.connect()
    bucket.put("a", "1")

    def meddle(_number: int, request: StoreRequest) -> None:
        if isinstance(request, Copy):
            world.write("a", b"2")

    bucket.hands.meddle = meddle
    with pytest.raises(bucketmq.Contended, match="changed while it was copied"):
        bucket.copy("a", "b")
    with pytest.raises(bucketmq.Contended, match="changed while it was copied"):
        bucket.move("a", "b")
    assert world.objects() == {"a": b"2"}
    assert world.notes() == []
    world.close()


def test_half_a_move_of_what_is_too_large_to_be_read_keeps_both_and_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World("folder", tmp_path)
    bucket = world.connect()
    bucket.put("large", "x" * 100_000)
    bucket.put("small", "y")
    for key in ("large", "small"):  # both die between the copy and the removal
        dying = world.connect(fault="dies before")

        def meddle(number: int, request: StoreRequest, hands: Any = dying.hands) -> None:
            if isinstance(request, Remove):
                hands.dead = True
                raise Killed

        dying.hands.meddle = meddle
        with pytest.raises(Killed):
            dying.move(key, f"moved-{key}")
    with monkeypatch.context() as patch:
        patch.setattr(port, "OBJECT_BYTES_MAX", 50_000)
        for seconds in (60, 7200):
            world.advance(seconds)
            bucket.recover()
    assert world.notes() == []
    assert sorted(world.objects()) == ["large", "moved-large", "moved-small"]
    world.close()


BEFORE, AFTER = {"a": b"old"}, {"a": b"old", "c": b"old"}


@pytest.mark.parametrize("kind", STORES)
def test_one_bad_answer_or_a_death_anywhere_loses_and_doubles_nothing(kind: str, tmp_path: Path) -> None:
    plain = World(kind, tmp_path / "plain")
    plain.connect().put("a", "old")
    counting = plain.connect()
    counting.copy("a", "c")
    for at in range(0, counting.hands.count, 4 if kind == "folder" else 1):
        for fault in (*FAULTS, *DEATHS):
            world = World(kind, tmp_path / f"{at}{fault}")
            world.connect().put("a", "old")
            try:
                world.connect(at=at, fault=fault).copy("a", "c")
                assert world.objects() == AFTER, (fault, at)
            except (Killed, bucketmq.Unavailable):
                pass
            bucket = world.connect()
            for seconds in (60, 3600):
                world.advance(seconds)
                bucket.recover()
            assert world.notes() == [], (fault, at)
            assert world.objects() in (BEFORE, AFTER), (fault, at)
            assert [event.key for event in told(bucket)][1:] == ["c"] * ("c" in world.objects()), (fault, at)
            world.close()
    plain.close()


def test_many_are_copied_and_told_together_and_what_is_taken_says_so(world: World) -> None:
    bucket = world.connect()
    bucket.put_many({"a": "1", "b": "2", "taken": "x"})
    opened = bucket.run(bucket.api.open())
    wanted = [Copying("a", "c/a", 1), Copying("none", "c/none"), Copying("b", "taken", 1), Copying("b", "c/b", 1)]
    ends = bucket.run(copy_many(opened, wanted))
    kinds = [each.kind if isinstance(each, Failed) else each.key for each in ends]
    assert kinds == ["c/a", "not_found", "invalid", "c/b"]
    assert world.objects() == {"a": b"1", "b": b"2", "taken": b"x", "c/a": b"1", "c/b": b"2"}
    assert summary(bucket)[3:] == [("created", "c/a"), ("created", "c/b")]
    assert world.notes() == []
    with pytest.raises(Invalid, match="twice"):
        bucket.run(copy_many(opened, [Copying("a", "d"), Copying("b", "d")]))


def test_a_copy_that_was_decided_replaces_the_state_that_was_seen_and_no_other(world: World) -> None:
    bucket = world.connect()
    bucket.put_many({"a": "new", "b": "old"})
    opened = bucket.run(bucket.api.open())
    source, there = (world.store.look(f"{world.prefix}/{key}") for key in "ab")
    wanted = Copying("a", "b", 3, Decided(source, there, Attributes("text/x-own", {"own": "1"})))
    for kind in ("b", "contended"):
        (end,) = bucket.run(copy_many(opened, [wanted]))
        assert (end.kind if isinstance(end, Failed) else end.key) == kind
    read = bucket.get("b")
    assert (read.body, read.content_type, read.metadata) == (b"new", "text/x-own", {"own": "1"})
    assert summary(bucket)[2:] == [("changed", "b")]
    assert world.notes() == []
