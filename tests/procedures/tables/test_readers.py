"""What other tools see of a table, from its head and its files alone: exactly its rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest

import bucketmq
from bucketmq.procedures.tables import files as table_files
from bucketmq.tables.head import slot_of
from procedures.tables.shards import SHAPE, chunks


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table of several files, some without the column that was added last, with groups that were deleted."""
    monkeypatch.setattr(table_files, "SPLIT_BYTES", 4_000)
    with bucketmq.connect(str(tmp_path)) as bucket:
        table = bucket.table("t", **SHAPE)
        for n in range(40):
            table.replace(f"d{n}", chunks(f"d{n}", 3))
        table.delete("d3", "d4", newer=2)
        table.replace("d5", [{**row, "late": 1} for row in chunks("d5", 1, rev=2)])
    return tmp_path / "tables" / "t"


def files_of(folder: Path) -> list[str]:
    head = json.loads((folder / "head.json").read_text())
    assert len(head["shards"]) > 2
    return [f"{folder}/{shard['file']}" for shard in head["shards"]]


EXPECTED = sorted([*((f"d{n}", k) for n in range(40) for k in range(3) if n not in (3, 4, 5)), ("d5", 0)])


def test_duckdb_sees_the_rows(folder: Path) -> None:
    rows = duckdb.read_parquet(files_of(folder), union_by_name=True).select("doc, id, late").fetchall()
    assert sorted((doc, n) for doc, n, _ in rows) == EXPECTED
    assert [late for _, _, late in rows if late is not None] == [1]


def test_pandas_sees_the_rows(folder: Path) -> None:
    rows: Any = pd.concat(pd.read_parquet(file) for file in files_of(folder))
    assert sorted(zip(rows["doc"], rows["id"], strict=True)) == EXPECTED


def test_every_row_lies_in_the_file_of_its_slot(folder: Path) -> None:
    """By the format page alone: the slot of a group says where its rows are."""
    head = json.loads((folder / "head.json").read_text())
    stops = [*(shard["start"] for shard in head["shards"][1:]), 65_536]
    for shard, stop in zip(head["shards"], stops, strict=True):
        rows = pd.read_parquet(folder / shard["file"])
        assert len(rows) == shard["rows"]
        assert all(shard["start"] <= slot_of(doc) < stop for doc in rows["doc"])


def test_a_reader_that_knows_files_reads_only_those_that_changed(folder: Path) -> None:
    with bucketmq.connect(str(folder.parents[1])) as bucket:
        table = bucket.table("t")
        before = table.snapshot()
        kept = table.read_files(before, before.files)
        table.replace("d7", chunks("d7", 1, rev=2))
        after = table.snapshot()
        new = [file for file in after.files if file not in kept]
        requests = bucket.requests
        read = table.read_files(after, new, columns=["doc", "id"])
        assert (bucket.requests - requests).get == len(new) == 1
        parts = [*read.values(), *(kept[file] for file in after.files if file in kept)]
        rows = [row for part in parts for row in part.to_pylist()]
        assert sorted((row["doc"], row["id"]) for row in rows) == sorted({*EXPECTED} - {("d7", 1), ("d7", 2)})
        with pytest.raises(bucketmq.Invalid, match="does not have all of these files"):
            table.read_files(after, before.files)
