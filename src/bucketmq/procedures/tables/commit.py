"""Committing: files first, then the head, replaced if it is unchanged.

```text
Get head.json
Get the files of the shards that are touched
Create their new files                       under names that nobody else uses
Replace head.json                            Written: done
                                             Refused or Unknown: Get head.json; our mark in it: done; otherwise again,
                                             with the new files of shards that nobody else has touched meanwhile
```

What a committer that died has written is in no head, so it is not in the table, and it is removed later (`unused`). For
that no file may get into a head that is older than `FRESH_SECONDS`: it is written again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from bucketmq.bucket.port import Missing, Written
from bucketmq.errors import Corrupt, Invalid
from bucketmq.procedures.lane import share
from bucketmq.procedures.requests import Call, NewId, Now, Procedure
from bucketmq.procedures.tables.files import (
    Contents,
    Done,
    Work,
    check_step,
    decode,
    part_of,
    read_schema,
    rewrite,
    schema_text,
    unified,
)
from bucketmq.procedures.tables.opened import Committed, Load, OpenTable, read_head, shape_of
from bucketmq.procedures.tables.steps import Step, step_of
from bucketmq.procedures.tables.unused import FRESH_SECONDS, SWEEP_SECONDS, remove_unused
from bucketmq.procedures.verbs import Patience, create_named, get_many, put_over
from bucketmq.queue.settings import check_name
from bucketmq.tables.changes import Change
from bucketmq.tables.head import GroupValue, Head, Mark, Shard, after_commit, slot_of

if TYPE_CHECKING:
    import pyarrow as pa


Places = dict[int, list[tuple[Load, Step]]]
"""What is to be done in each shard, by its place in the head."""


class Made(msgspec.Struct, frozen=True):
    """The files that were written to take the place of one."""

    shards: tuple[Shard, ...]
    stale: tuple[frozenset[GroupValue], ...]
    """For each step of the shard."""
    at: float
    """When writing them began, on the store's clock."""


class Job(msgspec.Struct, frozen=True):
    """What is to be done elsewhere."""

    head: Head
    schema: str
    done: frozenset[str]
    """The files of shards whose successors are written already."""


MakeFiles = Callable[[Job], Mapping[str, Made]]
"""Writes the files of a commit, for instance on executors: by the file that they take the place of."""


def commit(table: OpenTable, changes: Sequence[Change], *, mark: Mark | None = None) -> Procedure[Committed]:
    """Apply changes, all or none of them, once for each mark. Commits of one process that come together ride together.

    Two GETs and two PUTs for a commit that touches one shard, whatever the table holds; a GET and a PUT more for each
    other shard. No PUT if nothing changes, and the caller did not name it.
    """
    shape = yield from shape_of(table)
    steps = [step_of(change, shape) for change in changes]
    return (yield from commit_steps(table, steps, mark=mark))


def commit_steps(table: OpenTable, steps: Sequence[Step], *, mark: Mark | None = None) -> Procedure[Committed]:
    """The same, for changes that were worked out."""
    if mark is not None:
        check_name(mark.id, "commit id")
    load = Load(mark, list(steps))
    yield from share(table.lane, load, lambda loads: _Carrying(table, loads).carry())
    assert load.committed is not None
    return load.committed


class _Outdated(Exception):
    """The head was read so long ago that a file of it is gone. Never leaves this module."""


