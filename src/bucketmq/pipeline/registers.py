"""Registers: what a stage keeps for each key where there is no Spark, in the bucket.

The register of a key is replaced with a condition, and remembers what came of the last messages: one that is delivered
again changes nothing and brings the same rows again.
"""

from __future__ import annotations

import hashlib
import heapq
import threading
import zlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.bucket.port import Missing
from bucketmq.log import documents
from bucketmq.log.layout import EventKeys
from bucketmq.pipeline.fitting import empty
from bucketmq.pipeline.keyed import packed, unpacked
from bucketmq.pipeline.stages import Stage
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Now, Procedure
from bucketmq.procedures.verbs import get_many, list_all, update_document
from bucketmq.queue.settings import FORMAT

if TYPE_CHECKING:
    import pyarrow as pa

APPLIED_MAX = 100
"""So many messages of a key are remembered: more are never on their way again at a time."""

APPLIED_BYTES_MAX = 256 << 10
AT_ONCE = 100

AGAIN_SECONDS = 60.0
"""A timeout that failed, or what came of it and could not be written, is tried again after this."""

replace = msgspec.structs.replace


def groups_of(stage: Stage, batch: pa.RecordBatch) -> list[tuple[str, Any, list[int]]]:
    """The keys of some rows as JSON text and as they are, and the rows of each, in their order."""
    from bucketmq.pipeline.lines import plain  # it needs Arrow when it is imported

    assert stage.keyed is not None
    column = batch.column(stage.keyed.key)
    found: dict[str, tuple[Any, list[int]]] = {}
    for row, value in enumerate(column.to_pylist()):
        text = msgspec.json.encode(plain(value, column.type)).decode()
        found.setdefault(text, (value, []))[1].append(row)
    return [(text, value, rows) for text, (value, rows) in found.items()]


Memory = Callable[[Stage, str, Any, "pa.RecordBatch"], "pa.RecordBatch"]
"""Keeps the state of a stage where a chain runs without Spark: what comes of the rows of a key, which is given as JSON
and as it is."""


class Applied(msgspec.Struct, frozen=True, omit_defaults=True):
    """A message that was applied, and what came of it, packed and deflated."""

    id: str
    rows: bytes


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """`inventory/state/<pipeline>/<stage>/<hash of key>.json`: what a stage keeps for a key."""

    version: int = 0
    key: str = ""
    """As JSON."""
    kept: bytes | None = None
    """An Arrow stream of one row; None where nothing is kept."""
    applied: tuple[Applied, ...] = ()
    """The last messages, the youngest at the end."""
    due: float | None = None
    """When the key times out, on the store's clock."""
    expired: bytes | None = None
    """What came of a timeout, until it was written."""
    format: int = FORMAT


class TimeoutFailed(Exception):
    """What a stage raised when a key timed out. It is called again after `AGAIN_SECONDS`."""

    def __init__(self, key: str, error: Exception) -> None:
        super().__init__(key, error)
        self.key = key
        self.error = error


