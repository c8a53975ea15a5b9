"""What a watcher's handler is given: one change of one object, and what can be done about it.

The same two classes serve every way in: `Change` for plain handlers, `AsyncChange` for async ones, whether the handler
pulls (`@bucket.watch`) or is mounted as a webhook endpoint. What a handler writes through its change carries the hop
count and the lineage that the loop guard needs.
"""

from __future__ import annotations

import mimetypes
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

import msgspec

from bucketmq.errors import Contended, Invalid, NotFound
from bucketmq.events.event import Kind, ObjectEvent
from bucketmq.procedures.bus import BusApi
from bucketmq.procedures.objects import Read, Stored, check_object_key
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.stamps import Cause, cause_of

Result = TypeVar("Result")
Run = Callable[[Procedure[Any]], Any]
RunAsync = Callable[[Procedure[Any]], Awaitable[Any]]


def encode_object(key: str, body: object, content_type: str | None) -> tuple[bytes, str]:
    """An object's bytes and content type: bytes and text as they are, anything else as JSON."""
    check_object_key(key)
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body), content_type or mimetypes.guess_type(key)[0] or "application/octet-stream"
    if isinstance(body, str):
        try:
            return body.encode(), content_type or mimetypes.guess_type(key)[0] or "text/plain; charset=utf-8"
        except UnicodeEncodeError as error:
            raise Invalid(f"the body of {key!r} is no text that can be written ({error}); give bytes") from None
    try:
        return msgspec.json.encode(body), content_type or "application/json"
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Invalid(f"the body of {key!r} is no JSON ({error}); give bytes, text or plain values") from None


def decode_json(read: Read) -> Any:
    try:
        return msgspec.json.decode(read.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Invalid(f"the object {read.key!r} is no JSON: {error}") from None


class ChangeData:
    """What an event tells."""

    def __init__(self, api: BusApi, event: ObjectEvent, attempt: int = 1) -> None:
        self._api = api
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

    # Procedures, shared by both ways of running them.

    def _fetch(self) -> Procedure[Read]:
        if self._read is None:
            try:
                self._read = yield from self._api.get(self.key)
            except NotFound:
                self.is_over = True
                raise
        return self._read

    def _move(self, target: str, *, replace: bool) -> Procedure[Stored]:
        try:
            return (
                yield from self._api.move(self.key, target, if_version=self.version, replace=replace, cause=self.cause)
            )
        except (Contended, NotFound):
            self.is_over = True
            raise

    def _put(
        self, key: str, body: object, content_type: str | None, metadata: Mapping[str, str] | None
    ) -> Procedure[Stored]:
        data, kind = encode_object(key, body, content_type)
        return (yield from self._api.put(key, data, content_type=kind, metadata=metadata, cause=self.cause))

    def _delete(self) -> Procedure[bool]:
        try:
            return (yield from self._api.delete(self.key, if_version=self.version, cause=self.cause))
        except Contended:
            self.is_over = True
            raise


class Change(ChangeData):
    """A change in the hands of a plain handler."""

    def __init__(self, api: BusApi, event: ObjectEvent, run: Run, attempt: int = 1) -> None:
        super().__init__(api, event, attempt)
        self._run = run

    def bytes(self) -> bytes:
        """The object as it is now, read once. `NotFound` if it is gone."""
        body: bytes = self._run(self._fetch()).body
        return body

    def text(self) -> str:
        return self.bytes().decode()

    def json(self) -> Any:
        return decode_json(self._run(self._fetch()))

    def metadata(self) -> dict[str, str]:
        """The object's own metadata."""
        found: dict[str, str] = self._run(self._fetch()).metadata
        return found

    def move(self, target: str, *, replace: bool = False) -> Stored:
        """Move the object, if it is still in the version that was read (or told of). May be repeated after a crash."""
        stored: Stored = self._run(self._move(target, replace=replace))
        return stored

    def put(
        self, key: str, body: object, *, content_type: str | None = None, metadata: Mapping[str, str] | None = None
    ) -> Stored:
        """Write another object, as a consequence of this change."""
        stored: Stored = self._run(self._put(key, body, content_type, metadata))
        return stored

    def delete(self) -> bool:
        """Delete the object, if it is still in the version that was read (or told of)."""
        gone: bool = self._run(self._delete())
        return gone


class AsyncChange(ChangeData):
    """A change in the hands of an async handler: the same names, awaited."""

    def __init__(self, api: BusApi, event: ObjectEvent, run: RunAsync, attempt: int = 1) -> None:
        super().__init__(api, event, attempt)
        self._run = run

    async def bytes(self) -> bytes:
        """The object as it is now, read once. `NotFound` if it is gone."""
        body: bytes = (await self._run(self._fetch())).body
        return body

    async def text(self) -> str:
        return (await self.bytes()).decode()

    async def json(self) -> Any:
        return decode_json(await self._run(self._fetch()))

    async def metadata(self) -> dict[str, str]:
        """The object's own metadata."""
        found: dict[str, str] = (await self._run(self._fetch())).metadata
        return found

    async def move(self, target: str, *, replace: bool = False) -> Stored:
        """Move the object, if it is still in the version that was read (or told of). May be repeated after a crash."""
        stored: Stored = await self._run(self._move(target, replace=replace))
        return stored

    async def put(
        self, key: str, body: object, *, content_type: str | None = None, metadata: Mapping[str, str] | None = None
    ) -> Stored:
        """Write another object, as a consequence of this change."""
        stored: Stored = await self._run(self._put(key, body, content_type, metadata))
        return stored

    async def delete(self) -> bool:
        """Delete the object, if it is still in the version that was read (or told of)."""
        gone: bool = await self._run(self._delete())
        return gone
