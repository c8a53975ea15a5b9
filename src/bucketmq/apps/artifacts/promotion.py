"""Promotion: an artifact is copied inside the store to an environment, checked again there, and then pointed at.

```
1  the pointer as it is now            what the decision is made on
2  the manifest below builds/          signed by enough trusted keys
3  the gate                            the environment before has this digest and reports healthy; approvals suffice
4  copies to released/...              never over another object; those of a promoter that died are met here
5  every copy read and hashed          after the copy, not before
6  the manifest beside them
7  the pointer replaced                if it is still the one of step 1: this is the promotion
```

Whatever dies before step 7 leaves copies that nobody points at, and the next promotion of the version goes on with
them. A rollback does steps 5 and 7 for what lies in the environment already. Every gate fails closed: what cannot be
read, believed or found counts against the promotion.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

import msgspec

from bucketmq.api.bucket import BucketApi
from bucketmq.apps.artifacts import environments, keys, places
from bucketmq.apps.artifacts.envelope import SigningKey
from bucketmq.apps.artifacts.environments import Approval, Approved, Did, Pointed, Pointer, Report, State
from bucketmq.apps.artifacts.keys import Environment, Trust
from bucketmq.apps.artifacts.manifest import MANIFEST, Manifest, Opened
from bucketmq.apps.artifacts.refusals import Gated, Untrusted, listed
from bucketmq.apps.artifacts.verify import check_files, judge, trusted_manifest
from bucketmq.errors import Contended, Invalid, NotFound
from bucketmq.events.event import time_text
from bucketmq.procedures.objects.batches import Failed
from bucketmq.procedures.objects.copy import Copying, copy_many
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import NewId, Now, Procedure

WHY_CHARS_MAX = 500


class Gate(msgspec.Struct, frozen=True):
    """Whether a version may go to an environment now, and what is missing."""

    environment: str
    version: str
    digest: str
    open: bool
    missing: tuple[str, ...]
    approvals: tuple[Approved, ...] = ()


class Promoted(msgspec.Struct, frozen=True):
    """The pointer as it is now."""

    pointer: Pointer
    new: bool
    """Whether this call made it; False if that was current already."""


class Promoter(msgspec.Struct, frozen=True):
    """Who moves a pointer."""

    keys: tuple[SigningKey, ...]
    """The first must have the role `environments`."""
    by: str = ""
    """A person's name; empty for the owner of the key."""
    why: str = ""


class _Change(msgspec.Struct, frozen=True):
    """What is to become of a pointer."""

    policy: Environment
    opened: Opened
    did: Did
    promoter: Promoter


def promote(
    bus: BucketApi, trust: Trust, name: str, version: str, environment: str, *, promoter: Promoter
) -> Procedure[Promoted]:
    """Make a version current in an environment. `Gated` says what is missing, `Contended` who was faster.

    For each file one HEAD, one copy and one GET, or a GET, a PUT and a GET where the store does not copy; besides some
    twenty requests for all of them. What is current already is left as it is.
    """
    bucket = yield from bus.open()
    policy = trust.environment(environment)
    now = yield from Now()
    own = keys.require_role(trust, promoter.keys, "environments", now)
    before = yield from environments.read_pointer(bucket, trust, environment, name)
    opened, _ = yield from trusted_manifest(bucket, trust, places.build(name, version), name, version)
    if before is not None and _holds(before.pointer, opened.digest, now):
        return Promoted(before.pointer, new=False)
    found = yield from gate(bucket, trust, policy, opened, promoter=own.id, by=promoter.by)
    if not found.open:
        raise Gated(f"{name} {version} may not go to {environment} yet: {listed(found.missing)}. Nothing was changed")
    yield from _release(bucket, trust, environment, opened)
    return (yield from _point(bucket, trust, before, _Change(policy, opened, "promoted", promoter)))


def _holds(pointer: Pointer, digest: str, now_seconds: float) -> bool:
    return pointer.current.digest == digest and not keys.is_over(pointer.expires_at, now_seconds)


