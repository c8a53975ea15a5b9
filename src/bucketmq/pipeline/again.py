"""Running a pipeline again over part of what it has read: the same events or messages are told to it alone.

They go into the log it reads, directed to its name, under their old ids; every other reader passes them over. The
pipeline treats them like any others, so it need not be stopped, and a target that leaves equal results alone writes
only what has changed. What is needed of the log is read here when asked for; nothing is kept.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from bucketmq.errors import Invalid, NotFound
from bucketmq.events.event import seconds_of
from bucketmq.events.rule import Rule, ToWatcher
from bucketmq.log.bodies import to_base64
from bucketmq.pipeline.dead import with_own_body
from bucketmq.pipeline.ends import FromEvents, FromQueue, ToObjects
from bucketmq.pipeline.pipeline import Pipeline
from bucketmq.procedures.claiming.browse import body_of
from bucketmq.procedures.claiming.receive import position_of_time
from bucketmq.procedures.objects.report import REPLAY_HEADER
from bucketmq.procedures.opened import OpenBucket, OpenQueue
from bucketmq.procedures.pace import BATCH, RATE_PER_SECOND, Pace
from bucketmq.procedures.queues import open_queue
from bucketmq.procedures.requests import NewId, Procedure
from bucketmq.procedures.rules.registry import get_rule
from bucketmq.procedures.rules.replay import replay
from bucketmq.procedures.segments.messages import read_segment, read_span
from bucketmq.procedures.segments.tail import fresh_tail, trim_mark
from bucketmq.procedures.sending.directed import send_to
from bucketmq.procedures.upkeep.readers import read_reader
from bucketmq.procedures.verbs import list_page
from bucketmq.queue.head import Span
from bucketmq.queue.message import Message
from bucketmq.values import Value

WRITES_OF_AN_OBJECT = 3
"""A note, the object, its event. One that would be equal is read, and not written."""


class Which(msgspec.Struct, frozen=True, kw_only=True):
    """What is told again. Keys are those of objects, or of messages where the pipeline reads a queue; the prefix `''`
    is that of all. Times are seconds since 1970; keys and a time span narrow each other."""

    keys: tuple[str, ...] = ()
    prefix: str | None = None
    since: float | None = None
    until: float | None = None

    def __post_init__(self) -> None:
        if self.keys and self.prefix is not None:
            raise Invalid("name keys or a prefix, not both")
        if not self.keys and self.prefix is None and self.since is None:
            raise Invalid("say what to run again: keys, a prefix ('' is everything), or a time since when")
        if self.until is not None and self.since is None:
            raise Invalid("until goes with since")

    def names(self, key: str | None) -> bool:
        return key in self.keys if self.keys else (key or "").startswith(self.prefix or "")

    def covers(self, at: float) -> bool:
        return (self.since or 0.0) <= at and (self.until is None or at <= self.until)


class Retold(Value, msgspec.Struct, frozen=True):
    """What was told again, or would be; and how much that costs at most, the pipeline's part included."""

    pipeline: str
    told: int
    looked_at: int
    reads_max: int
    writes_max: int


def retell(
    bucket: OpenBucket,
    pipeline: Pipeline,
    which: Which,
    *,
    rate_per_second: float = RATE_PER_SECOND,
    dry_run: bool = False,
    progress: Callable[[int], None] = lambda _: None,
) -> Procedure[Retold]:
    """Tell a pipeline again what it was told before, and nobody else.

    Of events: with keys or a prefix alone, one for each such object that is there now (a HEAD each, or a LIST per
    1,000); with a time span, what the log has. Of a queue: the messages that the log still has (a GET for each
    segment from `since` on). `NotFound` if the pipeline has never run on this bucket: nobody would hear it.
    """
    counting = next((each.name for each in pipeline.stages if each.keyed is not None), None)
    if counting is not None:
        raise Invalid(f"stage {counting!r} keeps state by key, and would count again what is sent again")
    pace = Pace(rate_per_second)
    match pipeline.source:
        case FromEvents() as source:
            rules = yield from _readers_of_events(bucket, pipeline, source)
            told = looked_at = 0
            for rule in rules:
                for key in which.keys or (None,):
                    found = yield from replay(
                        bucket,
                        rule,
                        key=key,
                        prefix=which.prefix,
                        since=which.since,
                        until=which.until,
                        rate_per_second=rate_per_second,
                        dry_run=dry_run,
                        progress=progress,
                    )
                    told, looked_at = told + found.events, looked_at + found.looked_at
            return _retold(pipeline, told, looked_at)
        case FromQueue(queue=name):
            queue = yield from open_queue(bucket, name, {}, create=False)
            yield from _check_reader(queue, pipeline.name)
            teller = _Teller(queue, pipeline.name, (yield from NewId()), pace, progress, dry_run=dry_run)
            for shard in range(queue.settings.shards):
                yield from _retell_shard(queue, shard, which, teller)
            yield from teller.flush()
            return _retold(pipeline, teller.told, teller.looked_at)
        case _:
            raise Invalid(
                f"pipeline {pipeline.name!r} reads a table, which nobody can tell again; run it with a new checkpoint"
            )


