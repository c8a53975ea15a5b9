"""What a watcher's handler is given: a change of an object, or a batch of changes, and what can be done about them.

The same two classes serve every way in: `Change` for plain handlers, `AsyncChange` for async ones, whether the handler
pulls (`@bucket.watch`) or is mounted as a webhook endpoint; both bind the verbs of `ChangeApi`. One that was registered
with `batch=` gets a list of them, `Changes` or `AsyncChanges`, whose verbs do for all what a change does for one. What
a handler writes through its changes carries the hop count and the lineage that the loop guard needs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol, Self, TypeVar

import msgspec

from bucketmq.binding import awaiting, blocking
from bucketmq.errors import BucketMQError, Contended, NotFound
from bucketmq.events.event import Kind, ObjectEvent
from bucketmq.procedures.abreast import abreast
from bucketmq.procedures.objects.batches import Failed, Stored, failed
from bucketmq.procedures.objects.content import decode_content, encode_content, encode_put
from bucketmq.procedures.objects.metadata import NO_CAUSE, Cause, cause_of
from bucketmq.procedures.objects.move import Move, move, move_many
from bucketmq.procedures.objects.put import Put, put, put_many
from bucketmq.procedures.objects.read import Read, read_object
from bucketmq.procedures.objects.remove import Delete, Deleted, remove, remove_many
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Procedure

Run = Callable[[Procedure[Any]], Any]
"""Carries a procedure out, or gives something to await that does."""


class Opens(Protocol):
    """A bucket that is opened by the first procedure that needs it."""

    def open(self) -> Procedure[OpenBucket]: ...


class ChangeData:
    """What an event says."""

    def __init__(self, bucket: Opens, event: ObjectEvent, attempt: int = 1) -> None:
        self._bucket = bucket
        self.event = event
        self.attempt = attempt
        """1 when the handler is given it for the first time."""
        self.is_over = False
        """Whether the object was found to be gone or changed since, so that nothing is left to do about this change."""
        self._read: Read | None = None

    @property
    def id(self) -> str:
        return self.event.id

    @property
    def key(self) -> str:
        return self.event.key

    @property
    def name(self) -> str:
        """The last part of the key."""
        return self.event.key.rsplit("/", 1)[-1]

    @property
    def kind(self) -> Kind:
        return self.event.kind

    @property
    def version(self) -> str | None:
        return self._read.version if self._read is not None else self.event.version

    @property
    def size_bytes(self) -> int | None:
        return self.event.size_bytes

    @property
    def at(self) -> datetime:
        return datetime.fromisoformat(self.event.at)

    @property
    def hops(self) -> int:
        return self.event.hops

    @property
    def cause(self) -> Cause:
        """What writes made in this change's handling carry. The object's own metadata counts too, where it was read."""
        cause = cause_of(self.event)
        stamped = self._read.hops if self._read is not None else 0
        return cause if stamped < cause.hops else Cause(stamped + 1, cause.lineage)

    def __repr__(self) -> str:
        return f"<Change {self.kind} {self.key!r} {self.id}>"

    @property
    def _api(self) -> Self:
        """Its verbs need nothing but itself."""
        return self

    def _fetch(self) -> Procedure[Read]:
        """The object as it is now, read once. `NotFound` if it is gone."""
        if self._read is None:
            try:
                self._read = yield from read_object((yield from self._bucket.open()), self.key)
            except NotFound as error:
                self._note_failure(error.kind)
                raise
        return self._read

    def _moving(self, target: str, *, replace: bool) -> Move:
        return Move(self.key, target, self.version, replace, self.cause)

    def _note_failure(self, kind: str) -> None:
        """Nothing is left to do about it if its object is gone or another by now."""
        self.is_over = self.is_over or kind in (Contended.kind, NotFound.kind)


class ChangeApi(ChangeData):
    """What can be done about a change."""

    def bytes(self) -> Procedure[bytes]:
        """The object as it is now, read once. `NotFound` if it is gone."""
        return (yield from self._fetch()).body

    def text(self) -> Procedure[str]:
        """The object as UTF-8 text."""
        return (yield from self._fetch()).body.decode()

    def json(self) -> Procedure[Any]:
        """The JSON value that the object holds."""
        return decode_content(self.key, (yield from self._fetch()).body)

    def metadata(self) -> Procedure[dict[str, str]]:
        """The object's own metadata."""
        return (yield from self._fetch()).metadata

    def move(self, target: str, *, replace: bool = False) -> Procedure[Stored]:
        """Move the object, if it is still in the version that was read (or reported). May be repeated after a crash."""
        bucket = yield from self._bucket.open()
        try:
            return (
                yield from move(bucket, self.key, target, if_version=self.version, replace=replace, cause=self.cause)
            )
        except (Contended, NotFound) as error:
            self._note_failure(error.kind)
            raise

    def put(
        self, key: str, body: object, *, content_type: str | None = None, metadata: Mapping[str, str] | None = None
    ) -> Procedure[Stored]:
        """Write another object, as a consequence of this change."""
        data, kind = encode_content(key, body, content_type)
        bucket = yield from self._bucket.open()
        return (yield from put(bucket, key, data, content_type=kind, metadata=metadata, cause=self.cause))

    def delete(self) -> Procedure[bool]:
        """Delete the object, if it is still in the version that was read (or reported)."""
        bucket = yield from self._bucket.open()
        try:
            return (yield from remove(bucket, self.key, if_version=self.version, cause=self.cause))
        except Contended as error:
            self._note_failure(error.kind)
            raise


