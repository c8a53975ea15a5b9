"""Intake: from what Spark's source gives (messages, rows of files) to the rows that the first stage takes.

A row that cannot be made is `Failed` here already; events that the filter refuses are dropped. The same intake serves
executors and watchers: it is handed the bucket it fetches from, and a way to run procedures.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, assert_never

import msgspec

from bucketmq.events import filters
from bucketmq.events.event import ObjectEvent
from bucketmq.events.filters import Decision
from bucketmq.events.window import Window
from bucketmq.pipeline.chain import Failed
from bucketmq.pipeline.columns import MESSAGE_OWN, arrow_schema, ddl_of
from bucketmq.pipeline.content import BYTES_AT_ONCE, Answer, Fetched, Unreadable, Unwanted, fetch, fetch_all
from bucketmq.pipeline.ends import EVENT_COLUMNS, FromEvents, FromQueue, FromTable, Source
from bucketmq.pipeline.fitting import fit
from bucketmq.pipeline.sets import SET_COLUMNS, FromSets
from bucketmq.pipeline.states import State, of_event
from bucketmq.procedures.objects.metadata import Cause, cause_of
from bucketmq.procedures.objects.report import has_times
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Procedure

if TYPE_CHECKING:
    import pyarrow as pa

ROWS_AT_ONCE = 10_000

_event_decoder = msgspec.json.Decoder(ObjectEvent)


class Taken(msgspec.Struct, frozen=True):
    """Rows for the first stage, and which rows of the raw batch they are."""

    batch: pa.RecordBatch
    rows: Sequence[int]
    failed: tuple[Failed, ...] = ()
    """By rows of the raw batch."""
    causes: tuple[Cause, ...] = ()
    """What writes made because of each row carry; empty where rows are not events."""
    states: tuple[State, ...] = ()
    """The state of each row's object, where a target follows it."""
    gone: tuple[tuple[State, Cause], ...] = ()
    """Objects that went, where a target follows them: these are not rows."""


class Intake(Protocol):
    def take(self, raw: pa.RecordBatch) -> Iterator[Taken]: ...


class Bucket(msgspec.Struct, frozen=True):
    """Where an intake fetches from."""

    open: OpenBucket
    run: Callable[[Procedure[Any]], Any]


def intake_of(source: Source, bucket: Callable[[], Bucket], *, collapse: bool = True, follows: bool = False) -> Intake:
    """The intake of a source. `bucket` is asked for when something has to be fetched.

    `collapse` drops duplicates of an event. Rules do that themselves. With `follows` a target follows the objects: an
    object that is gone is not a row then.
    """
    match source:
        case FromQueue(body_schema=fields):
            return Plain(source.columns) if fields is None else Bodies(source.columns, fields)
        case FromSets():
            return Bodies(source.columns, ddl_of(SET_COLUMNS))
        case FromEvents():
            return Events(source, bucket, collapse=collapse, follows=follows)
        case FromTable():
            return Plain(source.columns)
        case _:
            assert_never(source)


class Plain:
    """Rows as they are."""

    def __init__(self, columns: str) -> None:
        self._schema = arrow_schema(columns)

    def take(self, raw: pa.RecordBatch) -> Iterator[Taken]:
        yield Taken(fit(raw, self._schema, "the source"), range(raw.num_rows))


