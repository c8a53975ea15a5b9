"""What an inspection of a table finds, by hand-made damage; and dropping tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest

import bucketmq
from bucketmq.api.tables import TableApi
from bucketmq.procedures.tables import files
from bucketmq.procedures.tables.inspect import TableInspection, inspect_table
from procedures.tables.shards import SHAPE, chunks, content
from procedures.world import World

HEAD = "app/tables/t/head.json"


def inspected(bucket: Any) -> TableInspection:
    def work() -> Any:
        return (yield from inspect_table((yield from TableApi(bucket.api, "t", None, None, None).open())))

    found: TableInspection = bucket.run(work())
    return found


def data(world: World) -> list[str]:
    """The files that the head names."""
    return [f"app/tables/t/{shard['file']}" for shard in msgspec.json.decode(world.read(HEAD))["shards"]]


def flip(world: World, key: str) -> None:
    body = bytearray(world.read(key))
    body[len(body) // 2] ^= 1
    world.overwrite(key, bytes(body))


def edit_head(**changes: Any) -> Callable[[World], None]:
    def edit(world: World) -> None:
        head = msgspec.json.decode(world.read(HEAD))
        head.update(changes)
        world.overwrite(HEAD, msgspec.json.encode(head))

    return edit


def miscount(world: World) -> None:
    head = msgspec.json.decode(world.read(HEAD))
    head["shards"][0]["rows"] += 1
    world.overwrite(HEAD, msgspec.json.encode(head))


def swap(world: World) -> None:
    """Each of two shards gets the other's file."""
    head = msgspec.json.decode(world.read(HEAD))
    first, second = head["shards"][:2]
    first["start"], second["start"] = second["start"], first["start"]
    head["shards"][:2] = [second, first]
    world.overwrite(HEAD, msgspec.json.encode(head))


DAMAGE: dict[str, tuple[Callable[[World], None], str]] = {
    "a file is deleted": (lambda world: world.store.delete(data(world)[0]), "missing file"),
    "a bit of a file is flipped": (lambda world: flip(world, data(world)[0]), "damaged file"),
    "a file is cut": (lambda world: world.overwrite(data(world)[0], world.read(data(world)[0])[:100]), "damaged file"),
    "a file is empty": (lambda world: world.overwrite(data(world)[0], b""), "damaged file"),
    "the head is deleted": (lambda world: world.store.delete(HEAD), "no head"),
    "the head is garbage": (lambda world: world.overwrite(HEAD, b"\0\xff"), "unreadable head"),
    "the head is empty": (lambda world: world.overwrite(HEAD, b""), "unreadable head"),
    "the head is of a newer format": (edit_head(format=99), "unreadable head"),
    "the head has no shards": (edit_head(shards=[]), "unreadable head"),
    "the head has no columns": (edit_head(schema="bm9uZQ=="), "unreadable head"),
    "the head miscounts": (miscount, "damaged file"),
    "two files are swapped": (swap, "damaged file"),
}


@pytest.fixture
def filled(blocking: World, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setattr(files, "SPLIT_BYTES", 4_000)
    table = blocking.connect().table("t", **SHAPE)
    for doc in "abcdefgh":
        table.replace(doc, chunks(doc, 5))
    assert len(table.snapshot().files) > 1
    return blocking


def test_a_table_that_is_whole_has_no_findings(filled: World) -> None:
    found = inspected(filled.connect())
    assert (found.findings, found.rows) == ((), 40)
    assert found.files > 1


@pytest.mark.parametrize("what", DAMAGE)
def test_damage_is_found_and_nothing_is_changed(filled: World, what: str) -> None:
    damage, kind = DAMAGE[what]
    damage(filled)
    before = filled.everything()
    findings = inspected(filled.connect()).findings
    assert kind in {each.kind for each in findings}
    assert all("app/tables/t/" in each.key and each.cure for each in findings)
    assert filled.everything() == before


def test_a_table_that_is_dropped_leaves_nothing_and_can_be_made_again(filled: World) -> None:
    bucket = filled.connect()
    assert bucket.tables() == ["t"]
    assert bucket.table("t").drop()
    assert not any("tables/" in key for key in filled.everything())
    assert bucket.tables() == []
    assert not bucket.table("t", **SHAPE).drop()
    again = bucket.table("t", **SHAPE)
    again.replace("a", chunks("a"))
    assert list(content(again)) == ["a"]


def test_dropping_what_was_never_made_says_so(blocking: World) -> None:
    assert blocking.connect().table("t", key="id").drop() is False
    with pytest.raises(bucketmq.NotFound):
        blocking.connect().table("t").upsert([{"id": 1}])