class _Carrying:
    """Commits on their way together, with one write of the head."""

    def __init__(self, table: OpenTable, loads: list[Load]) -> None:
        self._table = table
        self._loads = loads
        self._made: dict[str, Made] = {}
        """By the file that they take the place of."""
        self._basis: tuple[str, list[Load]] = "", []
        """What they were made with: the columns, and the loads."""
        self._tried: dict[str, list[tuple[Load, Committed]]] = {}
        """What each write of the head said, by its id: whatever the store answered, one of them may have landed."""

    def carry(self) -> Procedure[None]:
        patience = Patience(f"committing to {self._table.keys.head}")
        while (reply := (yield from self._attempt())) is not None:
            yield from patience.again(reply)

    def _attempt(self) -> Procedure[object | None]:
        """Try once; None when there is nothing left to do."""
        table = self._table
        found = yield from read_head(table)
        waiting = self._waiting(found[0] if found else None)
        head, schema = _begun(table, found[0] if found else None, waiting)
        waiting = [load for load in waiting if load.error is None]
        if not waiting or head is None or schema is None:
            for load in waiting:
                load.committed = Committed(0)  # deletions from a table that is not there
            return None
        now = yield from Now()
        text = schema_text(schema)
        if self._basis != (text, waiting):
            self._made, self._basis = {}, (text, waiting)
        try:
            places = yield from self._make(head, schema, waiting, now)
        except _Outdated as error:
            return error
        if (yield from Now()) - min((each.at for each in self._made.values()), default=now) >= FRESH_SECONDS:
            return "the new files are too old"
        instead = {head.shards[place].file: self._made[head.shards[place].file].shards for place in places}
        instead = {file: shards for file, shards in instead.items() if shards}
        if not instead and text == head.schema and not any(load.mark for load in waiting):
            for load, committed in self._told(head.version, head, waiting, places):
                load.committed = committed
            return None
        sweeps = now - head.swept_at >= SWEEP_SECONDS
        own = yield from NewId()
        marks = [Mark(own), *(load.mark for load in waiting if load.mark is not None)]
        swept_at = now if sweeps else head.swept_at
        after = after_commit(head, marks, instead, schema=text, swept_at=swept_at)
        self._tried[own] = self._told(after.version, head, waiting, places)
        reply = yield from put_over(table.keys.head, after, found[1].version if found else None)
        if not isinstance(reply, Written):
            return reply
        self._waiting(after)
        if sweeps:
            yield from remove_unused(table, after)
        return None

    def _waiting(self, head: Head | None) -> list[Load]:
        """The loads that the head does not have; the others are told what became of them."""
        for own, told in self._tried.items():
            if head is not None and own in head.commits:
                for load, committed in told:
                    load.committed, load.error = committed, None
        waiting: list[Load] = []
        for load in self._loads:
            if load.committed is not None or load.error is not None:
                continue
            if head is not None and load.mark is not None and head.has(load.mark):
                load.committed = Committed(head.version, already=True)
            elif load.mark is None or load.mark not in [other.mark for other in waiting]:
                waiting.append(load)  # the same commit twice at a time: the second finds the first
        return waiting

    def _make(self, head: Head, schema: pa.Schema, loads: list[Load], now: float) -> Procedure[Places]:
        """Write the new files of the shards that are touched and have none yet, or old ones."""
        places = _places(head, loads)
        self._made = {file: each for file, each in self._made.items() if now - each.at < FRESH_SECONDS}
        for place, its in places.items():
            shard = head.shards[place]
            if shard.file not in self._made:
                steps = [step for _, step in its]
                self._made[shard.file] = yield from write_shard(self._table, head, shard, schema, steps)
        return places

    def _told(self, version: int, head: Head, loads: list[Load], places: Places) -> list[tuple[Load, Committed]]:
        """What each caller is told if a write of the head landed."""
        stale: dict[Load, dict[GroupValue, None]] = {load: {} for load in loads}
        for place, its in places.items():
            for (load, _), old in zip(its, self._made[head.shards[place].file].stale, strict=True):
                stale[load].update(dict.fromkeys(sorted(old, key=str)))
        return [(load, Committed(version, tuple(groups))) for load, groups in stale.items()]


def commit_elsewhere(table: OpenTable, schema: pa.Schema, mark: Mark, make: MakeFiles) -> Procedure[Committed]:
    """Commit what `make` puts into files, for rows with these columns, once for each mark.

    `make` is handed the head and the columns that the table is to have, and the files of shards that it need not look
    at again; for each other shard that it touches it answers what `write_shard` made of it.
    """
    check_name(mark.id, "commit id")
    load = Load(mark, [Step({}, schema.empty_table())])
    yield from _Elsewhere(table, load, make).carry()
    if load.error is not None:
        raise load.error
    assert load.committed is not None
    return load.committed


