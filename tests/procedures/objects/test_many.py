"""put_many, get_many, move_many and delete_many on every sort of store: what they do, report, refuse, and recover."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bucketmq
from bucketmq import Delete, Deleted, Failed, Move, Put, Read, Stored
from bucketmq.log import documents
from bucketmq.procedures.objects import batches
from bucketmq.procedures.objects.metadata import WRITE
from bucketmq.procedures.objects.notes import BatchNote, Note
from bucketmq.procedures.requests import Create, Replace, StoreRequest
from procedures.objects.world import DEATHS, FAULTS, STORES, Killed, World, log_of, summary, told


def kinds(outcomes: list[Any]) -> list[str]:
    return [each.kind if isinstance(each, Failed) else type(each).__name__ for each in outcomes]


def test_many_are_written_read_moved_and_deleted_and_each_change_is_told_once(world: World) -> None:
    bucket = world.connect()
    stored = bucket.put_many({"in/a.json": {"n": 1}, "in/b.txt": "text", "in/c": b"bytes"})
    assert [(each.key, each.event.kind, each.reported) for each in stored] == [
        ("in/a.json", "created", True),
        ("in/b.txt", "created", True),
        ("in/c", "created", True),
    ]
    read = bucket.get_many(["in/c", "in/a.json", "in/b.txt"])
    assert [(each.body, each.content_type) for each in read] == [
        (b"bytes", "application/octet-stream"),
        (b'{"n":1}', "application/json"),
        (b"text", "text/plain"),
    ]
    assert {each.version for each in stored} == {each.version for each in read}
    moved = bucket.move_many({"in/a.json": "out/a.json", "in/b.txt": "out/b.txt"})
    assert [each.event.from_key for each in moved] == ["in/a.json", "in/b.txt"]
    assert bucket.delete_many(["in/c", "out/b.txt"]) == [Deleted("in/c"), Deleted("out/b.txt")]
    assert world.objects() == {"out/a.json": b'{"n":1}'}
    assert summary(bucket) == [
        ("created", "in/a.json"),
        ("created", "in/b.txt"),
        ("created", "in/c"),
        ("moved", "out/a.json"),
        ("moved", "out/b.txt"),
        ("deleted", "in/c"),
        ("deleted", "out/b.txt"),
    ]
    assert world.notes() == []


def test_the_same_awaited(memory: World) -> None:
    bucket = memory.connect_async()
    assert kinds(bucket.put_many({"a": 1, "b": 2})) == ["Stored", "Stored"]
    assert kinds(bucket.move_many({"a": "c"})) == ["Stored"]
    assert kinds(bucket.get_many(["b", "c", "a"])) == ["Read", "Read", "not_found"]
    assert bucket.delete_many(["b", "c"]) == [Deleted("b"), Deleted("c")]
    assert memory.objects() == {}
    assert len(told(memory.connect())) == 5


def test_each_has_its_own_condition_and_what_is_refused_says_why(world: World) -> None:
    bucket = world.connect()
    old = bucket.put_many({"a": "1", "b": "1", "c": "1", "taken": "x"})
    put = bucket.put_many(
        [
            Put("a", "2", only_new=True),
            Put("b", "2", if_version=old[1].version),
            Put("c", "2", if_version="other"),
            Put("d", "2", only_new=True, metadata={"owner": "rosa"}, content_type="text/x"),
        ]
    )
    assert kinds(put) == ["contended", "Stored", "contended", "Stored"]
    assert put[0].key == "a"
    assert "already" in put[0].reason
    with pytest.raises(bucketmq.Contended, match="not at version other"):
        raise put[2].error
    assert (bucket.get("d").metadata, bucket.get("d").content_type) == ({"owner": "rosa"}, "text/x")
    moved = bucket.move_many(
        [
            Move("a", "taken"),
            Move("b", "b2", if_version=old[1].version),
            Move("c", "c2", if_version=old[2].version),
            Move("nothing", "nowhere"),
            Move("d", "d2"),
        ]
    )
    assert kinds(moved) == ["invalid", "contended", "Stored", "not_found", "Stored"]
    gone = bucket.delete_many([Delete("a", if_version="other"), "b", Delete("c2", moved[2].version), "never"])
    assert kinds(gone) == ["contended", "Deleted", "Deleted", "Deleted"]
    assert [each.was_there for each in gone[1:]] == [True, True, False]
    assert world.objects() == {"a": b"1", "taken": b"x", "d2": b"2"}
    assert world.notes() == []


def test_what_may_be_replaced_is(world: World) -> None:
    bucket = world.connect()
    bucket.put_many({"a": "mine", "b": "theirs", "c": "mine too"})
    assert kinds(bucket.move_many([Move("a", "b", replace=True), Move("c", "d", replace=True)])) == ["Stored"] * 2
    assert world.objects() == {"b": b"mine", "d": b"mine too"}


def test_bad_input_is_refused_before_anything_is_written(memory: World) -> None:
    bucket = memory.connect()
    bucket.put("a", "1")
    before = memory.everything()
    bad: list[Callable[[], Any]] = [
        lambda: bucket.put_many([Put("x", "1"), Put("x", "2")]),
        lambda: bucket.put_many({"x": "1", "queues/y": "2"}),
        lambda: bucket.put_many({"x": "1", "y": {1, 2}.__iter__()}),
        lambda: bucket.put_many([Put("x", "1", metadata={"Müll": "x"})]),
        lambda: bucket.put_many([("x", "1")]),
        lambda: bucket.move_many({"a": "a"}),
        lambda: bucket.move_many([Move("a", "b"), Move("c", "b")]),
        lambda: bucket.move_many([Move("a", "b"), Move("b", "c")]),
        lambda: bucket.move_many([("a", "b")]),
        lambda: bucket.delete_many("a"),
        lambda: bucket.delete_many(["a", "a"]),
        lambda: bucket.delete_many(["a", 7]),
        lambda: bucket.get_many("a"),
        lambda: bucket.get_many(None),
        lambda: bucket.put_many(None),
        lambda: bucket.put_many("a"),
        lambda: bucket.put_many([("a", "b")]),
        lambda: bucket.put_many([Put("a", "b", metadata=[1])]),
        lambda: bucket.put("a", "b", metadata=[1]),
        lambda: bucket.put("a", "b", metadata={1: "one"}),
        lambda: bucket.move_many(None),
        lambda: bucket.delete_many(None),
        lambda: bucket.watch(None)(print),
        lambda: bucket.rules.add("r", filter=None, to="queue:q"),
        lambda: bucket.get_many(["a", "../b"]),
    ]
    for call in bad:
        with pytest.raises(bucketmq.Invalid):
            call()
    assert memory.everything() == before
    assert bucket.put_many({}) == bucket.get_many([]) == bucket.move_many({}) == bucket.delete_many([]) == []
    assert memory.everything() == before


def test_one_note_announces_all_writes_and_is_gone_in_the_end(memory: World) -> None:
    bucket = memory.connect()
    bucket.put("warm", "up")
    bodies: list[bytes] = []

    def watch(_number: int, request: StoreRequest) -> None:
        if isinstance(request, Create) and "/notes/" in request.key:
            bodies.append(request.body)

    bucket.hands.meddle = watch
    bucket.put_many({"a": 1, "b": 2})
    (body,) = bodies
    note = documents.decode(BatchNote, body, "it")
    assert [(each.verb, each.key) for each in note.writes] == [("put", "a"), ("put", "b")]
    bucket.put_many({"c": 3})
    assert documents.decode(Note, bodies[1], "it").key == "c"


def test_a_program_that_knows_notes_of_one_write_alone_leaves_the_note_where_it_is() -> None:
    note = Note(verb="put", key="a", write="w")
    body = documents.encode(BatchNote(writes=(note, note), format=documents.BATCH_FORMAT))
    with pytest.raises(bucketmq.Corrupt, match="upgrade"):
        documents.decode(Note, body, "inventory/notes/x.json")


def test_many_are_cut_into_batches_by_count_and_by_size(memory: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "BATCH_BYTES_MAX", 100)
    bucket = memory.connect()
    sizes = [40, 40, 40, 200, 10, 10]
    outcomes = bucket.put_many({f"k{n}": b"x" * size for n, size in enumerate(sizes)})
    assert kinds(outcomes) == ["Stored"] * 6
    assert [len(batch) for batch in batches.in_batches(sizes, lambda size: size)] == [2, 1, 1, 2]
    assert [len(batch) for batch in batches.in_batches([1] * 7, objects_max=3)] == [3, 3, 1]


def test_a_batch_that_cannot_begin_fails_and_what_was_done_before_it_is_still_told(
    memory: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "BATCH_BYTES_MAX", 3)
    warm = memory.connect()
    warm.put("warm", "up")
    first = memory.connect()
    first.put_many({"x": b"xx"})
    requests = first.hands.count
    bucket = memory.connect(at=requests, fault="unavailable for long")
    outcomes = bucket.put_many({"a": b"aa", "b": b"bb", "c": b"cc"})
    assert kinds(outcomes) == ["Stored", "unavailable", "unavailable"]
    assert memory.objects() == {"a": b"aa", "warm": b"up", "x": b"xx"}


# One bad answer, or a death, at every single request


def prepared(kind: str, folder: Path) -> World:
    world = World(kind, folder)
    bucket = world.connect()
    bucket.put_many(dict.fromkeys(("a", "b", "c", "taken"), "old"))
    return world


BEFORE = dict.fromkeys(("a", "b", "c", "taken"), b"old")
VERBS: dict[str, Callable[[Any], list[Any]]] = {
    "put": lambda bucket: bucket.put_many([Put("n", "new"), Put("a", "new"), Put("b", "new", only_new=True)]),
    "move": lambda bucket: bucket.move_many([Move("a", "m"), Move("b", "taken"), Move("c", "o")]),
    "delete": lambda bucket: bucket.delete_many(["a", "never", "b"]),
}
CHANGES: dict[str, dict[str, tuple[dict[str, bytes], set[str], str]]] = {
    "put": {"n": ({"n": b"new"}, set(), "n"), "a": ({"a": b"new"}, set(), "a")},
    "move": {"m": ({"m": b"old"}, {"a"}, "m"), "o": ({"o": b"old"}, {"c"}, "o")},
    "delete": {"a": ({}, {"a"}, "a"), "b": ({}, {"b"}, "b")},
}
"""What each verb changes, by the key whose event tells of it: what comes, what goes."""


def states(verb: str) -> list[tuple[dict[str, bytes], list[str]]]:
    """Every mixture of changes made and not made, with the keys that must have been told of."""
    found: list[tuple[dict[str, bytes], list[str]]] = [(BEFORE, [])]
    for comes, goes, key in CHANGES[verb].values():
        found += [
            ({**{name: body for name, body in before.items() if name not in goes}, **comes}, [*keys, key])
            for before, keys in found
        ]
    return found


def check(world: World, verb: str, where: str) -> list[str]:
    """What was done is told, once, when all is recovered; nothing else is, and nothing is half done."""
    world.advance(60)
    bucket = world.connect()
    bucket.recover()
    world.advance(3600)
    bucket.recover()
    world.advance(3600)
    bucket.recover()
    assert world.notes() == [], where
    objects = world.objects()
    keys = next((keys for state, keys in states(verb) if state == objects), None)
    assert keys is not None, (where, objects)
    news = [event.key for event in told(bucket)[4:] if event.source == "writer"]
    assert sorted(news) == sorted(keys), where
    return keys


def places(kind: str, verb: str, folder: Path) -> range:
    world = prepared(kind, folder)
    bucket = world.connect()
    VERBS[verb](bucket)
    count: int = bucket.hands.count
    assert world.objects() == states(verb)[-1][0]
    world.close()
    return range(0, count, 5 if kind == "folder" else 1)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", STORES)
def test_one_bad_answer_anywhere_loses_nothing_and_hides_nothing(kind: str, verb: str, tmp_path: Path) -> None:
    for at in places(kind, verb, tmp_path / "plain"):
        for fault in FAULTS:
            world = prepared(kind, tmp_path / f"{at}{fault}")
            bucket = world.connect(at=at, fault=fault)
            where = f"{fault} at {at}"
            try:
                outcomes = VERBS[verb](bucket)
            except bucketmq.Unavailable:
                outcomes = []
                assert at < 2, where  # the settings of the events' queue
            assert bucket.hands.hit, where
            done = {each.event.key if isinstance(each, Stored) else each.key for each in outcomes if _is_done(each)}
            unclear = any(isinstance(each, Failed) and each.kind == "unavailable" for each in outcomes)
            keys = check(world, verb, where)
            assert done <= set(keys), where
            assert done == set(keys) or unclear or not outcomes, where
            world.close()


def _is_done(outcome: object) -> bool:
    return isinstance(outcome, Stored) or (isinstance(outcome, Deleted) and outcome.was_there)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.parametrize("kind", STORES)
def test_a_writer_that_dies_anywhere_is_finished_by_whoever_recovers(kind: str, verb: str, tmp_path: Path) -> None:
    for at in places(kind, verb, tmp_path / "plain"):
        for death in DEATHS:
            world = prepared(kind, tmp_path / f"{at}{death}")
            with pytest.raises(Killed):
                VERBS[verb](world.connect(at=at, fault=death))
            check(world, verb, f"{death} request {at}")
            world.close()


def test_what_has_landed_of_a_batch_is_reported_once_while_the_rest_is_waited_for(memory: World) -> None:
    bucket = memory.connect()
    bucket.put("warm", "up")
    dying = memory.connect()

    def meddle(_number: int, request: StoreRequest) -> None:
        if isinstance(request, Create) and request.key.endswith("/b"):
            raise Killed

    dying.hands.meddle = meddle
    with pytest.raises(Killed):
        dying.put_many({"a": 1, "b": 2, "c": 3})
    memory.advance(60)
    assert (bucket.recover().reported, summary(bucket)[1:]) == (1, [("changed", "a")])
    (name,) = memory.notes()
    left = documents.decode(BatchNote, memory.everything()[name], name)
    assert [each.key for each in left.writes] == ["b", "c"]
    for _ in range(3):
        memory.advance(60)
        assert bucket.recover().reported == 0
    # A request of the dead one lands late, and is told of.
    write = left.writes[1].write
    memory.write("c", b"3", {WRITE: write})
    memory.advance(60)
    assert (bucket.recover().reported, summary(bucket)[2:]) == (1, [("changed", "c")])
    memory.advance(3600)
    assert bucket.recover().dropped == 1
    assert memory.notes() == []
    assert len([*log_of(bucket)]) == 3


def test_a_recovery_that_comes_too_early_does_not_keep_a_slow_writer_from_reporting(memory: World) -> None:
    bucket = memory.connect()
    bucket.put("warm", "up")
    slow = memory.connect()
    recovered: list[int] = []

    def meddle(_number: int, request: StoreRequest) -> None:
        if isinstance(request, Create) and request.key.endswith("/b") and not recovered:
            memory.advance(60)
            recovered.append(bucket.recover().reported)

    slow.hands.meddle = meddle
    assert kinds(slow.put_many({"a": 1, "b": 2})) == ["Stored", "Stored"]
    assert recovered == [1]
    assert memory.notes() == []
    assert sorted(event.key for event in told(bucket)) == ["a", "b", "warm"]


def test_a_move_that_died_in_a_batch_is_repeated_to_the_same_end(tmp_path: Path) -> None:
    for kind in STORES[:3]:
        for at in places(kind, "move", tmp_path):
            world = prepared(kind, tmp_path)
            versions = {each.key: each.version for each in world.connect().get_many(["a", "c"])}
            moves = [Move("a", "m", versions["a"]), Move("c", "o", versions["c"])]
            try:
                world.connect(at=at, fault="dies after").move_many(moves)
            except Killed:
                pass
            again = world.connect().move_many(moves)
            assert world.objects() == {"m": b"old", "o": b"old", "b": b"old", "taken": b"old"}, (kind, at)
            assert all(isinstance(each, Stored) or each.kind == "not_found" for each in again)
            bucket = world.connect()
            world.advance(60)
            bucket.recover()
            moved = [event.key for event in told(bucket) if event.kind == "moved"]
            assert sorted(moved) == ["m", "o"], (kind, at)
            world.close()


def test_an_object_that_is_changed_meanwhile_is_not_written_over_blindly(memory: World) -> None:
    bucket = memory.connect()
    version = bucket.put("a", "1").version
    meddled: list[bool] = []

    def meddle(_number: int, request: StoreRequest) -> None:
        if isinstance(request, Replace) and request.key.endswith("/a") and not meddled:
            meddled.append(True)
            memory.write("a", b"theirs")

    bucket.hands.meddle = meddle
    (outcome,) = bucket.put_many([Put("a", "2", if_version=version)])
    assert outcome.kind == "contended"
    assert memory.objects() == {"a": b"theirs"}


def test_outcomes_go_out_as_json(memory: World) -> None:
    bucket = memory.connect()
    (stored,) = bucket.put_many({"a": 1})
    (missing,) = bucket.get_many(["b"])
    (read,) = bucket.get_many(["a"])
    assert isinstance(read, Read)
    assert stored.to_dict()["key"] == "a"
    assert missing.to_dict()["kind"] == "not_found"
