"""States of source objects beside the rows that were made of them, for targets that follow their source.

What was made of an object goes with it. So a deletion is not a row for the stages: its state travels alone. And a row
of which the stages make nothing leaves its state behind, so that what was made of the object before can be removed.

Which of two states is the newer, and what is removed, is `bucketmq.pipeline.lineage`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.errors import Invalid
from bucketmq.events.event import ObjectEvent, time_text
from bucketmq.pipeline.columns import arrow_schema, column_names, type_text
from bucketmq.pipeline.ends import Target, ToObjects

if TYPE_CHECKING:
    import pyarrow as pa

STATE = "_source"
"""The column that has the state of the source object of a row."""

STATE_KIND = "struct<key:string,version:string,at:string,gone:boolean>"


class State(msgspec.Struct, frozen=True):
    """What happened to a source object, as an event tells: it has this version since then, or it is gone."""

    key: str
    version: str | None
    at: str
    """RFC 3339 in UTC with microseconds, so that times compare as text."""
    gone: bool = False


class Follows(msgspec.Struct, frozen=True):
    """The columns that tell the state of a row's source object."""

    key: str
    version: str
    at: str = "at"


def follows_of(targets: Sequence[Target], gives: str) -> Follows | None:
    """The columns of the state, if a target follows its source; `Invalid` if the stages do not let them through."""
    named = {each.follows for each in targets if isinstance(each, ToObjects) and each.follows is not None}
    if not named:
        return None
    if len(named) > 1:
        raise Invalid(f"targets follow different columns, {' and '.join(sorted(named))}; a row has one source object")
    names = column_names(gives)
    found = Follows(named.pop(), "content_version" if "content_version" in names else "version")
    wanted = {found.key: "string", found.version: "string", found.at: "timestamp"}
    for name, kind in wanted.items():
        if name not in names:
            raise Invalid(
                f"follows needs the event's column {name!r}, and the last stage gives {', '.join(names)}; "
                f"let the stages pass {', '.join(wanted)} through"
            )
        there = type_text(arrow_schema(gives).field(name).type)
        if there != kind:
            raise Invalid(f"follows needs column {name!r} as {kind}, as events have it, not {there}")
    return found


def states_of(batch: pa.RecordBatch, follows: Follows) -> pa.Array:
    """The state of each row's source object. `Invalid` for a row that does not tell it."""
    columns = [batch.column(name).to_pylist() for name in (follows.key, follows.version, follows.at)]
    states = []
    for key, version, at in zip(*columns, strict=True):
        if not key or at is None:
            raise Invalid(f"column {follows.key if not key else follows.at!r} is empty here; follows needs the event's")
        states.append(State(key, version, time_text(at.timestamp())))
    return as_column(states)


def as_column(states: Sequence[State | None]) -> pa.Array:
    import pyarrow as pa

    made = [None if each is None else msgspec.structs.asdict(each) for each in states]
    return pa.array(made, arrow_schema(f"x {STATE_KIND}").field("x").type)


def of_column(column: pa.Array) -> list[State | None]:
    """The way back."""
    return [None if each is None else State(**each) for each in column.to_pylist()]


def of_event(event: ObjectEvent, version: str | None, *, gone: bool) -> Iterator[State]:
    """What an event says about objects: the one it is about, and the one that was moved to it."""
    yield State(event.key, version or event.version, event.at, gone=gone)
    if event.from_key is not None:
        yield State(event.from_key, None, event.at, gone=True)


def gathered(batches: Sequence[pa.RecordBatch], follow: Sequence[str]) -> Sequence[pa.RecordBatch]:
    """The same rows, but all that was made of one source object is in its first row: `follow` are the columns of
    targets that follow. What is written for a state replaces what was written before, so it must be written at once."""
    states = [of_column(batch.column(STATE)) for batch in batches]
    told = [each for column in states for each in column if each is not None]
    if len(set(told)) == len(told):
        return batches
    rows = [batch.to_pylist() for batch in batches]
    first: dict[State, dict[str, Any]] = {}
    for row, state in zip([row for some in rows for row in some], [s for some in states for s in some], strict=True):
        if state is None:
            continue
        home = first.setdefault(state, row)
        if home is not row:
            for name in follow:
                home[name] = [*(home[name] or ()), *(row[name] or ())] if home[name] or row[name] else home[name]
                row[name] = None
            row[STATE] = None
    return [type(batch).from_pylist(some, schema=batch.schema) for batch, some in zip(batches, rows, strict=True)]