def gate(
    bucket: OpenBucket, trust: Trust, policy: Environment, opened: Opened, *, promoter: str = "", by: str = ""
) -> Procedure[Gate]:
    """Whether an artifact may be promoted. Three LISTs and some GETs. The approvals of who promotes do not count: those
    of the key `promoter`, of any other key of its owner, and of the person `by`."""
    manifest = opened.manifest
    missing: list[str] = []
    if policy.after:
        missing += yield from _unhealthy(bucket, trust, policy, opened)
    wanted = Approval(policy.name, manifest.name, manifest.version, opened.digest, "")
    approvals: tuple[Approved, ...] = ()
    if policy.approvals:
        found = yield from environments.read_approvals(bucket, trust, wanted)
        own = trust.key(promoter)
        promoting = {by} if own is None else {by, own.owner}
        people = {each.by: each for each in found if each.by not in promoting}
        approvals = tuple(people.values())
        if len(approvals) < policy.approvals:
            having = ", ".join(each.by for each in approvals) or "nobody"
            missing.append(
                f"{policy.approvals} must approve, besides the person who promotes, and {having} has; somebody with "
                f"the right runs: bucketmq artifacts approve {manifest.name} {manifest.version} --env {policy.name} "
                "--key FILE"
            )
    return Gate(policy.name, manifest.version, opened.digest, not missing, tuple(missing), approvals)


def _unhealthy(bucket: OpenBucket, trust: Trust, policy: Environment, opened: Opened) -> Procedure[list[str]]:
    """Why the environment before does not speak for it."""
    name = opened.manifest.name
    pointed = yield from environments.read_pointer(bucket, trust, policy.after, name)
    if pointed is None:
        return [f"{policy.after} has no {name}; promote it there first"]
    current = environments.check_fresh(pointed.pointer, (yield from Now())).current
    if current.digest != opened.digest:
        return [
            f"{policy.after} has {name} {current.version} ({current.digest[:12]}), not this; promote it there first"
        ]
    reports = yield from environments.read_reports(bucket, trust, policy.after, name)
    about = [each for each in reports if (each.digest, each.counter) == (current.digest, current.counter)]
    bad = [f"{each.agent} in {policy.after} reports {each.state}: {each.why}" for each in about if not _is_well(each)]
    well = sum(_is_well(each) for each in about)
    if not bad and well < policy.healthy:
        bad = [
            f"{well} of the {policy.healthy} agents that must report it healthy in {policy.after} do so; wait, or look"
        ]
    return bad


def _is_well(report: Report) -> bool:
    return report.state == "healthy"


def _release(bucket: OpenBucket, trust: Trust, environment: str, opened: Opened) -> Procedure[None]:
    """Copy the files, check every copy, then copy the manifest. Copies that are there already are checked as well."""
    manifest = opened.manifest
    source = places.build(manifest.name, manifest.version)
    target = places.release(environment, manifest.name, manifest.version)
    copies = [Copying(source + each.path, target + each.path, each.size_bytes) for each in manifest.files]
    yield from _copied(bucket, copies)
    yield from _check_release(bucket, environment, manifest)
    yield from _copied(bucket, [Copying(source + MANIFEST, target + MANIFEST)])
    yield from _released(bucket, trust, (environment, manifest.name), manifest.version, opened.digest)


def _released(bucket: OpenBucket, trust: Trust, where: tuple[str, str], version: str, digest: str) -> Procedure[Opened]:
    """The manifest that lies in an environment, if it is the one with this digest. One GET."""
    environment, name = where
    place = places.release(environment, name, version)
    found, _ = yield from trusted_manifest(bucket, trust, place, name, version)
    if found.digest != digest:
        raise Untrusted(
            f"{place} holds {found.digest[:12]} instead of {digest[:12]}; do not use it, and find out who changed it"
        )
    return found


def _copied(bucket: OpenBucket, copies: list[Copying]) -> Procedure[None]:
    for each in (yield from copy_many(bucket, copies)):
        if isinstance(each, Failed) and each.kind != Invalid.kind:  # there is one already: its bytes are checked
            raise each.error


def _check_release(bucket: OpenBucket, environment: str, manifest: Manifest) -> Procedure[None]:
    place = places.release(environment, manifest.name, manifest.version)
    problems = yield from check_files(bucket, place, manifest, take=judge)
    if problems:
        raise Untrusted(
            f"{place} is not what was signed: {listed(problems)}. Nothing was promoted; find out who changed it, "
            "delete what lies there, and promote again"
        )


def _point(bucket: OpenBucket, trust: Trust, before: Pointed | None, change: _Change) -> Procedure[Promoted]:
    """Replace the pointer, if it is still the one that was looked at."""
    environment, name = change.policy.name, change.opened.manifest.name
    now = yield from Now()
    own = keys.require_role(trust, change.promoter.keys, "environments", now)
    state = State(
        change.opened.manifest.version,
        change.opened.digest,
        (yield from _last_counter(bucket, trust, before, environment, name)) + 1,
        change.did,
        (change.promoter.by or own.owner)[:100],
        time_text(now),
        (yield from NewId()),
        _text(change.promoter.why),
    )
    pointer = environments.after(None if before is None else before.pointer, change.policy, name, state, now)
    if_version = None if before is None else before.version
    try:
        yield from environments.write_pointer(bucket, pointer, change.promoter.keys, if_version)
    except Contended:
        there = yield from environments.read_pointer(bucket, trust, environment, name)
        if there is not None and any(each.id == state.id for each in there.pointer.history):
            return Promoted(there.pointer, new=True)  # ours landed, and somebody went on from it
        raise Contended(_who_was_faster(there, environment, name)) from None
    return Promoted(pointer, new=True)


