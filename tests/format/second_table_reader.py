"""A reader of tables, written from docs/format/tables.md alone: it imports nothing of the library, and reads Parquet
with Arrow. It is given the objects of a bucket as a dict. The section numbers are those of the page.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from format.second_reader import FORMAT, Damaged, Objects

SLOTS = 65_536

Name = str | int


@dataclass
class File:
    """The file of one shard (13.2)."""

    start: int
    stop: int
    rows: pa.Table
    gone: dict[str, tuple[int, float]]


@dataclass
class Table:
    """A table as one head has it."""

    head: dict[str, Any]
    schema: pa.Schema
    files: list[File]

    def rows(self) -> list[dict[str, Any]]:
        return [row for file in self.files for row in file.rows.to_pylist()]

    def gone(self) -> dict[str, tuple[int, float]]:
        return {group: each for file in self.files for group, each in file.gone.items()}

    def state(self, group: Name) -> int | None:
        """The state of a group (13.3)."""
        newer_by = self.head["shape"]["newer_by"]
        if newer_by is None:
            return None
        by = _by(self.head)
        states = [
            number
            for file in self.files
            for name, number in zip(file.rows[by].to_pylist(), _numbers(file.rows[newer_by]), strict=True)
            if name == group
        ]
        states += [self.gone()[str(group)][0]] if str(group) in self.gone() else []
        return max(states, default=None)


def tables(objects: Objects, prefix: str = "") -> list[str]:
    """The names of all tables: those that have a head."""
    root = f"{prefix}/tables/" if prefix else "tables/"
    parts = [key.removeprefix(root).split("/") for key in objects if key.startswith(root)]
    return sorted(name for name, *rest in parts if rest == ["head.json"])


def read(objects: Objects, table: str, prefix: str = "") -> Table:
    """The table as it is now."""
    root = f"{prefix}/tables/{table}/" if prefix else f"tables/{table}/"
    head = decode_head(objects[f"{root}head.json"])
    schema = _schema(head["schema"])
    stops = [shard["start"] for shard in head["shards"][1:]] + [SLOTS]
    files = []
    for shard, stop in zip(head["shards"], stops, strict=True):
        key = root + shard["file"]
        if key not in objects:
            raise Damaged(f"{key} is missing though the head names it")
        files.append(_file(key, objects[key], shard, stop, schema))
        _check_slots(key, files[-1], _by(head))
    made = Table(head, schema, files)
    _check_once(made)
    return made


def decode_head(body: bytes) -> dict[str, Any]:
    """The head (13.1), checked."""
    head = _value(body, "the head")
    starts = [shard["start"] for shard in head["shards"]]
    if not starts or starts[0] != 0 or starts != sorted(set(starts)) or starts[-1] >= SLOTS:
        raise Damaged(f"the shards begin at {starts}")
    names = [shard["file"] for shard in head["shards"]]
    if len(set(names)) != len(names) or not all(name.startswith("data/") and ".." not in name for name in names):
        raise Damaged(f"the files are {names}")
    if head["version"] < 1:
        raise Damaged(f"the version is {head['version']}")
    return head


def has(head: dict[str, Any], id: str, number: int | None = None) -> bool:
    """Whether the head remembers a commit (13.3, step 1)."""
    if number is None:
        return id in head["commits"]
    return id in head["writers"] and int(head["writers"][id]) >= number


def unused(objects: Objects, table: str, prefix: str = "") -> list[str]:
    """The files that were in no head when it was last looked (13.4)."""
    key = f"{prefix}/tables/{table}/unused.json" if prefix else f"tables/{table}/unused.json"
    if key not in objects:
        return []
    return list(_value(objects[key], key)["files"])


def decode_gone(footer: bytes) -> dict[str, tuple[int, float]]:
    """The groups of which something is gone: the state, and when (13.2)."""
    return {group: (state, at) for group, (state, at) in json.loads(footer).get("gone", {}).items()}


def slot_of(group: Name) -> int:
    """13.1: the first 16 bits of a hash."""
    first, second, *_ = hashlib.sha256(str(group).encode()).digest()
    return 256 * first + second


def _file(key: str, body: bytes, shard: dict[str, Any], stop: int, schema: pa.Schema) -> File:
    if hashlib.sha256(body).hexdigest() != shard["sha256"] or len(body) != shard["size_bytes"]:
        raise Damaged(f"{key} is not the file that the head names")
    parquet = pq.ParquetFile(pa.BufferReader(pa.py_buffer(body)))
    rows = _with_columns(parquet.read(), schema)
    gone = decode_gone((parquet.metadata.metadata or {}).get(b"bucketmq", b"{}"))
    if rows.num_rows != shard["rows"]:
        raise Damaged(f"{key} has {rows.num_rows} rows, the head says {shard['rows']}")
    return File(shard["start"], stop, rows, gone)


def _check_slots(key: str, file: File, by: str) -> None:
    for group in [*file.rows[by].to_pylist(), *file.gone]:
        if group is None or not file.start <= slot_of(group) < file.stop:
            raise Damaged(f"{key} has the group {group!r}, which belongs to another shard")


def _with_columns(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The columns of the table, in its order and of its types; null where the file is older than the column."""
    unknown = set(rows.column_names) - set(schema.names)
    if unknown:
        raise Damaged(f"the table has no columns {unknown}")
    columns = [
        rows[field.name].cast(field.type) if field.name in rows.column_names else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.table(columns, schema=schema)


def _check_once(table: Table) -> None:
    shape = table.head["shape"]
    names = [(row[_by(table.head)], row[shape["key"]]) for row in table.rows()]
    if len(set(names)) != len(names) or any(name is None for pair in names for name in pair):
        raise Damaged("a row is there twice, or has no name")


def _by(head: dict[str, Any]) -> str:
    """The column that says which rows belong together."""
    return str(head["shape"]["group"] or head["shape"]["key"])


def _numbers(column: pa.ChunkedArray) -> Iterator[int]:
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", tz=column.type.tz), safe=False).cast(pa.int64())
    yield from column.to_pylist()


def _schema(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.BufferReader(base64.b64decode(text, validate=True)))


def _value(body: bytes, what: str) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError as error:
        raise Damaged(f"{what}: {error}") from error
    if not isinstance(found, dict) or found.get("format", 0) > FORMAT:
        raise Damaged(f"{what} is of another format")
    return found
