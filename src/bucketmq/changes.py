"""What a watcher's handler is given: one change of one object, and what can be done about it.

The same two classes serve every way in: `Change` for plain handlers, `AsyncChange` for async ones, whether the handler
pulls (`@bucket.watch`) or is mounted as a webhook endpoint; both bind the verbs of `ChangeApi`. What a handler writes
through its change carries the hop count and the lineage that the loop guard needs.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Protocol, Self

from bucketmq.binding import awaiting, blocking
from bucketmq.errors import Contended, NotFound
from bucketmq.events.event import Kind, ObjectEvent
from bucketmq.procedures.objects.batches import Stored
from bucketmq.procedures.objects.content import decode_content, encode_content
from bucketmq.procedures.objects.metadata import Cause, cause_of
from bucketmq.procedures.objects.move import move
from bucketmq.procedures.objects.put import put
from bucketmq.procedures.objects.read import Read, read_object
from bucketmq.procedures.objects.remove import remove
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Procedure

Run = Callable[[Procedure[Any]], Any]
RunAsync = Callable[[Procedure[Any]], Awaitable[Any]]


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
            except NotFound:
                self.is_over = True
                raise
        return self._read


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
        except (Contended, NotFound):
            self.is_over = True
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
        except Contended:
            self.is_over = True
            raise


class Change(ChangeData):
    """A change in the hands of a plain handler."""

    def __init__(self, bucket: Opens, event: ObjectEvent, run: Run, attempt: int = 1) -> None:
        super().__init__(bucket, event, attempt)
        self._run = run

    bytes = blocking(ChangeApi.bytes)
    text = blocking(ChangeApi.text)
    json = blocking(ChangeApi.json)
    metadata = blocking(ChangeApi.metadata)
    move = blocking(ChangeApi.move)
    put = blocking(ChangeApi.put)
    delete = blocking(ChangeApi.delete)


class AsyncChange(ChangeData):
    """A change in the hands of an async handler: the same names, awaited."""

    def __init__(self, bucket: Opens, event: ObjectEvent, run: RunAsync, attempt: int = 1) -> None:
        super().__init__(bucket, event, attempt)
        self._run = run

    bytes = awaiting(ChangeApi.bytes)
    text = awaiting(ChangeApi.text)
    json = awaiting(ChangeApi.json)
    metadata = awaiting(ChangeApi.metadata)
    move = awaiting(ChangeApi.move)
    put = awaiting(ChangeApi.put)
    delete = awaiting(ChangeApi.delete)
