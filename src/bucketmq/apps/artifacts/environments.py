"""Environments: a pointer for each artifact says what is current there. It is the one thing that is ever replaced.

A pointer is a signed document with a counter that only grows and an end. It is replaced with a condition on the state
that the decision was made on, so of any number of promoters who look at the same state one wins, and the rest are told
who it was. What was current before stays in it, the newest first, so the history needs nothing else.

Reports of agents and approvals of people are signed, too. Moving pointers is `promotion`, obeying them is `deploy`.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from bucketmq.apps.artifacts import envelope, keys, places
from bucketmq.apps.artifacts.envelope import SigningKey
from bucketmq.apps.artifacts.keys import Environment, Trust
from bucketmq.apps.artifacts.refusals import Untrusted
from bucketmq.errors import BucketMQError, NotFound
from bucketmq.events.event import time_text
from bucketmq.procedures.abreast import abreast
from bucketmq.procedures.objects.batches import Stored
from bucketmq.procedures.objects.listing import all_items
from bucketmq.procedures.objects.put import put
from bucketmq.procedures.objects.read import read_object
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Now, Procedure

POINTER = "application/vnd.bucketmq.artifacts.pointer+json"
APPROVAL = "application/vnd.bucketmq.artifacts.approval+json"
REPORT = "application/vnd.bucketmq.artifacts.report+json"

PAST_MAX = 100
"""States that a pointer remembers."""
DAY_SECONDS = 86400.0

Did = Literal["promoted", "rolled back", "refreshed"]


class State(msgspec.Struct, frozen=True, omit_defaults=True):
    """What was made current, by whom and when."""

    version: str
    digest: str
    counter: int
    did: Did
    by: str
    at: str
    id: str
    """Of the change: its maker knows it again by that."""
    why: str = ""


class Pointer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the payload of `env/{environment}/{name}.json` holds."""

    environment: str
    name: str
    current: State
    expires_at: str
    past: tuple[State, ...] = ()
    """The newest first."""
    format: int = 1

    @property
    def previous(self) -> State | None:
        """The newest state with another digest: what a rollback goes back to."""
        return next((each for each in self.past if each.digest != self.current.digest), None)

    @property
    def history(self) -> tuple[State, ...]:
        return (self.current, *self.past)


class Pointed(msgspec.Struct, frozen=True):
    """A pointer that was read and believed, and the state of its object."""

    pointer: Pointer
    version: str
    signed_by: str


class Report(msgspec.Struct, frozen=True, omit_defaults=True):
    """What an agent says of what it was to deploy."""

    environment: str
    name: str
    agent: str
    version: str
    digest: str
    counter: int
    state: Literal["healthy", "failed", "refused"]
    at: str
    why: str = ""
    took_seconds: float = 0.0
    format: int = 1


class Approval(msgspec.Struct, frozen=True):
    """One person's word that a digest may go to an environment."""

    environment: str
    name: str
    version: str
    digest: str
    at: str
    format: int = 1


class Approved(msgspec.Struct, frozen=True):
    """An approval that counts."""

    by: str
    key: str
    at: str


def after(before: Pointer | None, gate: Environment, name: str, state: State, now_seconds: float) -> Pointer:
    """The pointer with one state more. Its counter must have grown."""
    assert before is None or state.counter > before.current.counter
    past = () if before is None else before.history[:PAST_MAX]
    ends = time_text(now_seconds + gate.expires_days * DAY_SECONDS)
    return Pointer(gate.name, name, state, ends, past)


def read_pointer(bucket: OpenBucket, trust: Trust, environment: str, name: str) -> Procedure[Pointed | None]:
    """The pointer, signed by a trusted key; None if nothing was ever promoted there. One GET. Its end is not looked
    at."""
    key = places.pointer(environment, name)
    try:
        found = yield from read_object(bucket, key)
    except NotFound:
        return None
    pointer, by = keys.open_signed(
        Pointer, POINTER, found.body, trust=trust, role="environments", now_seconds=(yield from Now()), what=key
    )
    if (pointer.environment, pointer.name) != (environment, name):
        raise Untrusted(
            f"{key} is the pointer of {pointer.name} in {pointer.environment}: somebody copied it there; do not use it"
        )
    return Pointed(pointer, found.version, by[0].owner)


