"""Where the objects of a post lie: they are moved to where its register says, and what is older goes.

Every step is conditional on the state it was decided on and may be repeated after a crash at any point. Nothing is ever
written over: an older revision is removed from a key before a newer one is moved there, and a newer one is never
touched, so the newest revision is at every moment at one key at least.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any, Literal

import msgspec

from bucketmq.apps.moderation import routing
from bucketmq.apps.moderation.ids import key_of
from bucketmq.apps.moderation.record import OUTCOMES, REVIEWED
from bucketmq.apps.moderation.register import Register, Review, digest_of, read_register
from bucketmq.bucket.port import Missing, Object
from bucketmq.errors import BucketMQError, Contended, Invalid, NotFound
from bucketmq.events.event import plain_version
from bucketmq.procedures.abreast import abreast
from bucketmq.procedures.objects.batches import Failed, Stored, apart
from bucketmq.procedures.objects.keys import full_key
from bucketmq.procedures.objects.metadata import NO_CAUSE, Cause
from bucketmq.procedures.objects.move import Move, move_many
from bucketmq.procedures.objects.put import put
from bucketmq.procedures.objects.remove import remove
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.verbs import Patience, get, look

ESCALATED = "escalated/"
"""Marks of posts that somebody escalated and nobody decided yet."""

logger = logging.getLogger("bucketmq")

Placed = Literal["placed", "there", "superseded", "gone"]
"""What became of an object: moved; dropped because its revision is there already, or a newer one; not ours to move any
more."""


def revision_in(body: bytes, digest: str) -> int:
    """The revision of what lies in the bucket. Writers that do not know of revisions write the first if it is about the
    decided content, `digest`, and else what was there before it: 0."""
    try:
        revision = msgspec.json.decode(body)["revision"]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, TypeError, KeyError):
        revision = None
    if isinstance(revision, int) and revision >= 1:
        return revision
    record = routing.read(body, id="").record
    return 1 if digest_of(record.text, record.media_url) == digest else 0


class Placing(msgspec.Struct, frozen=True):
    """A record of this revision and content that is to be moved."""

    move: Move
    revision: int
    digest: str


def place(bucket: OpenBucket, placing: Placing) -> Procedure[Placed]:
    """Move a record to where it belongs."""
    (placed,) = yield from place_many(bucket, [placing])
    if isinstance(placed, BucketMQError):
        raise placed
    return placed


def place_many(bucket: OpenBucket, placings: Sequence[Placing]) -> Procedure[list[Placed | BucketMQError]]:
    """Move records to where they belong, together; for one that failed its error."""
    ends: list[Placed | BucketMQError] = []
    for group in apart(placings, lambda each: {each.move.key, each.move.target}):
        moved = yield from move_many(bucket, [each.move for each in group])
        ends += yield from abreast(
            [_placed(bucket, each, end) for each, end in zip(group, moved, strict=True)],
        )
    return ends


def _placed(bucket: OpenBucket, placing: Placing, end: Stored | Failed) -> Procedure[Placed]:
    """What became of a record that was moved; what is in its way is seen to, and it is moved again."""
    wanted = msgspec.structs.replace(placing.move, source=None)
    assert wanted.if_version is not None
    patience = Patience(f"moving {wanted.key} to {wanted.target}")
    while isinstance(end, Failed):
        if end.kind in (NotFound.kind, Contended.kind):  # if it was written again, that has an event of its own
            return "gone"
        if end.kind != Invalid.kind:
            raise end.error
        there = yield from get(full_key(bucket, wanted.target))
        if isinstance(there, Object):
            found = revision_in(there.body, placing.digest)
            if found >= placing.revision:
                dropped = yield from drop(bucket, wanted.key, wanted.if_version, cause=wanted.cause)
                return ("there" if found == placing.revision else "superseded") if dropped else "gone"
            yield from drop(bucket, wanted.target, plain_version(there.version), cause=wanted.cause)
        yield from patience.again(end.reason)
        (end,) = yield from move_many(bucket, [wanted])
    return "placed"


def drop(bucket: OpenBucket, key: str, version: str, *, cause: Cause = NO_CAUSE) -> Procedure[bool]:
    """Remove one state of an object; False if it is not in that state any more."""
    try:
        return (yield from remove(bucket, key, if_version=version, cause=cause))
    except Contended:
        return False


def settle(bucket: OpenBucket, id: str, *, cause: Cause = NO_CAUSE) -> Procedure[Register | None]:
    """Bring the objects of a post to where its register says, and remove what is older from the other places.

    Returns the register it went by. Four GETs when everything is in its place; one more when something was not.
    """
    patience = Patience(f"settling post {id!r}")
    while True:
        register = yield from read_register(bucket, id)
        if register is None or register.decision is None:
            return register
        moved = yield from _settled(bucket, register, cause)
        if moved is not None:
            wrote = yield from _mark(bucket, register, cause)
            # Something newer may have been carried out before this: then what was moved or written is stale.
            if not (moved or wrote) or (yield from read_register(bucket, id)) == register:
                return register
        yield from patience.again("another agent is at it")


def _settled(bucket: OpenBucket, register: Register, cause: Cause) -> Procedure[bool | None]:
    """See that no object of the post is left at a wrong place: whether one was moved; None if the register should be
    read again."""
    assert register.decision is not None and register.outcome is not None
    revision, digest = register.decision.revision, register.decision.digest
    home = key_of(register.outcome, register.id)
    moved = False
    for prefix in OUTCOMES:
        key = key_of(prefix, register.id)
        if key == home:
            continue
        found = yield from get(full_key(bucket, key))
        if isinstance(found, Missing):
            continue
        version, have = plain_version(found.version), revision_in(found.body, digest)
        if have < revision:
            if not (yield from drop(bucket, key, version, cause=cause)):
                return None
        elif have == revision:
            if (yield from place(bucket, Placing(Move(key, home, version, cause=cause), revision, digest))) == "gone":
                return None
            moved = True
        elif (yield from read_register(bucket, register.id)) != register:
            return None
        else:
            logger.warning("action=left_alone key=%s its revision %d is not known to its register", key, have)
    return moved


def _mark(bucket: OpenBucket, register: Register, cause: Cause) -> Procedure[bool]:
    """What people said, as objects: `reviewed/` for a decision, `escalated/` for leaving it to another person. Whether
    the register should be read again: something was written, or another agent was at it."""
    wrote = False
    open_mark = register.escalation if register.review is None else None
    for prefix, review in ((REVIEWED, register.review), (ESCALATED, open_mark)):
        key = key_of(prefix, register.id)
        if review is not None:
            wrote |= yield from _write_review(bucket, key, register, review, cause)
            continue
        found = yield from look(full_key(bucket, key))
        if not isinstance(found, Missing):  # of a revision that is not the decided one any more
            # Unless a person spoke since: the register is changed before this is written.
            if (yield from read_register(bucket, register.id)) != register:
                return True
            yield from drop(bucket, key, plain_version(found.version), cause=cause)
    return wrote


def _write_review(bucket: OpenBucket, key: str, register: Register, review: Review, cause: Cause) -> Procedure[bool]:
    body = msgspec.json.encode(review_document(register, review))
    found = yield from get(full_key(bucket, key))
    if not isinstance(found, Missing) and found.body == body:
        return False
    yield from put(bucket, key, body, content_type="application/json", cause=cause)
    return True


def review_document(register: Register, review: Review) -> dict[str, Any]:
    """`reviewed/<id>.json`."""
    assert register.decision is not None
    return {"id": register.id, **msgspec.to_builtins(review), "decision": msgspec.to_builtins(register.decision)}