class Bodies:
    """Messages whose bodies are objects: their fields become columns."""

    def __init__(self, columns: str, body_schema: str) -> None:
        import pyarrow as pa

        from bucketmq.pipeline.bodies import BodyReader

        self._schema = arrow_schema(columns)
        self._fields = arrow_schema(body_schema)
        self._reader = BodyReader(pa.struct(list(self._fields)))

    def take(self, raw: pa.RecordBatch) -> Iterator[Taken]:
        import pyarrow as pa

        structs, rescued = self._reader.arrays(raw.column("body").cast(pa.binary()))
        failed = [
            Failed(row, "body", f"stage body: {problem}")
            for row, (found, rest) in enumerate(zip(structs.is_valid().to_pylist(), rescued.to_pylist(), strict=True))
            if (problem := self._problem(found, rest)) is not None
        ]
        bad = {each.row for each in failed}
        rows = [row for row in range(raw.num_rows) if row not in bad]
        columns = [structs.field(place) for place in range(len(self._fields))]
        columns += [raw.column(name.removeprefix("message_")) for name in MESSAGE_OWN]
        batch = pa.RecordBatch.from_arrays(columns, names=self._schema.names)
        kept = batch if not bad else batch.take(pa.array(rows, pa.int64()))
        yield Taken(fit(kept, self._schema, "the source"), rows, tuple(failed))

    def _problem(self, found: bool, rest: str | None) -> str | None:
        """Why a body does not fit, if it does not. Fields outside the schema do not matter."""
        if not found:
            return f"the body is not a JSON object: {'bytes or null' if rest is None else rest[:200]}"
        if rest is None:
            return None
        left: dict[str, msgspec.Raw] = msgspec.json.decode(rest, type=dict[str, msgspec.Raw])
        for field in self._fields:
            if field.name in left:
                value = bytes(left[field.name]).decode()[:200]
                return f"field {field.name!r} of the body is not {field.type} as declared: {value}"
        return None


