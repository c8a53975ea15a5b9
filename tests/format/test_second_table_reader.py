"""Promise: a table is readable without this library. A reader that was written from docs/format/tables.md alone agrees
with the library on golden files, and on tables that any commits made."""

from __future__ import annotations

import ast
import hashlib
import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from procedures.tables.test_model import COMMITS, for_rows
from procedures.world import PREFIX, World

import bucketmq
from bucketmq.procedures.tables import files
from bucketmq.procedures.tables.opened import decode_head
from bucketmq.procedures.tables.unused import SWEEP_SECONDS
from bucketmq.tables import Delete, Upsert
from bucketmq.tables import head as heads
from format import second_table_reader as second
from format.second_reader import Damaged

GOLDEN = Path(__file__).parents[1] / "tables" / "golden"
WHOLE = Path(__file__).parent / "golden-table"
"""A table as written on 18 November 2026: two shards, the first older than a column, and a group that is gone."""

Row = dict[str, Any]


def by_name(rows: list[Row]) -> list[Row]:
    return sorted(rows, key=lambda row: (str(row["doc"]), row["id"]))


def agree(objects: dict[str, bytes], rows: list[Row], prefix: str = PREFIX) -> second.Table:
    """Compare both readers on the table `t`: its head, its files, its rows as the library has read them."""
    root = f"{prefix}/tables/t/" if prefix else "tables/t/"
    theirs, ours = second.read(objects, "t", prefix), decode_head(objects[f"{root}head.json"], "head.json")
    assert theirs.schema == files.read_schema(ours.schema, "head.json")
    for file, shard in zip(theirs.files, ours.shards, strict=True):
        contents = files.decode(objects[root + shard.file], shard.file, sha256=shard.sha256)
        assert file.rows.equals(files.conform(contents.rows, theirs.schema))
        assert file.gone == {group: (gone.state, gone.at) for group, gone in contents.gone.items()}
    assert [(file.start, file.stop) for file in theirs.files] == [
        (shard.start, ours.stop_of(place)) for place, shard in enumerate(ours.shards)
    ]
    assert by_name(theirs.rows()) == by_name(rows)
    assert all(second.has(theirs.head, id) and ours.has(heads.Mark(id)) for id in ours.commits)
    return theirs


@settings(max_examples=25, deadline=None)
@given(st.booleans(), st.booleans(), COMMITS)
def test_both_readers_agree_on_a_table_after_every_commit(
    grouped: bool, guarded: bool, commits: list[list[Any]]
) -> None:
    world = World()
    shape = {"key": "id", "group": "doc" if grouped else None, "newer_by": "rev" if guarded else None}
    with patch.object(files, "SPLIT_BYTES", 2_500):
        table = world.connect().table("t", **shape)
        table.upsert([{"id": 0, "doc": "g0", "rev": 0, "text": ""}])
        for number, commit in enumerate(commits):
            its = [change if grouped else for_rows(change) for change in commit]
            its = [each if guarded or isinstance(each, Upsert) else _unguarded(each) for each in its]
            table.commit(*its)
            read = agree(world.everything(), table.read().to_pylist())
            if guarded:
                _same_state(table, read, "g1" if grouped else 1, number)
    world.close()


def _unguarded(change: Any) -> Any:
    return Delete(change.groups, None, change.keys) if isinstance(change, Delete) else change


def _same_state(table: Any, read: second.Table, group: Any, number: int) -> None:
    """The library says of a change that is one state older than what the second reader finds that it is late."""
    state = read.state(group)
    if state is not None:
        assert table.commit(Delete([group], state - 1), id=f"probe-{number}").stale == (group,)


def test_both_readers_agree_on_columns_that_came_later_and_on_states_that_are_times() -> None:
    world = World()
    table = world.connect().table("t", key="id", group="doc", newer_by="at")
    early, late = datetime(2026, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC)
    rows = [
        {"id": n, "doc": f"d{n}", "at": early, "text": hashlib.sha512(b"%d" % n).hexdigest(), "note": None}
        for n in range(30)
    ]
    with patch.object(files, "SPLIT_BYTES", 2_500):
        table.upsert(rows)
        table.upsert([{**rows[0], "at": late, "note": "new", "page": 7}])
        table.commit(Delete(["d1"], late))
        table.commit(Delete(["d2"]), id="named")
    read = agree(world.everything(), table.read().to_pylist())
    assert len(read.files) > 1 and {row["page"] for row in read.rows()} == {None, 7}
    assert any("page" not in _file_schema(world, shard).names for shard in read.head["shards"])
    assert read.state("d0") == read.state("d1") == 1_767_312_000_000_000
    assert read.state("d2") == read.state("d3") == 1_767_225_600_000_000
    world.close()


