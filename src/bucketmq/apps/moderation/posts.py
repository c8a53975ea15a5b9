"""What can be done with posts, each as one procedure: accept, route, review, undo, settle, and look at them.

Everything is decided in the post's register (`register`); objects (`places`), the queue `submissions` and the audit log
(`audit`) follow it. Every procedure may be repeated after a crash at any point and comes to the same end.

```python
from bucketmq.server.place import bus_of, run

done = await run(bucket, posts.review(bus_of(bucket), "p1", revision=1, reviewer="rosa", action="approve"))
```

Who may call and how it looks on a page does not belong here.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec

from bucketmq.api.bucket import BucketApi
from bucketmq.apps.moderation import audit, places, register, routing
from bucketmq.apps.moderation.audit import Line, action_of
from bucketmq.apps.moderation.ids import SUFFIX, check_id, id_at, key_of, part_of
from bucketmq.apps.moderation.places import ESCALATED, Placed
from bucketmq.apps.moderation.queues import AUDIT, CHORES, DECISIONS, SUBMISSIONS, open_own, submitted
from bucketmq.apps.moderation.record import FLAGGED, NEEDS_REVIEW, OUTCOMES, PENDING, REVIEWED, Outcome, Record
from bucketmq.apps.moderation.register import (
    ACTIONS,
    UNDO_SECONDS,
    Accepted,
    Action,
    Decided,
    Decision,
    Refused,
    Register,
    Reviewed,
    Superseded,
    TakenBack,
    Undoing,
    digest_of,
    read_register,
)
from bucketmq.apps.moderation.routing import Reading, Thresholds
from bucketmq.bucket.port import Entry as Listed
from bucketmq.bucket.port import Missing
from bucketmq.errors import BucketMQError, Contended, Invalid, NotFound
from bucketmq.log.segment import time_text
from bucketmq.procedures.abreast import abreast, kept_apart
from bucketmq.procedures.objects.keys import full_key
from bucketmq.procedures.objects.metadata import NO_CAUSE, Cause
from bucketmq.procedures.objects.move import Move
from bucketmq.procedures.objects.put import put
from bucketmq.procedures.objects.read import Read, as_read, fetch
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Now, Procedure
from bucketmq.procedures.sending.send import letters, send
from bucketmq.procedures.verbs import get, list_all

CHORE_SECONDS = 30.0
TEXT_CHARS_MAX = 100_000
MEDIA_URL_CHARS_MAX = 2_048
NOTE_CHARS_MAX = 4_000
REVIEWER_CHARS_MAX = 200


def accept(bus: BucketApi, id: str, text: str, media_url: str | None = None) -> Procedure[Accepted]:
    """Give a submission its revision and send it to be judged; returns when it is durable in `submissions`.

    The register first, then the queue: an agent that dies in between has not answered, and the repeat of the submission
    finds its revision and sends it. A new post is one PUT of its own and two that are shared with others of this
    process. A repeat is sent once more at most, inside the queue's deduplication window; a post that was routed is not
    sent again.
    """
    check_id(id)
    _check_text(text, "text", TEXT_CHARS_MAX)
    if media_url is not None:
        _check_text(media_url, "media_url", MEDIA_URL_CHARS_MAX)
    bucket = yield from bus.open()
    at, digest = time_text((yield from Now())), digest_of(text, media_url)
    _, accepted = yield from register.change_register(
        bucket, id, lambda before: register.accepting(before, digest, at), create_first=True
    )
    if not accepted.decided:
        queue = yield from open_own(bucket, SUBMISSIONS)
        body = {
            "id": id,
            "text": text,
            "media_url": media_url,
            "revision": accepted.revision,
            "accepted_at": accepted.accepted_at,
        }
        dedup_key = None if accepted.new else f"{part_of(id)}:{accepted.revision}"
        yield from send(queue, letters([body], id, None, dedup_key))
    line = Line(
        action=action_of("accepted", id, accepted.revision),
        did="accepted",
        by="ingest",
        id=id,
        revision=accepted.revision,
        at=accepted.accepted_at,
    )
    yield from audit.note(bucket, line, again=not accepted.new)
    return accepted


def _check_text(text: object, what: str, chars_max: int) -> None:
    if not isinstance(text, str) or not text:
        raise Invalid(f"{what} must be text that is not empty")
    if len(text) > chars_max:
        raise Invalid(f"{what} has {len(text):,} characters; {chars_max:,} are allowed")
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Invalid(f"{what} has broken Unicode (a lone surrogate); send proper text") from None


class RoutedPost(msgspec.Struct, frozen=True):
    """What became of a record below `pending/`."""

    id: str
    revision: int
    outcome: Outcome | None
    """Where its post belongs; None if a newer revision was decided before."""
    placed: Placed
    reason: str = ""


def route(
    bus: BucketApi, key: str, *, thresholds: Thresholds = routing.STANDARD, cause: Cause = NO_CAUSE
) -> Procedure[RoutedPost | None]:
    """Decide on the record at `key`, below `pending/`, and move it where it belongs; None if it is gone.

    The first decision of a revision stands: a record of the same revision that comes again goes where that says. A
    register is made on the way for records of writers that keep none. Nine requests for a post that is new, and some
    more for one that was decided before.
    """
    (routed,) = yield from route_many(bus, [Appeared(key, cause)], thresholds=thresholds)
    if isinstance(routed, Exception):
        raise routed
    return routed


class Appeared(msgspec.Struct, frozen=True):
    """Where an object appeared, and the event that reported it."""

    key: str
    cause: Cause = NO_CAUSE


def route_many(
    bus: BucketApi, records: Sequence[Appeared], *, thresholds: Thresholds = routing.STANDARD
) -> Procedure[list[RoutedPost | Exception | None]]:
    """The same for many records at a time; for one that failed the error, which holds up no other.

    For each that is new two GETs, two PUTs (register, target) and one DELETE; for all together a few PUTs more.
    """
    bucket = yield from bus.open()
    yield from open_own(bucket, AUDIT)  # once, before all of them want it at the same time
    decided = yield from abreast([kept_apart(_decide(bucket, each, thresholds)) for each in records])
    moves = [each for each in decided if isinstance(each, _Decided)]
    placed = yield from places.place_many(bucket, [each.move for each in moves])
    ends = {id(each): where for each, where in zip(moves, placed, strict=True)}
    return [_routed_to(each, ends[id(each)]) if isinstance(each, _Decided) else each for each in decided]


class _Decided(msgspec.Struct, frozen=True, eq=False):
    """What is decided on a record that is to be moved now."""

    post: RoutedPost
    move: places.Placing


def _routed_to(decided: _Decided, placed: Placed | BucketMQError) -> RoutedPost | BucketMQError:
    return placed if isinstance(placed, BucketMQError) else msgspec.structs.replace(decided.post, placed=placed)


def _decide(bucket: OpenBucket, pending: Appeared, thresholds: Thresholds) -> Procedure[_Decided | RoutedPost | None]:
    """Decide on a record, and do everything but the move: a repeat after a crash still finds the record."""
    key, cause = pending.key, pending.cause
    try:
        source = yield from fetch(bucket, key)
    except NotFound:
        return None
    read = as_read(key, source)
    id = post_id(key)
    reading = routing.read(read.body, id=id)
    chosen = routing.outcome_of(reading, thresholds)
    now = time_text((yield from Now()))
    record = reading.record
    wanted = _decision(record, chosen.outcome, now, chosen.reason)
    if reading.revision is None and (yield from _revised(bucket, id, read, reading, wanted, cause=cause)):
        return (yield from _decide(bucket, pending, thresholds))
    _, found = yield from register.change_register(
        bucket, id, lambda before: register.deciding(before, reading.revision, wanted, record.created_at[:40] or now)
    )
    if isinstance(found, Superseded):
        revision = reading.revision or 0
        yield from audit.note(bucket, _superseded(id, revision, found, now))
        gone = not (yield from places.drop(bucket, key, read.version, cause=cause))
        return RoutedPost(id, revision, None, "gone" if gone else "superseded")
    decision = found.decision
    if found.closed is not None:  # who said it may have died before it was noted
        for line in audit.lines_of(id, found.closed):
            yield from audit.note(bucket, line, again=True)
    yield from audit.note(bucket, _routed(id, found), again=not found.new)
    if not (found.new and found.first):
        yield from places.settle(bucket, id, cause=cause)
    post = RoutedPost(id, decision.revision, found.outcome, "gone", decision.reason)
    move = Move(key, key_of(found.outcome, id), read.version, cause=cause, source=source)
    if (reading.revision or 1) != decision.revision or reading.unreadable:
        written = yield from _rewrite(bucket, read, reading, decision.revision, cause=cause)
        if written is None:
            return post
        move = msgspec.structs.replace(move, if_version=written, source=None)
    return _Decided(post, places.Placing(move, decision.revision, decision.digest))


def _decision(record: Record, outcome: Outcome, at: str, reason: str) -> Decision:
    """What a record comes to. Its revision is for `register.deciding` to find."""
    digest = digest_of(record.text, record.media_url)
    return Decision(0, outcome, at, digest, record.model[:200], record.confidence, reason[:1_000])


def post_id(key: str) -> str:
    """Whose record lies at a key below `pending/`: the id that the key was made of, or its own name if somebody else
    made it, or a hash of a name that no post may have."""
    id = id_at(PENDING, key)
    if id is not None:
        return id
    name = key.removeprefix(PENDING).removesuffix(SUFFIX)
    try:
        return check_id(name)
    except Invalid:
        return f"sha256-{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"


def _revised(
    bucket: OpenBucket, id: str, read: Read, reading: Reading, wanted: Decision, *, cause: Cause
) -> Procedure[bool]:
    """Whether a record that says no revision is another now: it was given the one that it will be decided as. Before
    that is decided, or the pipeline may put an older one in its place, and then there is neither."""
    before = yield from read_register(bucket, id)
    if before is None:
        return False  # it will be the first, and what is accepted from now on is newer
    if reading.record.revision < 1:
        return False  # it says one that cannot be, which a person should see
    _, found = register.deciding(before, None, wanted, "")
    if isinstance(found, Superseded) or not found.new:
        return False
    yield from _rewrite(bucket, read, reading, found.decision.revision, cause=cause)
    return True


def _rewrite(bucket: OpenBucket, read: Read, reading: Reading, revision: int, *, cause: Cause) -> Procedure[str | None]:
    """Write the record with its revision, so that wherever it lies it says which one it is, also to the pipeline, which
    goes by the metadata; None if it was changed."""
    if reading.unreadable:
        record: Any = msgspec.structs.replace(reading.record, revision=revision)
    else:
        record = {**msgspec.json.decode(read.body), "revision": revision}
    try:
        stored = yield from put(
            bucket,
            read.key,
            msgspec.json.encode(record),
            content_type="application/json",
            metadata={"revision": str(revision)},
            if_version=read.version,
            cause=cause,
        )
    except Contended:
        return None
    return stored.version


def _routed(id: str, found: Decided) -> Line:
    decision = found.decision
    return Line(
        action=action_of("routed", id, decision.revision),
        did="routed",
        by="router",
        id=id,
        revision=decision.revision,
        at=decision.at,
        outcome=decision.outcome,
        model=decision.model,
        confidence=decision.confidence,
        reason=decision.reason,
    )


def _superseded(id: str, revision: int, found: Superseded, at: str) -> Line:
    return Line(
        action=action_of("superseded", id, revision, str(found.revision)),
        did="superseded",
        by="router",
        id=id,
        revision=revision,
        at=at,
        reason=f"revision {found.revision} was decided before",
    )


def settle(bus: BucketApi, id: str, *, cause: Cause = NO_CAUSE) -> Procedure[Register | None]:
    """Bring the objects of a post to where its register says, also what people said; finish what another agent
    began."""
    bucket = yield from bus.open()
    found = yield from places.settle(bucket, check_id(id), cause=cause)
    chapter = found.chapter if found is not None else None
    for line in audit.lines_of(id, chapter) if chapter is not None else ():
        yield from audit.note(bucket, line, again=True)
    return found


def review(
    bus: BucketApi, id: str, *, revision: int, reviewer: str, action: Action, note: str = ""
) -> Procedure[Reviewed | Refused]:
    """What a person says of a post: `approve`, `uphold` (flag it, or leave it flagged) or `escalate`.

    The first person to approve or uphold a revision decides it; a later one is `Refused` and told who it was. The
    same person saying the same again is not an error: it finishes what may have been left undone. `reviewed/<id>.json`
    then says who and when (`escalated/<id>.json` for an escalation), and the object lies where it belongs.
    """
    _check_saying(id, action, note, reviewer=reviewer)
    bucket = yield from bus.open()
    if (yield from read_register(bucket, id)) is None and not (yield from _adopt(bucket, id)):
        raise NotFound(f"there is no post {id!r}; check its id")
    at = time_text((yield from Now()))
    yield from _announce(bucket, id)
    _, said = yield from register.change_register(
        bucket,
        id,
        lambda before: register.reviewing(
            before, revision=revision, reviewer=reviewer, action=action, note=note, at=at
        ),
    )
    if isinstance(said, Refused):
        yield from audit.note(bucket, _refused(id, revision, reviewer, at, reason=f"{action}: {said.text}"))
    else:
        yield from audit.note(bucket, audit.said(id, said.review, said.before), again=not said.new)
    yield from places.settle(bucket, id)
    return said


def _check_saying(id: str, action: Action, note: str, **who: str) -> None:
    check_id(id)
    for name, text in who.items():
        _check_text(text, name, REVIEWER_CHARS_MAX)
    if note:
        _check_text(note, "note", NOTE_CHARS_MAX)
    if action not in ACTIONS:
        raise Invalid(f"a reviewer can {', '.join(ACTIONS)}, not {action!r}")


class Saying(msgspec.Struct, frozen=True):
    """A revision of a post that somebody says something of."""

    id: str
    revision: int


def review_many(
    bus: BucketApi, sayings: Sequence[Saying], *, reviewer: str, action: Action, note: str = ""
) -> Procedure[list[Reviewed | Refused | Exception]]:
    """The same said of many posts, abreast; for one that failed the error, which holds up no other.

    Each costs what it costs alone and has its own line in the audit log; what goes to the logs travels together.
    """
    bucket = yield from bus.open()
    for name in (AUDIT, DECISIONS, CHORES):  # once, before all of them want it at the same time
        yield from open_own(bucket, name)
    return (
        yield from abreast(
            [
                kept_apart(review(bus, each.id, revision=each.revision, reviewer=reviewer, action=action, note=note))
                for each in sayings
            ]
        )
    )


def undo(
    bus: BucketApi,
    id: str,
    *,
    revision: int,
    action: Action,
    turn: int,
    by: str,
    administers: bool = False,
    note: str = "",
    window_seconds: float = UNDO_SECONDS,
) -> Procedure[TakenBack | Refused]:
    """Take back what was said of a post: the `action` of that `turn`, as its `Review` names them.

    Its author may, within `window_seconds` of the store's clock; an administrator (`administers`) at any time. The post
    then lies where it lay before and waits for a person again, `reviewed/<id>.json` is gone, and the register remembers
    both. The same call again finishes what may have been left undone. Costs what a review does.
    """
    _check_saying(id, action, note, by=by)
    bucket = yield from bus.open()
    if (yield from read_register(bucket, id)) is None:
        raise NotFound(f"nothing was decided about a post {id!r}; check its id")
    at = time_text((yield from Now()))
    yield from _announce(bucket, id)
    wanted = Undoing(
        revision=revision,
        action=action,
        turn=turn,
        by=by,
        administers=administers,
        at=at,
        note=note,
        window_seconds=window_seconds,
    )
    _, done = yield from register.change_register(bucket, id, lambda before: register.undoing(before, wanted))
    if isinstance(done, Refused):
        yield from audit.note(bucket, _refused(id, revision, by, at, reason=f"undo {action}: {done.text}"))
    else:
        yield from audit.note(bucket, audit.taken_back(id, done.undone, done.outcome), again=not done.new)
    yield from places.settle(bucket, id)
    return done


def _announce(bucket: OpenBucket, id: str) -> Procedure[None]:
    """Sent before the register is changed: if this process dies after that, a router settles the post."""
    chores = yield from open_own(bucket, CHORES)
    yield from send(chores, letters([{"settle": id}], None, None), CHORE_SECONDS)


def _refused(id: str, revision: int, by: str, at: str, *, reason: str) -> Line:
    return Line(
        action=action_of("refused", id, revision, by, at)[:500],
        did="refused",
        by=by,
        id=id,
        revision=revision,
        at=at,
        reason=reason,
    )


def _adopt(bucket: OpenBucket, id: str) -> Procedure[bool]:
    """Take a post without a register as decided by where its record lies: somebody put it there before there was a
    router of ours, or past it. False if it lies nowhere."""
    found = yield from _lying(bucket, id)
    if found is None:
        return False
    outcome, reading = found
    now = time_text((yield from Now()))
    wanted = _decision(reading.record, outcome, now, "it lay there")
    accepted_at = reading.record.created_at[:40] or now

    def adopting(before: Register) -> tuple[Register, None]:
        known = before.revision > 0  # another agent was faster
        return before if known else register.deciding(before, reading.revision or 1, wanted, accepted_at)[0], None

    yield from register.change_register(bucket, id, adopting)
    return True


def history(bus: BucketApi, *, id: str | None = None) -> Procedure[list[Line]]:
    """What was done to all posts, or to one, and by whom, in order. One GET for each segment of the audit log."""
    return (yield from audit.read_all((yield from bus.open()), id=id))


class PostState(msgspec.Struct, frozen=True):
    """A post as it is in the bucket now."""

    id: str
    register: Register | None
    record: Record | None
    """As it lies at its outcome; None if it is not there (yet)."""
    outcome: Outcome | None
    """Where it lies."""
    fault: str | None = None
    """Why the record cannot be read, if it cannot; then `record` holds what there is as its text."""


def look_at(bus: BucketApi, id: str) -> Procedure[PostState]:
    """One post: its register and its record. Two GETs, and two more if it lies elsewhere than its register says."""
    bucket = yield from bus.open()
    found = yield from read_register(bucket, check_id(id))
    lying = yield from _lying(bucket, id, found.outcome if found is not None else None)
    if lying is None:
        return PostState(id, found, None, None)
    outcome, reading = lying
    return PostState(id, found, reading.record, outcome, reading.fault)


def _lying(bucket: OpenBucket, id: str, first: Outcome | None = None) -> Procedure[tuple[Outcome, Reading] | None]:
    """Where the record of a post lies, and what it says; looked for at `first` first. One GET for each place."""
    for outcome in sorted(OUTCOMES, key=lambda each: each != first):
        there = yield from get(full_key(bucket, key_of(outcome, id)))
        if not isinstance(there, Missing):
            return outcome, routing.read(there.body, id=id)
    return None


class Entry(msgspec.Struct, frozen=True):
    """A post in a list. What it says costs a request: `look_at`."""

    id: str
    key: str
    outcome: Outcome
    stored_at: float
    """When it came there, in seconds since 1970."""
    state: str
    """Another one for every content that it had."""
    escalated: bool = False


class Waiting(msgspec.Struct, frozen=True):
    """The posts that wait for a person, those waiting longest first."""

    entries: tuple[Entry, ...]
    reviewed: int
    """How many posts people have decided."""


def waiting(bus: BucketApi) -> Procedure[Waiting]:
    """Every post in `flagged/` and `needs-review/` without a decision. One LIST for each 999 objects."""
    bucket = yield from bus.open()
    reviewed = yield from _ids(bucket, REVIEWED)
    escalated = yield from _ids(bucket, ESCALATED)
    outcomes: tuple[Outcome, ...] = (FLAGGED, NEEDS_REVIEW)
    entries = []
    for outcome in outcomes:
        for id, found in (yield from _ids(bucket, outcome)).items():
            if id not in reviewed:
                state = found.version or f"{found.stored_at}-{found.size_bytes}"
                entries.append(Entry(id, key_of(outcome, id), outcome, found.stored_at, state, id in escalated))
    return Waiting(tuple(sorted(entries, key=lambda each: (each.stored_at, each.id))), len(reviewed))


class Counted(msgspec.Struct, frozen=True):
    """How many posts are where."""

    submitted: int
    """Submissions ever sent, repeats and revisions included."""
    unjudged: int
    """Those that the pipeline has not judged yet."""
    objects: dict[str, int]
    """By prefix."""
    at_least: list[str]
    """The prefixes below which there are more than were counted."""


def overview(bus: BucketApi, *, pages_max: int = 1_000_000) -> Procedure[Counted]:
    """How many posts are where. One LIST for each 999 objects, up to so many pages, and a few requests more."""
    bucket = yield from bus.open()
    sent, unjudged = yield from submitted(bucket)
    counts, at_least = {}, []
    for prefix in (PENDING, *OUTCOMES, REVIEWED, ESCALATED):
        entries, more = yield from list_all(full_key(bucket, prefix), pages_max=pages_max)
        counts[prefix] = len(entries)
        at_least += [prefix] * more
    return Counted(sent, unjudged, counts, at_least)


def _ids(bucket: OpenBucket, prefix: str) -> Procedure[dict[str, Listed]]:
    """The posts with an object below `prefix`, as they are listed. Objects of others, which have no post's key, are
    left out."""
    root = full_key(bucket, prefix)
    entries, _ = yield from list_all(root)
    found = {id_at(root, entry.key): entry for entry in entries}
    return {id: entry for id, entry in found.items() if id is not None}