class Registers:
    """The registers of one stage of a pipeline, in its bucket. One GET and one PUT for each message and key.

    A timeout is called by whichever process handles a message after it is due: those that touched the key know of it,
    and the others learn of it when they start, with one LIST and one GET for each key.
    """

    def __init__(self, bucket: OpenBucket, pipeline: str, stage: Stage) -> None:
        assert stage.keyed is not None
        self._keys = EventKeys(bucket.prefix)
        self._pipeline = pipeline
        self._stage = stage
        self._keyed = stage.keyed
        self._timeout_seconds = stage.keyed.timeout_seconds
        self._waiting: list[tuple[float, str]] = []
        self._due: dict[str, float] = {}
        """When each register that is known here times out; an entry of `_waiting` that says otherwise is outdated."""
        self._lock = threading.Lock()
        self._looked = False

    @property
    def stage(self) -> str:
        return self._stage.name

    def apply(self, message: str, key: str, value: Any, batch: pa.RecordBatch) -> Procedure[pa.RecordBatch]:
        """What comes of a message's rows for a key; the same again if the message was applied before."""
        now = yield from Now()
        due = None if self._timeout_seconds is None else now + self._timeout_seconds

        def change(before: State) -> State:
            if any(each.id == message for each in before.applied):
                return before
            came, kept = self._stage.step(value, batch, before.kept)
            applied = _bounded((*before.applied, Applied(message, zlib.compress(packed(came)))))
            at = due if kept is not None else None
            return State(before.version + 1, key, kept, applied, at, before.expired)

        name = _name(key)
        after = yield from update_document(State, self._key(name), State(), change)
        self._wait_for(after.due, name)
        return unpacked(zlib.decompress(next(each.rows for each in after.applied if each.id == message)))

    def next_expired(self) -> Procedure[tuple[str, pa.RecordBatch] | None]:
        """What comes of a key that timed out, and the name of its register: to be written, then `forget_expired`; or
        `put_back`. None if there is no more; `TimeoutFailed` if the stage raises; call again for others.
        """
        if self._timeout_seconds is None:
            return None
        if not self._looked:
            yield from self._look()
        now = yield from Now()
        while (name := self._take_due(now)) is not None:
            self._wait_for(now + AGAIN_SECONDS, name)  # in case that this fails
            after = yield from update_document(State, self._key(name), State(), self._timed_out(now))
            self._wait_for(after.due, name)
            if after.expired is not None:
                return name, unpacked(after.expired)
        return None

    def _timed_out(self, now: float) -> Any:
        def change(before: State) -> State:
            if before.expired is not None or before.kept is None or before.due is None or before.due > now:
                return before
            key = self._keyed.value(before.key, self._stage.takes)
            try:
                came, kept = self._stage.step(key, empty(self._stage.takes), before.kept)
            except Exception as error:
                raise TimeoutFailed(before.key, error) from error
            at = None if kept is None or self._timeout_seconds is None else now + self._timeout_seconds
            rows = packed(came) if came.num_rows else None
            return replace(before, version=before.version + 1, kept=kept, due=at, expired=rows)

        return change

    def forget_expired(self, name: str) -> Procedure[None]:
        """What came of a timeout was written."""

        def change(before: State) -> State:
            if before.expired is None:
                return before
            return replace(before, version=before.version + 1, expired=None)

        yield from update_document(State, self._key(name), State(), change)

    def put_back(self, name: str) -> Procedure[None]:
        """What came of a timeout could not be written: try again in a while."""
        self._wait_for((yield from Now()) + AGAIN_SECONDS, name)

    def _look(self) -> Procedure[None]:
        entries, _ = yield from list_all(self._keys.states(self._pipeline, self._stage.name))
        for start in range(0, len(entries), AT_ONCE):
            keys = [entry.key for entry in entries[start : start + AT_ONCE]]
            for key, found in zip(keys, (yield from get_many(keys)), strict=True):
                if not isinstance(found, Missing):
                    state, name = documents.decode(State, found.body, key), key.rpartition("/")[2].removesuffix(".json")
                    self._wait_for(state.due if state.expired is None else 0.0, name)
        self._looked = True

    def _wait_for(self, at: float | None, name: str) -> None:
        with self._lock:
            self._due.pop(name, None)
            if at is not None:
                self._due[name] = at
                heapq.heappush(self._waiting, (at, name))

    def _take_due(self, now: float) -> str | None:
        """A register that is due; nobody else in this process gets it."""
        with self._lock:
            while self._waiting and self._waiting[0][0] <= now:
                at, name = heapq.heappop(self._waiting)
                if self._due.get(name) == at:
                    del self._due[name]
                    return name
        return None

    def _key(self, name: str) -> str:
        return self._keys.state(self._pipeline, self._stage.name, name)


def _bounded(applied: tuple[Applied, ...]) -> tuple[Applied, ...]:
    """The last messages, as far as there is room; the last one always."""
    kept: list[Applied] = []
    size = 0
    for each in reversed(applied[-APPLIED_MAX:]):
        size += len(each.rows)
        if kept and size > APPLIED_BYTES_MAX:
            break
        kept.append(each)
    return tuple(reversed(kept))


def _name(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:32]
