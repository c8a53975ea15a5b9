"""Writes that travel together: one note announces them, one report names them all. One write is a batch of one.

`put`, `move` and `delete` each bring their writes here, as procedures that may run abreast: they say what has happened,
or raise. What becomes of each is a value in the end, `Failed` among them, so that nothing that went wrong with one
object hides what became of another.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from typing import Any, NamedTuple, TypeVar

import msgspec

from bucketmq.bucket.port import Unknown
from bucketmq.errors import (
    BucketMQError,
    Contended,
    Corrupt,
    Denied,
    Invalid,
    NotFound,
    Unavailable,
    Unsupported,
)
from bucketmq.events.event import ObjectEvent
from bucketmq.procedures.abreast import abreast
from bucketmq.procedures.objects.notes import Note, announce, report_noted
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Procedure
from bucketmq.values import Value

BATCH_OBJECTS_MAX = 500
BATCH_BYTES_MAX = 32 * 1024 * 1024
"""What one note announces at most: a batch should be through long before somebody takes its writer for dead."""

_NOTHING_DONE = (Invalid, Contended, NotFound)
"""Errors by which a write says that it has changed nothing."""

_ERRORS: dict[str, type[BucketMQError]] = {
    each.kind: each for each in (Invalid, NotFound, Contended, Unavailable, Denied, Unsupported, Corrupt)
}

Item = TypeVar("Item")
Ended = TypeVar("Ended")


class Stored(Value, msgspec.Struct, frozen=True):
    """A write that was made: the state it left and the event that reports it."""

    key: str
    version: str
    event: ObjectEvent
    reported: bool = True
    """False if the event could not be reported yet; the note sees to it."""


class Failed(Value, msgspec.Struct, frozen=True):
    """What did not become of one object of many, and why."""

    key: str
    kind: str
    """That of the error which the verb for one object raises: `contended`, `not_found`, `invalid`, ... Of those three
    nothing was changed. `unavailable`: nobody can tell; what has landed is reported."""
    reason: str

    @property
    def error(self) -> BucketMQError:
        """The error, to be raised."""
        return _ERRORS.get(self.kind, BucketMQError)(self.reason)


def failed(key: str, error: BucketMQError) -> Failed:
    return Failed(key, error.kind, str(error))


class Left(msgspec.Struct, frozen=True):
    """What a write says that is neither done nor undone: the note has to stay."""

    error: BucketMQError


class Open(msgspec.Struct, frozen=True):
    """What a write says that is done, while a request of it without an answer may still land: what is told now, and
    what is noted of the rest."""

    event: ObjectEvent
    note: Note


class Write(NamedTuple):
    """One write: what is noted of it, and how it is done."""

    note: Note
    act: Procedure[ObjectEvent | Open | Left]


def carry_out(
    bucket: OpenBucket, wanted: Sequence[Write | BucketMQError | Ended]
) -> Procedure[list[Stored | BucketMQError | Ended]]:
    """Announce all writes, do all, report what has happened, forget the note; what came to an end before stands as it
    is. Two PUTs and a DELETE beside what each write does.

    The note stays if one of them is in doubt, or could not be reported: recovery reports what it finds done,
    under the same ids.
    """
    writes = [each for each in wanted if isinstance(each, Write)]
    if not writes:
        return [each for each in wanted if not isinstance(each, Write)]
    name = yield from announce(bucket, [write.note for write in writes])
    ends = yield from abreast([_left_if_unanswered(write.act) for write in writes])
    opened = [end.note for end in ends if isinstance(end, Open)]
    settled = all(isinstance(end, (ObjectEvent, Open, *_NOTHING_DONE)) for end in ends)
    events = [_event_of(end) for end in ends if isinstance(end, ObjectEvent | Open)]
    if settled and opened:
        yield from announce(bucket, opened, again=True)
    reported = yield from report_noted(bucket, events, name if settled else None)
    done = iter(ends)
    return [_outcome(next(done), reported=reported) if isinstance(each, Write) else each for each in wanted]


def _left_if_unanswered(act: Procedure[ObjectEvent | Open | Left]) -> Procedure[ObjectEvent | Open | Left]:
    """The same. What says that it has changed nothing, though a request of it had no answer, is in doubt: the request
    may land yet, when what stood in its way is gone."""
    doubtful, raised = False, False
    reply: Any = None
    while True:
        try:
            request = act.throw(reply) if raised else act.send(reply)
        except StopIteration as end:
            ended: ObjectEvent | Open | Left = end.value
            return ended
        except _NOTHING_DONE as error:
            if doubtful:
                return Left(error)
            raise
        raised = False
        try:
            reply = yield request
        except GeneratorExit:
            act.close()
            raise
        except BaseException as error:
            reply, raised = error, True
        doubtful = doubtful or isinstance(reply, Unknown)


def _event_of(end: ObjectEvent | Open) -> ObjectEvent:
    return end.event if isinstance(end, Open) else end


def _outcome(end: ObjectEvent | Open | Left | BucketMQError, *, reported: bool) -> Stored | BucketMQError:
    match end:
        case ObjectEvent() | Open():
            event = _event_of(end)
            return Stored(event.key, event.version or "", event, reported)
        case Left(error):
            return error
        case _:
            return end


def only(outcomes: Sequence[Item | BucketMQError]) -> Item:
    """What became of the one write of a batch, or its error, raised."""
    (outcome,) = outcomes
    if isinstance(outcome, BucketMQError):
        raise outcome
    return outcome


def in_batches(
    items: Sequence[Item], size_of: Callable[[Item], int] = lambda _: 0, objects_max: int = BATCH_OBJECTS_MAX
) -> Iterator[Sequence[Item]]:
    """Cut what is to be written: so many at a time, and not more than fits."""
    begin, size = 0, 0
    for place, item in enumerate(items):
        size += size_of(item)
        if place > begin and (place - begin >= objects_max or size > BATCH_BYTES_MAX):
            yield items[begin:place]
            begin, size = place, size_of(item)
    if begin < len(items):
        yield items[begin:]


def apart(items: Sequence[Item], keys_of: Callable[[Item], set[str]]) -> Iterator[Sequence[Item]]:
    """Cut so that no two of one group concern the same key, in their order: as a rule all are one group."""
    begin, seen = 0, set[str]()
    for place, item in enumerate(items):
        keys = keys_of(item)
        if seen & keys:
            yield items[begin:place]
            begin, seen = place, set()
        seen |= keys
    if begin < len(items):
        yield items[begin:]


def check_distinct(keys: Sequence[Hashable], what: str) -> None:
    """Raise `Invalid` if a key is there twice: writes of a batch have no order."""
    seen: set[Hashable] = set()
    for key in keys:
        if key in seen:
            raise Invalid(f"{what} {key!r} is there twice; objects of one call are written in no order: name each once")
        seen.add(key)


Wanted = TypeVar("Wanted")
Done = TypeVar("Done")


def in_turn(
    batches: Iterator[Sequence[Wanted]],
    carry: Callable[[Sequence[Wanted]], Procedure[list[Done | BucketMQError]]],
    key_of: Callable[[Wanted], str],
) -> Procedure[list[Done | Failed]]:
    """One batch after the other. When one cannot even begin, neither it nor the rest is done, and says so."""
    outcomes: list[Done | Failed] = []
    stopped: BucketMQError | None = None
    for batch in batches:
        ends: list[Done | BucketMQError] = []
        if stopped is None:
            try:
                ends = yield from carry(batch)
            except BucketMQError as error:
                stopped = error
        if stopped is not None:
            ends = [stopped] * len(batch)
        outcomes += [
            failed(key_of(wanted), end) if isinstance(end, BucketMQError) else end
            for wanted, end in zip(batch, ends, strict=True)
        ]
    return outcomes