def _file_schema(world: World, shard: dict[str, Any]) -> pa.Schema:
    return pq.read_schema(pa.BufferReader(world.everything()[f"{PREFIX}/tables/t/{shard['file']}"]))


def test_both_readers_agree_on_numbered_writers_and_unused_files() -> None:
    world = World()
    table = world.connect().table("t", key="id")
    for number in range(3):
        table.upsert([{"id": number, "doc": ""}])
        world.advance(SWEEP_SECONDS + 1)
    objects = world.everything()
    assert second.tables(objects, PREFIX) == ["t"]
    listed = second.unused(objects, "t", PREFIX)
    assert listed and not set(listed) & {shard["file"] for shard in second.read(objects, "t", PREFIX).head["shards"]}
    assert {f"{PREFIX}/tables/t/{file}" for file in listed} < objects.keys()
    world.close()


def test_golden_documents_of_tables_read_the_same() -> None:
    body = (GOLDEN / "table-head.json").read_bytes()
    theirs, ours = second.decode_head(body), decode_head(body, "head.json")
    assert theirs["version"] == ours.version
    assert [tuple(shard.values()) for shard in theirs["shards"]] == [
        (each.start, each.file, each.rows, each.size_bytes, each.sha256) for each in ours.shards
    ]
    (writer,) = ours.writers
    for number in (40, 41, 42):
        assert second.has(theirs, writer, number) == ours.has(heads.Mark(writer, number))
    assert second.has(theirs, "nightly") and not second.has(theirs, "weekly")
    footer = (GOLDEN / "table-footer.json").read_bytes()
    assert second.decode_gone(footer) == {"a.pdf": (7, 1_763_208_060.5)}
    assert second.unused({"tables/t/unused.json": (GOLDEN / "table-unused.json").read_bytes()}, "t") == [
        "data/x9w1m3aab7q2v8c5.parquet"
    ]


def test_a_table_of_an_earlier_day_reads_the_same(tmp_path: Path) -> None:
    objects = {path.relative_to(WHOLE).as_posix(): path.read_bytes() for path in WHOLE.rglob("*") if path.is_file()}
    for key, body in objects.items():
        (tmp_path / key).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / key).write_bytes(body)
    with bucketmq.connect(str(tmp_path)) as bucket:
        read = agree(objects, bucket.table("t").read().to_pylist(), "")
    assert sorted((row["doc"], row["id"], row["rev"], row["page"]) for row in read.rows()) == [
        ("a.pdf", 0, 2, 7),
        ("c.pdf", 0, 1, None),
        ("c.pdf", 1, 1, None),
        ("d.pdf", 0, 1, None),
        ("d.pdf", 1, 1, None),
    ]
    assert (read.state("a.pdf"), read.state("b.pdf"), read.state("c.pdf"), len(read.files)) == (2, 5, 1, 2)


@given(st.text(st.characters(exclude_categories=["Cs"])) | st.integers())
def test_slots_of_groups_are_the_same(group: str | int) -> None:
    assert second.slot_of(group) == heads.slot_of(group)


def test_the_second_reader_of_tables_imports_nothing_of_the_library() -> None:
    tree = ast.parse(Path(second.__file__).read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not any(name.startswith("bucketmq") for name in names)


def _missing(objects: dict[str, bytes], head: Any, key: str) -> None:
    del objects[key]


def _other_bytes(objects: dict[str, bytes], head: Any, key: str) -> None:
    objects[key] += b"x"


def _gap(objects: dict[str, bytes], head: Any, key: str) -> None:
    head["shards"][0]["start"] = 1


def _newer_format(objects: dict[str, bytes], head: Any, key: str) -> None:
    head["format"] = 2


@pytest.mark.parametrize("harm", [_missing, _other_bytes, _gap, _newer_format])
def test_both_readers_refuse_the_same_damage_of_a_table(harm: Any) -> None:
    world = World()
    world.connect().table("t", key="id").upsert([{"id": 1}])
    objects = world.everything()
    root = f"{PREFIX}/tables/t/"
    head = json.loads(objects[f"{root}head.json"])
    harm(objects, head, root + head["shards"][0]["file"])
    objects[f"{root}head.json"] = json.dumps(head, separators=(",", ":")).encode() + b"\n"
    with pytest.raises(Damaged):
        second.read(objects, "t", PREFIX)
    damaged = World()
    for key, body in objects.items():
        damaged.store.create(key, body)
    with pytest.raises(bucketmq.BucketMQError):
        damaged.connect().table("t").read()
    for each in (world, damaged):
        each.close()
