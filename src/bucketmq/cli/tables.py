"""The verbs tables ls, show and rm: what tables hold, and removing one. Committing rows is for programs."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from bucketmq.cli.exits import agree, nothing
from bucketmq.cli.options import Json, Url, Yes, open_bucket
from bucketmq.cli.output import answer, emit_all, emit_text, plural, table
from bucketmq.client import Bucket
from bucketmq.errors import BucketMQError, Invalid
from bucketmq.procedures.tables.files import read_schema

TableName = Annotated[str, typer.Argument(metavar="NAME", help="The table's name; see: bucketmq tables ls.")]


def ls(url: Url = None, as_json: Json = False) -> None:
    """List the tables: how many rows each has, in how many files, and its version, which grows with every commit."""
    with open_bucket(url, probe=False) as bucket:
        found = [_row(bucket, name) for name in bucket.tables()]
    if not found:
        nothing("there are no tables; bucket.table(NAME, key=...) makes one with its first commit")
    if as_json:
        emit_all(found)
        return
    rows = [
        (row["name"], *(f"{row[name]:,}" for name in ("rows", "size_bytes", "files", "version")))
        if not row["problem"]
        else (row["name"], "", "", "", f"cannot be read: {row['problem']}")
        for row in found
    ]
    table(("table", "#rows", "#bytes", "#files", "#version"), rows)


def _row(bucket: Bucket, name: str) -> dict[str, Any]:
    """One that cannot be read is listed too."""
    try:
        found = bucket.table(name).snapshot()
    except BucketMQError as error:
        return {"name": name, "rows": None, "size_bytes": None, "files": None, "version": None, "problem": str(error)}
    counts = {"rows": found.rows, "size_bytes": found.size_bytes, "files": len(found.files), "version": found.version}
    return {"name": name, **counts, "problem": None}


def show(
    name: TableName,
    *,
    limit: Annotated[int, typer.Option("--limit", "-n", min=0, max=10_000, help="Rows to show.")] = 10,
    group: Annotated[str | None, typer.Option(metavar="VALUE", help="Only rows of this group, or this key.")] = None,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """Show a table: its columns, what tells its rows apart, and some rows. With --json, rows as they are."""
    with open_bucket(url, probe=False) as bucket:
        opened = bucket.table(name)
        here = opened.snapshot()
        shape = here.head.shape
        schema = read_schema(here.head.schema, name)
        values = None if group is None else [_value(group, schema, shape.by)]
        groups, keys = (values, None) if shape.group is not None else (None, values)
        rows = opened.read(at=here, groups=groups, keys=keys).slice(0, limit).to_pylist() if limit else []
    if as_json:
        emit_all(rows)
        return
    emit_text(f"{name}: {plural(here.rows, 'row')} in {plural(len(here.files), 'file')}, version {here.version}")
    emit_text(f"  key {shape.key}, group {shape.group or '-'}, newer by {shape.newer_by or '-'}")
    for field in schema:
        emit_text(f"  {field.name}: {field.type}")
    if rows:
        table(schema.names, [[_cell(row[column]) for column in schema.names] for row in rows])


def _value(text: str, schema: Any, column: str) -> str | int:
    from pyarrow import types

    if not types.is_integer(schema.field(column).type):
        return text
    if not text.removeprefix("-").isdecimal():
        raise Invalid(f"column {column!r} is a whole number, which {text!r} is not")
    return int(text)


CELL_CHARS_MAX = 60


def _cell(value: Any) -> str:
    if isinstance(value, bytes):
        return f"({plural(len(value), 'byte')})"
    text = "" if value is None else str(value)
    return text if len(text) <= CELL_CHARS_MAX else f"{text[: CELL_CHARS_MAX - 1]}…"


def rm(name: TableName, *, yes: Yes = False, url: Url = None, as_json: Json = False) -> None:
    """Remove a table with all its rows, after asking. There is no way back. A later commit creates it again."""
    with open_bucket(url) as bucket:
        rows = bucket.table(name).snapshot().rows
        agree(f"Remove table {name} with {plural(rows, 'row')}?", yes=yes)
        bucket.table(name).drop()
    answer({"table": name, "rows": rows}, f"removed table {name} with {plural(rows, 'row')}", as_json=as_json)