class _Elsewhere(_Carrying):
    """A commit whose files others write."""

    def __init__(self, table: OpenTable, load: Load, make: MakeFiles) -> None:
        super().__init__(table, [load])
        self._elsewhere = make

    def _make(self, head: Head, schema: pa.Schema, loads: list[Load], now: float) -> Procedure[Places]:
        self._made = {file: each for file, each in self._made.items() if now - each.at < FRESH_SECONDS}
        job = Job(head, schema_text(schema), frozenset(self._made))
        made: Mapping[str, Made] = yield from Call(self._elsewhere, job)
        self._made.update(made)
        if not head.version and not self._made:  # a table that is new gets a file at any rate
            blank = yield from write_shard(self._table, head, head.shards[0], schema, ())
            self._made[head.shards[0].file] = blank
        (load,) = loads
        touched = [place for place, shard in enumerate(head.shards) if shard.file in self._made]
        return {place: [(load, load.steps[0])] * len(self._made[head.shards[place].file].stale) for place in touched}


def _begun(table: OpenTable, head: Head | None, loads: list[Load]) -> tuple[Head | None, pa.Schema | None]:
    """The head to begin with, and the columns that the table has then. A load that does not fit gets its error."""
    schema = None if head is None else read_schema(head.schema, table.keys.head)
    assert table.shape is not None  # by `shape_of`, before anything is carried
    shape = table.shape if head is None else head.shape
    for load in loads:
        wider = schema
        try:
            for step in load.steps:
                wider = wider if step.rows is None else unified(wider, step.rows)
                if wider is not None:
                    check_step(step, wider, shape)
        except Invalid as error:
            load.error = error
        else:
            schema = wider
    if head is None and schema is not None:
        head = Head(version=0, shape=shape, schema="", shards=(Shard(0, "", 0, 0, ""),))
    return head, schema


def _places(head: Head, loads: list[Load]) -> Places:
    """What is to be done in each shard, in the order it came. A table that is new gets a file at any rate."""
    found: Places = {} if head.version else {0: []}
    for load in loads:
        for step in load.steps:
            groups: dict[int, list[GroupValue]] = {}
            for group in step.groups:
                groups.setdefault(head.place_of(slot_of(group)), []).append(group)
            for place, its in groups.items():
                found.setdefault(place, []).append((load, part_of(step, its, head.shape)))
    return found


def write_shard(
    table: OpenTable, head: Head, shard: Shard, schema: pa.Schema, steps: Sequence[Step]
) -> Procedure[Made]:
    """Apply steps to a shard of a head and write the files that take its place. One GET and one PUT; more PUTs if it is
    divided, none if nothing changes."""
    at = yield from Now()
    before = yield from _contents(table, shard, schema)
    work = Work(shard.start, before, steps, head.shape, schema, at, new=not shard.file)
    done: Done = yield from Call(rewrite, work)
    shards = []
    for piece in done.pieces:
        file = table.keys.file((yield from NewId()))
        yield from create_named(table.keys.at(file), piece.body)
        shards.append(Shard(piece.start, file, piece.rows, len(piece.body), piece.sha256))
    return Made(tuple(shards), done.stale, at)


def _contents(table: OpenTable, shard: Shard, schema: pa.Schema) -> Procedure[Contents]:
    if not shard.file:
        return Contents(schema.empty_table())
    key = table.keys.at(shard.file)
    (found,) = yield from get_many([key])
    if isinstance(found, Missing):
        head = yield from read_head(table)
        if head is not None and shard.file in head[0].files:
            raise Corrupt(f"{key} is missing though the head of table {table.name!r} names it; restore it from a copy")
        raise _Outdated(f"{key} was replaced long ago")
    return decode(found.body, key, sha256=shard.sha256)
