"""Which encoder's table is searched: a register that is replaced with a condition. The other tables may be built beside
it meanwhile, and the one that served stays until somebody drops it.

Where there is no register, the table with the most chunks serves, so that one that is being built does not.
"""

from __future__ import annotations

import msgspec

from bucketmq.api.bucket import BucketApi
from bucketmq.apps.documents.encoders import ENCODERS, check_encoder
from bucketmq.apps.documents.names import SERVING, table_of
from bucketmq.bucket.port import Missing, Version, Written
from bucketmq.errors import Contended, Corrupt, Invalid, NotFound
from bucketmq.log.layout import join
from bucketmq.procedures.requests import Create, Now, Procedure, Replace
from bucketmq.procedures.tables.read import Snapshot
from bucketmq.procedures.verbs import get
from bucketmq.queue.settings import FORMAT

SHAPE = {"key": "chunk", "group": "doc", "newer_by": "at"}


class Serving(msgspec.Struct, frozen=True, kw_only=True):
    """`bucketmq/documents/serving.json`."""

    encoder: str
    switched_at: float
    version: int = 1
    """Grows by one with every switch."""
    format: int = FORMAT


class Switched(msgspec.Struct, frozen=True):
    """What came of a switch."""

    encoder: str
    before: str | None
    documents: int


def serving(bucket: BucketApi) -> Procedure[str | None]:
    """The encoder whose table is searched; None while there is no table at all."""
    found = yield from _read(bucket)
    if found is not None:
        return found[0].encoder
    best: tuple[int, str] | None = None
    for encoder in ENCODERS:
        at = yield from snapshot_of(bucket, encoder)
        if at is not None and (best is None or at.rows > best[0]):
            best = at.rows, encoder
    return None if best is None else best[1]


def snapshot_of(bucket: BucketApi, encoder: str) -> Procedure[Snapshot | None]:
    """The table of an encoder as it is now. One GET."""
    try:
        return (yield from bucket.table(table_of(encoder)).snapshot())
    except NotFound:
        return None


def switch(bucket: BucketApi, encoder: str, *, force: bool = False) -> Procedure[Switched]:
    """Serve the table of another encoder from now on. `Invalid` while documents are missing there that the table that
    serves has, unless `force`; `Contended` if somebody else switches at the same time."""
    check_encoder(encoder)
    found = yield from _read(bucket)
    before = found[0].encoder if found is not None else (yield from serving(bucket))
    there = yield from _documents(bucket, encoder)
    if there is None:
        raise NotFound(f"there is no table of the encoder {encoder!r}; index with it first: --encoders ...,{encoder}")
    old = (yield from _documents(bucket, before)) if before is not None else None
    missing = sorted(set(old or ()) - set(there))
    if missing and not force:
        raise Invalid(
            f"{len(missing):,} documents are not in the table of {encoder!r} yet, {missing[0]!r} among them; index "
            "them (bucketmq apps rerun documents --stage vectors --prefix docs/), or say --force"
        )
    version = found[0].version + 1 if found is not None else 1
    body = msgspec.json.encode(Serving(encoder=encoder, switched_at=(yield from Now()), version=version))
    key = yield from _key(bucket)
    write = Create(key, body) if found is None else Replace(key, body, found[1])
    reply = yield from write
    if not isinstance(reply, Written):
        again = yield from _read(bucket)
        if again is None or again[0].version != version or again[0].encoder != encoder:
            raise Contended("somebody else switched at the same time, or the store did not answer; look and try again")
    return Switched(encoder, before, len(there))


def _documents(bucket: BucketApi, encoder: str) -> Procedure[list[str] | None]:
    at = yield from snapshot_of(bucket, encoder)
    if at is None:
        return None
    rows = yield from bucket.table(table_of(encoder)).read(columns=["doc"], at=at)
    found: list[str] = rows.column("doc").unique().to_pylist()
    return found


def _read(bucket: BucketApi) -> Procedure[tuple[Serving, Version] | None]:
    key = yield from _key(bucket)
    found = yield from get(key)
    if isinstance(found, Missing):
        return None
    try:
        return msgspec.json.decode(found.body, type=Serving), found.version
    except msgspec.DecodeError as error:
        raise Corrupt(f"{key} cannot be read ({error}); delete it, and switch again") from None


def _key(bucket: BucketApi) -> Procedure[str]:
    opened = yield from bucket.open()
    return join(opened.prefix, SERVING)
