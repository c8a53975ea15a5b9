"""put, delete and move on every sort of store: what they do, what they report, what they refuse."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import Any

import pytest

import bucketmq
from bucketmq.bucket.port import METADATA_BYTES_MAX
from bucketmq.procedures.requests import Get, Look, Replace, StoreRequest
from procedures.objects.world import Killed, World, log_of, summary, told


def test_a_put_is_read_back_and_told_once_with_what_is_known(world: World) -> None:
    bucket = world.connect()
    stored = bucket.put("docs/a.json", {"n": 1}, metadata={"Owner": "rosa"})
    read = bucket.get("docs/a.json")
    assert (read.body, read.version, read.content_type, read.metadata) == (
        b'{"n":1}',
        stored.version,
        "application/json",
        {"owner": "rosa"},
    )
    (event,) = told(bucket)
    assert event == stored.event
    assert (event.kind, event.key, event.size_bytes, event.version) == ("created", "docs/a.json", 7, stored.version)
    assert (event.content_type, event.metadata, event.hops, event.source) == (
        "application/json",
        {"owner": "rosa"},
        0,
        "writer",
    )
    assert stored.reported
    assert world.notes() == []


def test_a_put_of_a_number_that_json_does_not_have_is_refused_and_leaves_no_trace(world: World) -> None:
    bucket = world.connect()
    with pytest.raises(bucketmq.Invalid, match=r"body\.scores\[1\] is nan"):
        bucket.put("a.json", {"scores": [None, float("nan")]})
    assert world.objects() == {}
    assert world.notes() == []
    assert bucket.put("a.json", {"scores": [None]}).event.kind == "created"


def test_a_second_put_is_a_change_even_of_the_same_bytes(world: World) -> None:
    bucket = world.connect()
    first, second = bucket.put("a", "x"), bucket.put("a", "x")
    assert summary(bucket) == [("created", "a"), ("changed", "a")]
    assert first.event.id != second.event.id


def test_only_new_and_if_version_refuse_and_leave_no_trace(world: World) -> None:
    bucket = world.connect()
    stored = bucket.put("a", "1")
    with pytest.raises(bucketmq.Contended, match="already"):
        bucket.put("a", "2", only_new=True)
    with pytest.raises(bucketmq.Contended, match="not at version"):
        bucket.put("a", "2", if_version="other")
    with pytest.raises(bucketmq.Contended, match="not at version"):
        bucket.put("b", "2", if_version=stored.version)
    assert bucket.put("a", "2", if_version=stored.version).event.kind == "changed"
    assert bucket.put("b", "1", only_new=True).event.kind == "created"
    assert world.objects() == {"a": b"2", "b": b"1"}
    assert world.notes() == []


def test_a_delete_is_told_and_a_second_one_is_nothing(world: World) -> None:
    bucket = world.connect()
    version = bucket.put("a", "1").version
    with pytest.raises(bucketmq.Contended):
        bucket.delete("a", if_version="other")
    assert bucket.delete("a", if_version=version)
    assert not bucket.delete("a")
    assert summary(bucket) == [("created", "a"), ("deleted", "a")]
    assert told(bucket)[1].version == version
    assert world.objects() == {}
    assert world.notes() == []


def test_a_move_takes_everything_along_and_tells_one_event(world: World) -> None:
    bucket = world.connect()
    bucket.put("pending/a.txt", "text", metadata={"owner": "rosa"})
    stored = bucket.move("pending/a.txt", "done/a.txt")
    read = bucket.get("done/a.txt")
    assert (read.body, read.content_type, read.metadata, read.version) == (
        b"text",
        "text/plain",
        {"owner": "rosa"},
        stored.version,
    )
    assert world.objects() == {"done/a.txt": b"text"}
    event = told(bucket)[-1]
    assert (event.kind, event.key, event.from_key, event.version, event.size_bytes) == (
        "moved",
        "done/a.txt",
        "pending/a.txt",
        stored.version,
        4,
    )
    assert world.notes() == []


def test_a_move_never_destroys_another_object(world: World) -> None:
    bucket = world.connect()
    bucket.put("a", "mine")
    bucket.put("b", "theirs")
    with pytest.raises(bucketmq.Invalid, match="another object"):
        bucket.move("a", "b")
    assert world.objects() == {"a": b"mine", "b": b"theirs"}
    assert summary(bucket) == [("created", "a"), ("created", "b")]
    assert world.notes() == []


def test_not_even_one_with_the_same_bytes(world: World) -> None:
    bucket = world.connect()
    bucket.put("a", "same")
    bucket.put("b", "same")
    with pytest.raises(bucketmq.Invalid, match="another object"):
        bucket.move("a", "b")
    assert world.objects() == {"a": b"same", "b": b"same"}


def test_replace_says_that_it_may(world: World) -> None:
    bucket = world.connect()
    bucket.put("a", "mine")
    bucket.put("b", "theirs")
    bucket.move("a", "b", replace=True)
    assert world.objects() == {"b": b"mine"}
    assert summary(bucket)[-1] == ("moved", "b")


def test_a_move_of_what_is_not_there_or_to_itself_is_refused(world: World) -> None:
    bucket = world.connect()
    with pytest.raises(bucketmq.NotFound, match="no object"):
        bucket.move("a", "b")
    version = bucket.put("a", "1").version
    with pytest.raises(bucketmq.Invalid, match="itself"):
        bucket.move("a", "a")
    bucket.put("a", "2")
    with pytest.raises(bucketmq.Contended, match="not at version"):
        bucket.move("a", "b", if_version=version)
    assert world.objects() == {"a": b"2"}
    assert world.notes() == []


def test_an_object_that_moves_in_a_circle_is_told_each_time(world: World) -> None:
    bucket = world.connect()
    bucket.put("a", "x")
    for _ in range(3):
        bucket.move("a", "b")
        bucket.move("b", "a")
    assert summary(bucket) == [("created", "a"), *[("moved", "b"), ("moved", "a")] * 3]
    assert world.objects() == {"a": b"x"}


BAD_KEYS = ["", "/a", "a/", "a//b", "../a", "a/../b", "a\\b", "a\nb", "\ud800", "x" * 901]
OWN_KEYS = ["queues/jobs/x", "rules/r.json", "inventory/x", "probe/x", ".bucketmq/x", "queues", "rules"]


@pytest.mark.parametrize("key", BAD_KEYS + OWN_KEYS, ids=range(len(BAD_KEYS + OWN_KEYS)))
def test_bad_keys_and_our_own_are_refused_before_any_request(memory: World, key: str) -> None:
    bucket = memory.connect()
    bucket.put("a", "1")
    before, count = memory.everything(), bucket.hands.count
    for use in (
        lambda: bucket.put(key, "x"),
        lambda: bucket.get(key),
        lambda: bucket.look(key),
        lambda: bucket.delete(key),
        lambda: bucket.move(key, "b"),
        lambda: bucket.move("a", key),
    ):
        with pytest.raises(bucketmq.Invalid):
            use()
    assert bucket.hands.count == count
    assert memory.everything() == before


def test_a_key_that_is_no_text_is_refused(bucket: Any) -> None:
    for use in (lambda: bucket.put(7, "x"), lambda: bucket.get(None), lambda: bucket.move("a", b"b")):
        with pytest.raises(bucketmq.Invalid, match="must be text"):
            use()


def test_a_content_type_that_is_not_text_is_refused_and_leaves_no_note(memory: World) -> None:
    with pytest.raises(bucketmq.Invalid, match="5 is not a content type"):
        memory.connect().put("a", "x", content_type=5)
    assert memory.notes() == []


@pytest.mark.parametrize(
    "metadata",
    [{"big": "x" * METADATA_BYTES_MAX}, {"bad name": "x"}, {"n": "\u00fc"}, {"n": " x"}],
    ids=["large", "name", "value", "space"],
)
def test_metadata_no_store_can_keep_is_refused_and_leaves_no_note(memory: World, metadata: dict[str, str]) -> None:
    bucket = memory.connect()
    with pytest.raises(bucketmq.Invalid, match="metadata"):
        bucket.put("a", "x", metadata=metadata)
    assert memory.objects() == {}
    assert memory.notes() == []


def test_an_object_with_as_much_metadata_as_stores_keep_can_still_be_moved_in_a_chain(memory: World) -> None:
    bucket = memory.connect()
    bucket.watch('WHERE key LIKE "in/%"', name="mover")(lambda change: change.move("out/" + change.name))
    bucket.run_watchers(stop_when_empty=True, signals=False)
    lineage = tuple(f"evt_{n:032x}" for n in range(16))
    memory.write("in/a", b"x", {"big": "x" * (METADATA_BYTES_MAX - 3 - 120)})
    event = bucket.trigger("in/a")
    chained = type(event)(
        **{**{f: getattr(event, f) for f in event.__struct_fields__}, "id": "evt_c", "hops": 3, "lineage": lineage}
    )
    bucket.report([chained])
    bucket.run_watchers(stop_when_empty=True, signals=False)
    assert set(memory.objects()) == {"out/a"}
    assert bucket.queue("events").dead_letters.peek() == []


def test_a_users_own_metadata_cannot_pretend_to_be_ours(memory: World) -> None:
    bucket = memory.connect()
    bucket.put("a", "x", metadata={"bucketmq-hops": "99", "Bucketmq-Write": "mine", "other": "1"})
    assert bucket.get("a").metadata == {"other": "1"}
    assert bucket.get("a").hops == 0


@contextlib.contextmanager
def meddling(bucket: Any, at: int, change: Any) -> Iterator[None]:
    """Have `change` happen right before the request number `at` from now, or after the last one."""
    start = bucket.hands.count
    done: list[int] = []

    def meddle(number: int, request: StoreRequest) -> None:
        if number == start + at:
            done.append(number)
            change()

    bucket.hands.meddle = meddle
    try:
        yield
    finally:
        bucket.hands.meddle = lambda _number, _request: None
        if not done:
            change()


@pytest.mark.parametrize("at", range(12))
def test_a_source_that_is_overwritten_while_it_is_moved_is_never_lost(world: World, at: int) -> None:
    """Whenever the overwrite comes: the newer content is in the bucket afterwards, and what was moved is told."""
    bucket = world.connect()
    bucket.put("warm", "x")
    bucket.put("a", "old")
    with contextlib.suppress(bucketmq.Contended), meddling(bucket, at, lambda: world.write("a", b"new")):
        bucket.move("a", "b")
    world.advance(60)
    bucket.recover()
    objects = world.objects()
    assert b"new" in (objects.get("a"), objects.get("b"))
    moved = [event for event in told(bucket) if event.kind == "moved"]
    assert len(moved) == ("b" in objects), "a target without its event, or an event without a target"
    assert world.notes() == []


@pytest.mark.parametrize("at", range(12))
def test_a_target_that_appears_while_something_is_moved_there_is_never_destroyed(world: World, at: int) -> None:
    bucket = world.connect()
    bucket.put("warm", "x")
    bucket.put("a", "mine")
    there: list[bool] = []

    def intrude() -> None:
        there.append("b" in world.objects())
        if not there[0]:
            world.write("b", b"theirs")

    refused = False
    with meddling(bucket, at, intrude):
        try:
            bucket.move("a", "b")
        except bucketmq.Invalid:
            refused = True
    objects = world.objects()
    if there == [False]:
        assert objects["b"] == b"theirs"
        assert refused
        assert objects["a"] == b"mine"
    else:
        assert (objects.get("a"), objects["b"]) == (None, b"mine")


def move_or_not(bucket: Any, key: str, target: str, version: str) -> None:
    """A renamed object does not tell where it came from, so who comes late finds nothing."""
    with contextlib.suppress(*([bucketmq.NotFound] if bucket.hands.store.renames else [])):
        bucket.move(key, target, if_version=version)


def test_two_who_move_the_same_object_at_once_move_it_once(world: World) -> None:
    """The second one runs between any two requests of the first."""
    for at in range(14):
        key, target = f"in/{at}", f"out/{at}"
        first, second = world.connect(), world.connect()
        first.put("warm", "x")
        version = first.put(key, "x").version
        with meddling(first, at, functools.partial(move_or_not, second, key, target, version)):
            move_or_not(first, key, target, version)
        assert world.objects("in/") == {}
        assert [event.key for event in told(first) if event.kind == "moved"].count(target) == 1
    assert len(world.objects("out/")) == 14


def test_a_copy_that_another_mover_has_finished_with_is_not_undone(world: World) -> None:
    """A creates the target; B finishes the same move; somebody writes a new source. A must not take the target away:
    it is the only copy of what was moved."""
    for at in range(14):
        key, target = f"in/{at}", f"out/{at}"
        first, second = world.connect(), world.connect()
        first.put("warm", "x")
        version = first.put(key, "old").version

        def finish_and_write() -> None:
            move_or_not(second, key, target, version)  # noqa: B023
            world.write(key, b"new")  # noqa: B023

        with contextlib.suppress(bucketmq.Contended, bucketmq.NotFound), meddling(first, at, finish_and_write):
            first.move(key, target, if_version=version)
        assert (world.objects()[key], world.objects()[target]) == (b"new", b"old"), at


def test_a_note_that_nobody_can_read_does_not_stop_the_others(memory: World) -> None:
    dying = memory.connect(at=4, fault="dies after")
    with pytest.raises(Killed):
        dying.put("a", "x")
    memory.write("inventory/notes/0.json", b"{broken")
    memory.advance(60)
    bucket = memory.connect()
    bucket.recover()
    assert memory.objects() == {"a": b"x"}
    assert summary(bucket) == [("changed", "a")]


def test_young_notes_are_left_to_their_writers_and_old_ones_of_nothing_go(memory: World) -> None:
    dying = memory.connect(at=0, fault="dies after")
    with pytest.raises(Killed):
        dying.put("a", "x")
    bucket = memory.connect()
    assert len(memory.notes()) == 1
    assert bucket.recover().reported == 0
    memory.advance(60)
    assert (bucket.recover().dropped, len(memory.notes())) == (0, 1)
    memory.advance(3600)
    assert (bucket.recover().dropped, len(memory.notes())) == (1, 0)
    assert list(log_of(bucket)) == []


def test_a_write_that_takes_longer_than_notes_are_left_alone_is_not_forgotten(memory: World) -> None:
    """Somebody recovers while a large object is on its way over an older one; then its writer dies."""
    bucket = memory.connect()
    bucket.put("a", "old")
    dying = memory.connect(at=10**9, fault="dies after")

    def meddle(number: int, request: StoreRequest) -> None:
        if isinstance(request, Replace) and request.key == "app/a":
            memory.advance(60)
            bucket.recover()
            dying.hands.at = number  # its last request

    dying.hands.meddle = meddle
    with pytest.raises(Killed):
        dying.put("a", "new")
    memory.advance(60)
    bucket.recover()
    assert memory.objects() == {"a": b"new"}
    assert summary(bucket) == [("created", "a"), ("changed", "a")]
    assert memory.notes() == []


def test_reading_is_one_request(memory: World) -> None:
    bucket = memory.connect()
    bucket.put("a", "x")
    seen: list[StoreRequest] = []
    bucket.hands.meddle = lambda _, request: seen.append(request)
    bucket.get("a")
    bucket.look("a")
    assert [type(request) for request in seen] == [Get, Look]
    assert bucket.look("b") is None