def _retold(pipeline: Pipeline, told: int, looked_at: int) -> Retold:
    source = pipeline.source
    fetches = isinstance(source, FromEvents) and source.content is not None
    objects = sum(isinstance(each, ToObjects) for each in pipeline.outputs)
    return Retold(
        pipeline.name,
        told,
        looked_at,
        reads_max=told * (fetches + objects),
        writes_max=-(-told // BATCH) + told * WRITES_OF_AN_OBJECT * objects,
    )


def _readers_of_events(bucket: OpenBucket, pipeline: Pipeline, source: FromEvents) -> Procedure[list[Rule]]:
    """Those that run the pipeline: the reader of a query on Spark as a rule, and the rule of a watcher."""
    found: list[Rule] = []
    try:
        queue = yield from open_queue(bucket, source.log, {}, create=False)
        if (yield from read_reader(queue, pipeline.name)) is not None:
            found.append(Rule(name=pipeline.name, filter=source.filter, to=ToWatcher(), subscription=pipeline.name))
        found.append((yield from get_rule(bucket, pipeline.name)))
    except NotFound:
        pass
    if not found:
        raise NotFound(_never_ran(pipeline.name))
    return found


def _check_reader(queue: OpenQueue, name: str) -> Procedure[None]:
    """Whether a query on Spark or a subscription has this name. A GET, and a LIST if it is not a query."""
    if (yield from read_reader(queue, name)) is not None:
        return
    if not (yield from list_page(f"{queue.keys.heads}{name}/", limit=1)).entries:
        raise NotFound(_never_ran(name))


def _never_ran(name: str) -> str:
    return f"pipeline {name!r} has never run on this bucket, so nothing can be told to it again; run it first"


class _Teller:
    """Sends what is gathered to one reader, no faster than asked."""

    def __init__(
        self,
        queue: OpenQueue,
        reader: str,
        name: str,
        pace: Pace,
        progress: Callable[[int], None],
        *,
        dry_run: bool,
    ) -> None:
        self._queue = queue
        self._reader = reader
        self._name = name
        self._pace = pace
        self._progress = progress
        self._dry_run = dry_run
        self.told = 0
        self.looked_at = 0
        self._gathered: list[Message] = []

    def offer(self, message: Message) -> Procedure[None]:
        self._gathered.append(message)
        if len(self._gathered) >= self._pace.batch:
            yield from self.flush()

    def flush(self) -> Procedure[None]:
        messages, self._gathered = self._gathered, []
        if not messages:
            return
        if not self._dry_run:
            yield from self._pace.take(len(messages))
            copies = []
            for message in messages:
                copies.append((yield from self._copy(message)))
            yield from send_to(self._queue, self._reader, copies)
        self.told += len(messages)
        self._progress(self.told)

    def _copy(self, message: Message) -> Procedure[Message]:
        """The message as it was. A large body lies in an object that goes with the first one, so it is copied."""
        headers = {**(message.headers or {}), REPLAY_HEADER: self._name}
        copy = msgspec.structs.replace(message, headers=headers, move=None, died=None)
        if message.body_at is None:
            return copy
        body = yield from body_of(self._queue, message)
        whole = msgspec.structs.replace(copy, body_at=None, **_inline(body))
        return (yield from with_own_body(self._queue, whole))


def _inline(body: object) -> dict[str, Any]:
    return {"body_base64": to_base64(body)} if isinstance(body, bytes) else {"body": body}


def _retell_shard(queue: OpenQueue, shard: int, which: Which, teller: _Teller) -> Procedure[None]:
    log = queue.log(shard)
    stop = yield from fresh_tail(queue, log)  # what is told here does not count
    base = yield from trim_mark(log)
    if which.since is not None:
        _, later = yield from position_of_time(queue, log, which.since)
        base = max(base, later)
    while base < stop and (segment := (yield from read_segment(queue, log, base))) is not None:
        messages = yield from read_span(queue, log, Span(base, base, segment.end))
        for message in _original(messages):
            teller.looked_at += 1
            if which.names(message.key) and which.covers(seconds_of(message.at)):
                yield from teller.offer(message)
        base = segment.end


def _original(messages: Sequence[Message]) -> Iterable[Message]:
    """Without marks, and without what was told to one reader alone before."""
    return (message for message in messages if message.fence is None and message.to is None)