def _last_counter(
    bucket: OpenBucket, trust: Trust, before: Pointed | None, environment: str, name: str
) -> Procedure[int]:
    """What the next counter must be above: that of the pointer, and those that agents have reported. Where the pointer
    was lost, or somebody put an old one back, they have seen higher ones, and would refuse the next."""
    reports = yield from environments.read_reports(bucket, trust, environment, name)
    return max([0 if before is None else before.pointer.current.counter, *(each.counter for each in reports)])


def _text(why: str) -> str:
    if len(why) > WHY_CHARS_MAX or (why and not why.isprintable()):
        raise Invalid(f"the reason must be one printable line of up to {WHY_CHARS_MAX} characters")
    return why


def _who_was_faster(there: Pointed | None, environment: str, name: str) -> str:
    if there is None:
        return f"the pointer of {name} in {environment} was deleted meanwhile; look at it and decide again"
    now = there.pointer.current
    return (
        f"{now.by} changed {name} in {environment} meanwhile: {now.did} to {now.version}, counter {now.counter}. "
        "Nothing was changed by this call; look at it (bucketmq artifacts status) and decide again"
    )


def rollback(
    bus: BucketApi, trust: Trust, name: str, environment: str, *, promoter: Promoter, to: str = ""
) -> Procedure[Promoted]:
    """Go back to what was current before, or to a version that once was: a new state with a higher counter.

    Needs neither health nor approvals, but what it goes back to is verified as if it were new. One GET for each file.
    """

    def choose(pointer: Pointer) -> State:
        if not to and pointer.previous is not None:
            return pointer.previous
        for each in pointer.past:
            if to and each.version == to and each.digest != pointer.current.digest:
                return each
        known = ", ".join(dict.fromkeys(each.version for each in pointer.past)) or "none"
        wanted = f"was never at {to}" if to else "has no earlier state"
        raise NotFound(f"{name} in {environment} {wanted}, so it cannot go back there; it was at: {known}")

    return (yield from _again(bus, trust, (environment, name), choose, "rolled back", promoter=promoter))


def refresh(bus: BucketApi, trust: Trust, name: str, environment: str, *, promoter: Promoter) -> Procedure[Promoted]:
    """Say that what is current still is: a new end, a higher counter. It is verified again. One GET for each file."""
    current = attrgetter("current")
    return (yield from _again(bus, trust, (environment, name), current, "refreshed", promoter=promoter))


def _again(
    bus: BucketApi,
    trust: Trust,
    where: tuple[str, str],
    choose: Callable[[Pointer], State],
    did: Did,
    *,
    promoter: Promoter,
) -> Procedure[Promoted]:
    """Point at something that lies in the environment already."""
    environment, name = where
    bucket = yield from bus.open()
    policy = trust.environment(environment)
    keys.require_role(trust, promoter.keys, "environments", (yield from Now()))
    before = yield from environments.read_pointer(bucket, trust, environment, name)
    if before is None:
        raise NotFound(f"nothing was ever promoted to {environment} as {name}; see: bucketmq artifacts status")
    wanted = choose(before.pointer)
    opened = yield from _released(bucket, trust, (environment, name), wanted.version, wanted.digest)
    yield from _check_release(bucket, environment, opened.manifest)
    return (yield from _point(bucket, trust, before, _Change(policy, opened, did, promoter)))


def approve(
    bus: BucketApi, trust: Trust, name: str, version: str, environment: str, *, signing: SigningKey
) -> Procedure[Approval]:
    """Say that a version may go to an environment. It is bound to the digest. Two GETs' worth and a put."""
    bucket = yield from bus.open()
    trust.environment(environment)
    now = yield from Now()
    keys.require_role(trust, (signing,), "approves", now)
    opened, _ = yield from trusted_manifest(bucket, trust, places.build(name, version), name, version)
    approval = Approval(environment, name, version, opened.digest, time_text(now))
    yield from environments.write_approval(bucket, approval, signing)
    return approval