class Events:
    """Messages of the queue `events`: decoded, told apart from echoes, filtered, and their objects fetched.

    A change that two sources report comes twice in the log. What one task reads is looked through for such echoes, as
    rules do (`bucketmq.events.window`); an echo that another task or batch reads is a row once more.
    """

    def __init__(self, source: FromEvents, bucket: Callable[[], Bucket], *, collapse: bool, follows: bool) -> None:
        self._source = source
        self._follows = follows
        self._collapse = collapse
        self._schema = arrow_schema(source.columns)
        self._filter = filters.parse(source.filter)
        self._bucket = bucket
        self._requests = source.content is not None or not self._filter.needs.event_only
        self._windows: dict[int, Window] = {}

    def _ask(self, event: ObjectEvent) -> Answer:
        bucket = self._bucket()
        answer: Answer = bucket.run(fetch(bucket.open, self._source, self._filter, event))
        return answer

    def take(self, raw: pa.RecordBatch) -> Iterator[Taken]:
        failed: list[Failed] = []
        wanted: list[tuple[int, ObjectEvent]] = []
        shards, offsets = raw.column("shard").to_pylist(), raw.column("offset").to_pylist()
        for row, body in enumerate(raw.column("body").to_pylist()):
            event = _event(body)
            if event is None:
                failed.append(Failed(row, "event", "stage event: not an event; only events belong into `events`"))
            elif not self._is_echo(shards[row], offsets[row], event):
                wanted.append((row, event))
        # What the event alone decides is decided before anything is fetched.
        wanted = [each for each in wanted if self._filter.decide(each[1]) is not Decision.NO_MATCH]
        rows: list[tuple[int, ObjectEvent, Fetched]] = []
        size = 0
        answers = fetch_all(self._source, self._ask, [event for _, event in wanted], requests=self._requests)
        for (row, event), answer in zip(wanted, answers, strict=True):
            match answer:
                case Unreadable(reason=reason):
                    failed.append(Failed(row, "content", f"stage content: {reason}"))
                    continue
                case Unwanted():
                    continue
            problem = self._problem(event, answer)
            if problem is not None:
                failed.append(Failed(row, "content", f"stage content: {problem}"))
                continue
            rows.append((row, event, answer))
            size += len(answer.body or b"")
            if size >= BYTES_AT_ONCE or len(rows) >= ROWS_AT_ONCE:
                yield self._taken(rows, failed)
                rows, failed, size = [], [], 0
        if rows or failed:
            yield self._taken(rows, failed)

    def _is_echo(self, shard: int, offset: int, event: ObjectEvent) -> bool:
        if not self._collapse:
            return False
        window = self._windows.get(shard)
        if window is None or offset < window.high:
            window = self._windows[shard] = Window(offset)
        verdict = window.judge(offset, event)
        if not verdict.duplicate:
            return False
        return not verdict.of or any(self._filter.decide(each) is not Decision.NO_MATCH for each in verdict.of)

    def _problem(self, event: ObjectEvent, fetched: Fetched) -> str | None:
        """Why the content is not what it should be, if it is not."""
        if fetched.body is None or self._source.content in (None, "bytes"):
            return None
        try:
            fetched.body.decode()
            if self._source.content == "json":
                msgspec.json.decode(fetched.body)
        except (UnicodeDecodeError, msgspec.DecodeError, RecursionError) as error:
            kind = "UTF-8 text" if isinstance(error, UnicodeDecodeError) else "JSON"
            return f"{event.key!r} is not {kind}: {error}"
        return None

    def _taken(self, rows: list[tuple[int, ObjectEvent, Fetched]], failed: list[Failed]) -> Taken:
        if not self._follows:
            return self._rows(rows, failed)
        living = [each for each in rows if not _is_gone(each[1], each[2])]
        states, gone = [], []
        for _, event, fetched in rows:
            own, *others = of_event(event, fetched.version, gone=_is_gone(event, fetched))
            if not own.gone:
                states.append(own)
            gone += [(each, _cause(event, fetched)) for each in (own, *others) if each.gone]
        return msgspec.structs.replace(self._rows(living, failed), states=tuple(states), gone=tuple(gone))

    def _rows(self, rows: list[tuple[int, ObjectEvent, Fetched]], failed: list[Failed]) -> Taken:
        import pyarrow as pa

        columns: dict[str, list[Any]] = {
            "event_id": [event.id for _, event, _ in rows],
            "at": [event.at for _, event, _ in rows],
            "metadata": [None if event.metadata is None else list(event.metadata.items()) for _, event, _ in rows],
            "hops": [fetched.hops for _, _, fetched in rows],
            "content": [fetched.body for _, _, fetched in rows],
            "content_version": [fetched.version for _, _, fetched in rows],
            "content_state": [fetched.state for _, _, fetched in rows],
        }
        for name in EVENT_COLUMNS:
            columns.setdefault(name, [getattr(event, name, None) for _, event, _ in rows])
        arrays = []
        for field in self._schema:
            values = columns[field.name]
            if field.name == "at":
                arrays.append(pa.array(values, pa.string()).cast(field.type))
            elif field.name == "content" and pa.types.is_string(field.type):
                arrays.append(pa.array(values, pa.binary()).cast(field.type))
            else:
                arrays.append(pa.array(values, field.type))
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        causes = tuple(_cause(event, fetched) for _, event, fetched in rows)
        return Taken(batch, [row for row, _, _ in rows], tuple(failed), causes)


def _event(body: str | None) -> ObjectEvent | None:
    try:
        event = _event_decoder.decode(body) if body is not None else None
    except msgspec.DecodeError:
        return None
    return event if event is not None and has_times(event) else None


def _is_gone(event: ObjectEvent, fetched: Fetched) -> bool:
    return event.kind == "deleted" or fetched.state == "gone"


def _cause(event: ObjectEvent, fetched: Fetched) -> Cause:
    cause = cause_of(event)
    return cause if fetched.hops < cause.hops else Cause(fetched.hops + 1, cause.lineage)


def causes_of(causes: Sequence[Cause], count: int) -> Sequence[Cause]:
    """What each of `count` rows carries that were made of rows with these causes.

    As many rows as before are taken for the same ones. Otherwise it is unknown which came of which: they carry the
    highest count of hops among those they may have come of, so that a loop ends at any rate.
    """
    if count == len(causes) or not causes:
        return causes
    return [max(causes, key=lambda each: each.hops)] * count