def check_fresh(pointer: Pointer, now_seconds: float) -> Pointer:
    """`Untrusted` once it is over: somebody may be keeping a newer one from us."""
    if keys.is_over(pointer.expires_at, now_seconds):
        raise ended(pointer)
    return pointer


def ended(pointer: Pointer) -> Untrusted:
    return Untrusted(
        f"the pointer of {pointer.name} in {pointer.environment} (counter {pointer.current.counter}) ended at "
        f"{pointer.expires_at}; if it is still right: bucketmq artifacts refresh {pointer.name} "
        f"--env {pointer.environment}"
    )


def write_pointer(
    bucket: OpenBucket, pointer: Pointer, signing: tuple[SigningKey, ...], if_version: str | None
) -> Procedure[None]:
    """Put it in the place of the state it was decided on, or of none. `Contended` if it is another one by now."""
    body = envelope.encode(envelope.seal(POINTER, msgspec.json.encode(pointer), signing))
    yield from put(
        bucket,
        places.pointer(pointer.environment, pointer.name),
        body,
        content_type="application/json",
        only_new=if_version is None,
        if_version=if_version,
    )


def read_reports(bucket: OpenBucket, trust: Trust, environment: str, name: str) -> Procedure[list[Report]]:
    """What agents report of an artifact. One that nobody trusted has signed counts as not there. A LIST, a GET each."""
    place = places.reports(environment, name)
    now = yield from Now()
    reports: list[Report] = []
    for key, body in (yield from _documents(bucket, place)):
        try:
            report, _ = keys.open_signed(Report, REPORT, body, trust=trust, role="reports", now_seconds=now, what=key)
        except Untrusted:
            continue
        if (report.environment, report.name, f"{place}{report.agent}.json") == (environment, name, key):
            reports.append(report)
    return sorted(reports, key=lambda each: each.agent)


def write_report(bucket: OpenBucket, report: Report, signing: SigningKey) -> Procedure[Stored]:
    """Say how it went, in the place of what this agent said before."""
    body = envelope.encode(envelope.seal(REPORT, msgspec.json.encode(report), (signing,)))
    key = f"{places.reports(report.environment, report.name)}{report.agent}.json"
    return (yield from put(bucket, key, body, content_type="application/json"))


def read_approvals(bucket: OpenBucket, trust: Trust, wanted: Approval) -> Procedure[list[Approved]]:
    """Who approved of this digest in this environment, each key once. A LIST, a GET each."""
    place = places.approvals(wanted.environment, wanted.name, wanted.version)
    now = yield from Now()
    found: dict[str, Approved] = {}
    for key, body in (yield from _documents(bucket, place)):
        try:
            said, by = keys.open_signed(
                Approval, APPROVAL, body, trust=trust, role="approves", now_seconds=now, what=key
            )
        except Untrusted:
            continue
        if msgspec.structs.replace(said, at=wanted.at) == wanted:
            found |= {each.id: Approved(each.owner, each.id, said.at) for each in by}
    return sorted(found.values(), key=lambda each: each.by)


def write_approval(bucket: OpenBucket, approval: Approval, signing: SigningKey) -> Procedure[Stored]:
    body = envelope.encode(envelope.seal(APPROVAL, msgspec.json.encode(approval), (signing,)))
    place = places.approvals(approval.environment, approval.name, approval.version)
    return (yield from put(bucket, f"{place}{signing.id[:32]}.json", body, content_type="application/json"))


def _documents(bucket: OpenBucket, place: str) -> Procedure[list[tuple[str, bytes]]]:
    names = [each.key for each in (yield from all_items(bucket, place))]
    found = yield from abreast([read_object(bucket, key) for key in names])
    for each in found:
        if isinstance(each, BucketMQError) and not isinstance(each, NotFound):
            raise each
    return [(key, each.body) for key, each in zip(names, found, strict=True) if not isinstance(each, BucketMQError)]


def pointers(bucket: OpenBucket) -> Procedure[list[tuple[str, str]]]:
    """Environments and artifacts that have a pointer. One LIST for each 999 of them."""
    items = yield from all_items(bucket, places.ENV)
    return [where for each in items if (where := places.pointed_at(each.key)) is not None]
