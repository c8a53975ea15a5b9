"""The register of a post, `moderation/posts/<id>.json`: the one place that decides what is true of it.

Which revision was accepted, where the newest decided one belongs, and what a person said about it. It is changed with a
condition only, by the functions below: each is pure, and repeating it on what it made changes nothing, so a write whose
answer was lost is recognised by reading back. First decisions win. Where objects lie is `places`: they follow the
register, never the other way round.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import msgspec

from bucketmq.apps.moderation.ids import key_of
from bucketmq.apps.moderation.record import APPROVED, FLAGGED, Outcome
from bucketmq.bucket import port
from bucketmq.log import documents
from bucketmq.log.layout import join
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Create, Procedure, Replace
from bucketmq.procedures.verbs import Patience, get_document
from bucketmq.queue.settings import FORMAT

POSTS = "moderation/posts/"

Action = Literal["approve", "uphold", "escalate"]
ACTIONS: tuple[Action, ...] = ("approve", "uphold", "escalate")


class Decision(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a record came to: the first one of its revision to be routed."""

    revision: int
    outcome: Outcome
    at: str
    digest: str
    """Of the text and image that it is about."""
    model: str = ""
    confidence: float = 0.0
    reason: str = ""


class Review(msgspec.Struct, frozen=True):
    """What a person said of a decided revision."""

    revision: int
    action: Action
    reviewer: str
    at: str
    outcome: Outcome
    """Where the post belongs by that."""
    note: str = ""


