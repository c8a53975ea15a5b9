"""Examining an event with its object: does the rest of the filter hold, is the object gone, does it go in circles?

The log alone decides what it can (`rules.choice`). What is asked here costs a HEAD or a GET, and only where the
filter or the policy wants to know.
"""

from __future__ import annotations

from typing import Any

import msgspec

from bucketmq import outcomes
from bucketmq.bucket.port import Found, Missing, Object
from bucketmq.errors import Invalid
from bucketmq.events import filters
from bucketmq.events.event import ObjectEvent, plain_version, seconds_of
from bucketmq.events.filters import NO_JSON, UNFETCHED, Decision, Known
from bucketmq.events.rule import Policy
from bucketmq.procedures.objects.keys import full_key
from bucketmq.procedures.objects.metadata import hops_of, is_written_again
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.verbs import get, look


def examine(
    bucket: OpenBucket, name: str, chosen: filters.Filter, policy: Policy, event: ObjectEvent
) -> Procedure[outcomes.Done | outcomes.Bury | None]:
    """What the filter and the policy of the rule `name` make of an event: None if it is to be delivered. A HEAD if the
    policy wants to know whether the object is gone, and what the filter needs."""
    if not (yield from matches(bucket, chosen, event, body_bytes_max=policy.body_bytes_max)):
        return outcomes.Done()
    hops = event.hops
    if policy.gone != "deliver" and event.kind in ("created", "changed", "moved"):
        found = yield from look_at(bucket, event.key)
        if isinstance(found, Missing) or is_newer(found, event):
            state = "gone" if isinstance(found, Missing) else "in another version"
            return outcomes.Done() if policy.gone == "drop" else outcomes.Bury(f"{event.key!r} is {state} by now")
        hops = max(hops, hops_of(found.attributes))  # native notifications do not tell
    if hops > policy.hops_max:
        chain = " -> ".join(event.lineage[-4:]) or "which ones is not known"
        return outcomes.Bury(
            f"loop guard: {event.key!r} was written in the {hops}th hop of a chain of events ({chain}), and rule "
            f"{name} allows {policy.hops_max}; break the loop, or raise hops_max"
        )
    return None


def is_newer(found: Found | Object, event: ObjectEvent) -> bool:
    """Whether the object was written again since. The version alone does not tell: a source may write it otherwise than
    the store does, and a recovery that had no answer may write what a move made once more when that was reported."""
    if event.version is None or plain_version(found.version) == event.version:
        return False
    if event.kind == "moved" and is_written_again(found):
        return False
    return found.stored_at > seconds_of(event.at)


def look_at(bucket: OpenBucket, key: str) -> Procedure[Found | Missing]:
    """The object's state; missing too if it has a key that no object of ours can have."""
    try:
        return (yield from look(full_key(bucket, key)))
    except Invalid:
        return Missing()


def matches(bucket: OpenBucket, chosen: filters.Filter, event: ObjectEvent, *, body_bytes_max: int) -> Procedure[bool]:
    """Whether the filter holds, fetching what it needs of the object: nothing, a HEAD, or a GET of the body, once."""
    decision = chosen.decide(event)
    known: Any = UNFETCHED
    body: Any = UNFETCHED
    while decision not in (Decision.MATCH, Decision.NO_MATCH):
        if decision is Decision.NEEDS_ATTRIBUTES:
            found = yield from look_at(bucket, event.key)
            known = Known()
            if isinstance(found, Found):
                attributes = found.attributes
                known = Known(
                    content_type=attributes.content_type or None,
                    metadata=attributes.metadata,
                    size_bytes=found.size_bytes,
                )
        else:
            body = yield from json_body(bucket, event, body_bytes_max)
        decision = chosen.decide(event, known, body)
    return decision is Decision.MATCH


def json_body(bucket: OpenBucket, event: ObjectEvent, bytes_max: int) -> Procedure[Any]:
    """The object's JSON, or `NO_JSON` if it is gone, too large or something else. One GET, after a HEAD if the event
    does not tell the size."""
    if event.kind == "deleted":
        return NO_JSON
    size = event.size_bytes
    if size is None:
        found = yield from look_at(bucket, event.key)
        size = bytes_max + 1 if isinstance(found, Missing) else found.size_bytes
    if size > bytes_max:
        return NO_JSON
    try:
        whole = yield from get(full_key(bucket, event.key))
    except Invalid:
        return NO_JSON
    if isinstance(whole, Missing) or len(whole.body) > bytes_max:
        return NO_JSON
    try:
        return msgspec.json.decode(whole.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return NO_JSON
