"""The register of a post, `moderation/posts/<id>.json`: the one place that decides what is true of it.

Which revision was accepted, where the newest decided one belongs, what a person said about it and what was taken back.
It is changed with a condition only, by the functions below: each is pure, and repeating it on what it made changes
nothing, so a write whose answer was lost is recognised by reading back. First decisions win. Where objects lie is
`places`: they follow the register, never the other way round.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Literal, TypeVar

import msgspec

from bucketmq.apps.moderation.ids import key_of
from bucketmq.apps.moderation.record import APPROVED, FLAGGED, Outcome
from bucketmq.bucket import port
from bucketmq.events.event import seconds_of
from bucketmq.log import documents
from bucketmq.log.layout import join
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Create, Procedure, Replace
from bucketmq.procedures.verbs import Patience, get_document
from bucketmq.queue.settings import FORMAT

POSTS = "moderation/posts/"

Action = Literal["approve", "uphold", "escalate"]
ACTIONS: tuple[Action, ...] = ("approve", "uphold", "escalate")

UNDO_SECONDS = 600.0
"""How long people may take back what they said themselves, unless a setting says otherwise."""
UNDONE_MAX = 5
"""How often it may be taken back what was said of one revision: all of it is kept."""
PAST_MAX = 5
"""Older revisions that the register remembers, the latest ones. With the limits of notes it stays below 2 MB."""


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
    accepted_at: str = ""
    """When that revision was accepted."""


class Review(msgspec.Struct, frozen=True):
    """What a person said of a decided revision."""

    revision: int
    action: Action
    reviewer: str
    at: str
    outcome: Outcome
    """Where the post belongs by that."""
    note: str = ""
    turn: int = 0
    """How often something said of this revision had been taken back before: with the action it names what was said."""


class Undone(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a person said, and somebody took back."""

    review: Review
    by: str
    at: str
    note: str = ""


class Chapter(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of one revision."""

    decision: Decision
    escalation: Review | None = None
    review: Review | None = None
    undone: tuple[Undone, ...] = ()


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
    """Who decided about it. Nobody decides twice, unless it was taken back."""
    undone: tuple[Undone, ...] = ()
    """What was said of that revision and taken back, in order."""
    past: tuple[Chapter, ...] = ()
    """Revisions that were decided before it, in order."""
    version: int = 0
    """Grows with each change, so that equal bytes never recur."""
    format: int = FORMAT

    @property
    def outcome(self) -> Outcome | None:
        """Where the decided revision belongs; None if none was decided."""
        if self.review is not None:
            return self.review.outcome
        return None if self.decision is None else self.decision.outcome

    @property
    def chapter(self) -> Chapter | None:
        """Of the decided revision."""
        if self.decision is None:
            return None
        return Chapter(self.decision, self.escalation, self.review, self.undone)


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
    closed: Chapter | None = None
    """Of the revision before, if this call ended it: the register forgets it in time."""


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


class TakenBack(msgspec.Struct, frozen=True):
    """A person's word that does not stand any more."""

    undone: Undone
    outcome: Outcome
    """Where the post belongs without it."""
    new: bool


class Refused(msgspec.Struct, frozen=True):
    """A person came too late, or may not. Nothing was changed."""

    why: Literal["decided", "escalated", "superseded", "unknown", "undone", "late", "not-yours", "too-often"]
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
    if revision == register.revision and register.accepted_at:
        accepted_at = register.accepted_at
    decision = msgspec.structs.replace(wanted, revision=revision, accepted_at=accepted_at)
    closed = register.chapter
    past = (*register.past, closed)[-PAST_MAX:] if closed is not None else ()
    after = _changed(register, decision=decision, escalation=None, review=None, undone=(), past=past)
    if revision > register.revision:
        after = msgspec.structs.replace(after, revision=revision, digest=wanted.digest, accepted_at=accepted_at)
    return after, Decided(decision, decision.outcome, new=True, first=before is None, closed=closed)


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
    turn = len(register.undone)
    if action == "escalate":
        if register.escalation is not None:
            return register, _too_late("escalated", register.id, register.escalation)
        mark = Review(revision, action, reviewer, at, decision.outcome, note, turn)
        return _changed(register, escalation=mark), Reviewed(mark, decision.outcome, new=True)
    outcome: Outcome = APPROVED if action == "approve" else FLAGGED
    review = Review(revision, action, reviewer, at, outcome, note, turn)
    return _changed(register, review=review), Reviewed(review, decision.outcome, new=True)


class Undoing(msgspec.Struct, frozen=True, kw_only=True):
    """Who wants to take back what was said of a revision."""

    revision: int
    action: Action
    turn: int
    by: str
    administers: bool
    at: str
    note: str = ""
    window_seconds: float = UNDO_SECONDS


def undoing(register: Register, wanted: Undoing) -> tuple[Register, TakenBack | Refused]:
    """People take back what they said themselves within a window; administrators, anybody's at any time.

    The revision is then as it was before that was said: others may decide. What an escalation led to stands.
    """
    decision, id = register.decision, register.id
    if decision is None:
        return register, Refused("unknown", f"nothing was decided about post {id!r} yet")
    if decision.revision != wanted.revision:
        return register, Refused(
            "superseded", f"post {id!r} is at revision {decision.revision} by now, not {wanted.revision}; look again"
        )
    named = (wanted.action, wanted.turn)
    for earlier in register.undone:
        if (earlier.review.action, earlier.review.turn) == named:
            if earlier.by == wanted.by:
                return register, TakenBack(earlier, decision.outcome, new=False)
            text = f"{earlier.by} took it back at {earlier.at}; nothing was changed"
            return register, Refused("undone", text, earlier.by, earlier.at, "undo")
    said = register.escalation if wanted.action == "escalate" else register.review
    if said is None or (said.action, said.turn) != named:
        return register, Refused("unknown", f"that was not said of post {id!r}; look again")
    if wanted.action == "escalate" and register.review is not None:
        return register, _too_late("decided", id, register.review)
    refused = _may_not(id, said, wanted)
    if refused is None and len(register.undone) >= UNDONE_MAX:
        text = f"decisions about post {id!r} were taken back {UNDONE_MAX} times; this one stands"
        refused = Refused("too-often", text, said.reviewer, said.at, said.action)
    if refused is not None:
        return register, refused
    undone = Undone(said, wanted.by, wanted.at, wanted.note)
    field = "escalation" if wanted.action == "escalate" else "review"
    after = _changed(register, undone=(*register.undone, undone), **{field: None})
    return after, TakenBack(undone, decision.outcome, new=True)


def _may_not(id: str, said: Review, wanted: Undoing) -> Refused | None:
    if wanted.administers:
        return None
    told = (said.reviewer, said.at, said.action)
    if said.reviewer != wanted.by:
        text = f"{said.reviewer} {_DID[said.action]} post {id!r}; they, or an administrator, can take it back"
        return Refused("not-yours", text, *told)
    if seconds_of(wanted.at) - seconds_of(said.at) > wanted.window_seconds:
        text = f"post {id!r} was {_DID[said.action]} at {said.at}, more than {wanted.window_seconds:g} s ago"
        return Refused("late", f"{text}; ask somebody who administers to take it back", *told)
    return None


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