class Register(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the object holds."""

    id: str
    revision: int = 0
    """The newest that was accepted."""
    digest: str = ""
    accepted_at: str = ""
    decision: Decision | None = None
    """Of the newest revision that was decided; a newer one may be on its way."""
    escalation: Review | None = None
    """Who asked another person to look at that revision."""
    review: Review | None = None
    """Who decided about it. Nobody decides twice."""
    version: int = 0
    """Grows with each change, so that equal bytes never recur."""
    format: int = FORMAT

    @property
    def outcome(self) -> Outcome | None:
        """Where the decided revision belongs; None if none was decided."""
        if self.review is not None:
            return self.review.outcome
        return None if self.decision is None else self.decision.outcome


class Accepted(msgspec.Struct, frozen=True):
    """A submission that has a revision."""

    id: str
    revision: int
    accepted_at: str
    new: bool
    """Whether this call made the revision; False for a repeat."""
    decided: bool
    """Whether it has been routed already."""


class Decided(msgspec.Struct, frozen=True):
    """The decision that stands, of a person or the router."""

    decision: Decision
    outcome: Outcome
    """Where the post belongs: what the decision says, or a person since."""
    new: bool
    """Whether this call made it."""
    first: bool
    """Whether nothing had been decided about the post before."""
    said: tuple[Review, ...] = ()
    """What people said of the revision before, which the register does not keep."""


class Superseded(msgspec.Struct, frozen=True):
    """A newer revision was decided already."""

    revision: int
    """The one that was."""


class Reviewed(msgspec.Struct, frozen=True):
    """A person's word that stands."""

    review: Review
    before: Outcome
    """Where the post belonged before."""
    new: bool


class Refused(msgspec.Struct, frozen=True):
    """A person came too late. Nothing was changed."""

    why: Literal["decided", "escalated", "superseded", "unknown"]
    text: str
    reviewer: str = ""
    """The earlier decision, if there was one: who, when, and what."""
    at: str = ""
    action: str = ""


def digest_of(text: str, media_url: str | None) -> str:
    """What tells two submissions under one id apart."""
    return hashlib.sha256(msgspec.json.encode([text, media_url])).hexdigest()[:32]


def accepting(register: Register, digest: str, at: str) -> tuple[Register, Accepted]:
    """The same content again is the same revision; another one is the next."""
    decided = register.decision is not None and register.decision.revision >= register.revision
    if register.revision and register.digest == digest:
        return register, Accepted(register.id, register.revision, register.accepted_at, new=False, decided=decided)
    after = _changed(register, revision=_newest(register) + 1, digest=digest, accepted_at=at)
    return after, Accepted(after.id, after.revision, at, new=True, decided=False)


def deciding(
    register: Register, revision: int | None, wanted: Decision, accepted_at: str
) -> tuple[Register, Decided | Superseded]:
    """The first decision of a revision stands. `wanted` is what the router would decide; its revision is found here.

    A record that does not say its revision, or that says one that was decided for another content, comes from a writer
    that does not know of revisions: what it says is the newest.
    """
    before = register.decision
    if before is not None and before.digest == wanted.digest and (revision is None or revision <= before.revision):
        assert register.outcome is not None
        return register, Decided(before, register.outcome, new=False, first=False)
    if revision is None:
        known = register.digest == wanted.digest and (before is None or before.revision < register.revision)
        revision = register.revision if known else _newest(register) + 1
    elif before is not None and before.revision == revision:
        revision = _newest(register) + 1
    elif before is not None and before.revision > revision:
        return register, Superseded(before.revision)
    decision = msgspec.structs.replace(wanted, revision=revision)
    after = _changed(register, decision=decision, escalation=None, review=None)
    if revision > register.revision:
        after = msgspec.structs.replace(after, revision=revision, digest=wanted.digest, accepted_at=accepted_at)
    said = tuple(each for each in (register.escalation, register.review) if each is not None)
    return after, Decided(decision, decision.outcome, new=True, first=before is None, said=said)


def reviewing(
    register: Register, *, revision: int, reviewer: str, action: Action, note: str, at: str
) -> tuple[Register, Reviewed | Refused]:
    """The first person who approves or upholds a revision decides it. Escalating leaves that to another person."""
    decision = register.decision
    if decision is None:
        return register, Refused("unknown", f"nothing was decided about post {register.id!r} yet; wait for the router")
    if decision.revision != revision:
        return register, Refused(
            "superseded", f"post {register.id!r} is at revision {decision.revision} by now, not {revision}; look again"
        )
    for earlier in (register.review, register.escalation):
        if earlier is not None and (earlier.reviewer, earlier.action) == (reviewer, action):
            return register, Reviewed(earlier, decision.outcome, new=False)
    if register.review is not None:
        return register, _too_late("decided", register.id, register.review)
    if action == "escalate":
        if register.escalation is not None:
            return register, _too_late("escalated", register.id, register.escalation)
        mark = Review(revision, action, reviewer, at, decision.outcome, note)
        return _changed(register, escalation=mark), Reviewed(mark, decision.outcome, new=True)
    outcome: Outcome = APPROVED if action == "approve" else FLAGGED
    review = Review(revision, action, reviewer, at, outcome, note)
    return _changed(register, review=review), Reviewed(review, decision.outcome, new=True)


_DID = {"approve": "approved", "uphold": "upheld", "escalate": "escalated"}


def _too_late(why: Literal["decided", "escalated"], id: str, earlier: Review) -> Refused:
    text = f"{earlier.reviewer} {_DID[earlier.action]} post {id!r} at {earlier.at}; nothing was changed"
    return Refused(why, text, earlier.reviewer, earlier.at, earlier.action)


def _newest(register: Register) -> int:
    return max(register.revision, register.decision.revision if register.decision is not None else 0)


def _changed(register: Register, **fields: Any) -> Register:
    return msgspec.structs.replace(register, **fields, version=register.version + 1)


def register_key(bucket: OpenBucket, id: str) -> str:
    return join(bucket.prefix, key_of(POSTS, id))


def read_register(bucket: OpenBucket, id: str) -> Procedure[Register | None]:
    """The register, or None where nothing is known of the post. One GET."""
    found = yield from get_document(Register, register_key(bucket, id))
    return None if found is None else found[0]


Result = TypeVar("Result")


def change_register(
    bucket: OpenBucket,
    id: str,
    change: Callable[[Register], tuple[Register, Result]],
    *,
    create_first: bool = False,
) -> Procedure[tuple[Register, Result]]:
    """Replace the register by what `change` makes of it until that holds. One GET and one PUT.

    With `create_first` a register that is probably not there yet costs one PUT alone.
    """
    key = register_key(bucket, id)
    patience = Patience(f"changing {key}")
    if create_first:
        after, result = change(Register(id))
        if isinstance((yield from Create(key, documents.encode(after))), port.Written):
            return after, result
    while True:
        current = yield from get_document(Register, key)
        before = Register(id) if current is None else current[0]
        after, result = change(before)
        if after == before:
            return before, result
        body = documents.encode(after)
        reply = yield from (Create(key, body) if current is None else Replace(key, body, current[1].version))
        if isinstance(reply, port.Written):
            return after, result
        yield from patience.again(reply)