OneChange = TypeVar("OneChange", bound=ChangeData)


class ChangesData(list[OneChange]):
    """Changes that a handler is given together, of different objects: a list of them, never empty."""

    @property
    def _api(self) -> Self:
        """Its verbs need nothing but itself."""
        return self

    @property
    def cause(self) -> Cause:
        """What writes carry that are made because of all of them: the longest of their chains."""
        return max((change.cause for change in self), key=lambda cause: cause.hops, default=NO_CAUSE)

    def _open(self) -> Procedure[OpenBucket]:
        return (yield from self[0]._bucket.open())

    def _put(self, objects: Sequence[Put]) -> Procedure[list[Stored | Failed]]:
        # What a user hands over as a generator was run through by now: it may ask a change for its content, which must
        # not happen while a procedure runs.
        return (yield from put_many((yield from self._open()), objects))

    def _delete(self, changes: Sequence[OneChange]) -> Procedure[list[Deleted | Failed]]:
        wanted = [Delete(change.key, change.version, change.cause) for change in changes]
        gone = yield from remove_many((yield from self._open()), wanted)
        self._note_failures(changes, gone)
        return gone

    def _note_failures(self, changes: Sequence[OneChange], outcomes: Sequence[object]) -> None:
        for change, outcome in zip(changes, outcomes, strict=True):
            if isinstance(outcome, Failed):
                change._note_failure(outcome.kind)


class ChangesApi(ChangesData[OneChange]):
    """What can be done about a batch of changes."""

    def get_many(self) -> Procedure[list[Read | Failed]]:
        """The objects as they are now, in the order of the changes; `Failed` for one that is gone. Afterwards
        `change.json()` and the like cost nothing. One GET each, together."""
        found = yield from abreast([change._fetch() for change in self])
        return [
            failed(change.key, each) if isinstance(each, BucketMQError) else each
            for change, each in zip(self, found, strict=True)
        ]

    def move_many(self, targets: Mapping[OneChange, str], *, replace: bool = False) -> Procedure[list[Stored | Failed]]:
        """Move the objects of these changes, each if it is still in the version that was read (or reported); what
        became of each, in the order of `targets`. Costs what `bucket.move_many` does."""
        moves = [change._moving(target, replace=replace) for change, target in targets.items()]
        moved = yield from move_many((yield from self._open()), moves)
        self._note_failures(list(targets), moved)
        return moved

    def put_many(self, objects: Mapping[str, object] | Iterable[Put]) -> Procedure[list[Stored | Failed]]:
        """Write other objects, as a consequence of these changes. Costs what `bucket.put_many` does."""
        wanted = [Put(key, body) for key, body in objects.items()] if isinstance(objects, Mapping) else objects
        return self._put([msgspec.structs.replace(encode_put(each), cause=self.cause) for each in wanted])

    def delete_many(self, changes: Iterable[OneChange]) -> Procedure[list[Deleted | Failed]]:
        """Delete the objects of these changes, each if it is still in the version that was read (or reported). Costs
        what `bucket.delete_many` does."""
        return self._delete(list(changes))


class HandedChange(ChangeData):
    """A change in the hands of a handler, with what carries its verbs out."""

    def __init__(self, bucket: Opens, event: ObjectEvent, run: Run, attempt: int = 1) -> None:
        super().__init__(bucket, event, attempt)
        self._run = run


class Change(HandedChange):
    """A change in the hands of a plain handler."""

    bytes = blocking(ChangeApi.bytes)
    text = blocking(ChangeApi.text)
    json = blocking(ChangeApi.json)
    metadata = blocking(ChangeApi.metadata)
    move = blocking(ChangeApi.move)
    put = blocking(ChangeApi.put)
    delete = blocking(ChangeApi.delete)


class AsyncChange(HandedChange):
    """A change in the hands of an async handler: the same names, awaited."""

    bytes = awaiting(ChangeApi.bytes)
    text = awaiting(ChangeApi.text)
    json = awaiting(ChangeApi.json)
    metadata = awaiting(ChangeApi.metadata)
    move = awaiting(ChangeApi.move)
    put = awaiting(ChangeApi.put)
    delete = awaiting(ChangeApi.delete)


class Changes(ChangesData[Change]):
    """A batch of changes in the hands of a plain handler: a list of `Change`."""

    def _run(self, procedure: Procedure[Any]) -> Any:
        return self[0]._run(procedure)

    get_many = blocking(ChangesApi[Change].get_many)
    move_many = blocking(ChangesApi[Change].move_many)
    put_many = blocking(ChangesApi[Change].put_many)
    delete_many = blocking(ChangesApi[Change].delete_many)


class AsyncChanges(ChangesData[AsyncChange]):
    """A batch of changes in the hands of an async handler: a list of `AsyncChange`, the same names, awaited."""

    async def _run(self, procedure: Procedure[Any]) -> Any:
        return await self[0]._run(procedure)

    get_many = awaiting(ChangesApi[AsyncChange].get_many)
    move_many = awaiting(ChangesApi[AsyncChange].move_many)
    put_many = awaiting(ChangesApi[AsyncChange].put_many)
    delete_many = awaiting(ChangesApi[AsyncChange].delete_many)


def changes_of(changes: Sequence[Any]) -> Any:
    """Changes as a handler of batches is given them."""
    match changes[0]:
        case Change():
            return Changes(changes)
        case AsyncChange():
            return AsyncChanges(changes)
        case _:
            return ChangesApi(changes)
