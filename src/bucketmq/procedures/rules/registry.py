"""Rules as they lie in the bucket: add, read, change, remove.

A rule's heads are made before the rule is, so that it begins where its maker said; and they are deleted after every
process that runs it has had time to notice that it is removed, so that none begins it again by mistake.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

import msgspec

from bucketmq.bucket.port import Found, Missing, Removed, Version
from bucketmq.errors import Corrupt, Invalid, NotFound
from bucketmq.events import filters
from bucketmq.events.event import seconds_of, time_text
from bucketmq.events.rule import (
    SUBSCRIPTION_PREFIX,
    Rule,
    Secrets,
    check_rule,
    check_rule_name,
    edited,
    rule_of,
    subscription_name,
)
from bucketmq.log.layout import EventKeys, head_of
from bucketmq.procedures.claiming.receive import Start, begin
from bucketmq.procedures.objects.remove import remove_state
from bucketmq.procedures.objects.report import events_queue
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import NewId, Now, Procedure, Remove
from bucketmq.procedures.verbs import delete, get_document, get_state, list_all, look, update_document

logger = logging.getLogger("bucketmq")

REMOVED_SECONDS = 60.0
"""How long the processes that run a rule have to notice that it is removed."""

ORPHAN_SECONDS = 600.0
"""Heads that belong to no rule go after nobody has touched them for this long."""


class Kept(msgspec.Struct, frozen=True):
    """A rule as it lies in the bucket, and its mark."""

    rule: Rule
    version: Version
    mark: str = ""
    """What the listing said of that state."""


def add_rule(
    bucket: OpenBucket, rule: Rule, secrets: Secrets | None, start: Start, *, replace: bool = False
) -> Procedure[Rule]:
    """Make a rule, or change the one of this name if `replace`. It begins at `start`; one that is changed goes on."""
    check_rule(rule)
    filters.parse(rule.filter)
    keys = EventKeys(bucket.prefix)
    while True:
        left = yield from look(keys.secrets(rule.name))  # before the rule is read: what comes later is not left over
        before = yield from get_document(Rule, keys.rule(rule.name))
        if before is not None and before[0].removed_at is None:
            if not replace:
                raise Invalid(_taken(rule.name))
            return (yield from _replace_rule(keys, rule, before[0], secrets))
        rule = msgspec.structs.replace(rule, revision=0 if before is None else before[0].revision + 1)
        try:
            return (yield from _make_rule(bucket, rule, secrets, start, left))
        except _Taken:
            if not replace:
                raise Invalid(_taken(rule.name)) from None


def _replace_rule(keys: EventKeys, rule: Rule, old: Rule, secrets: Secrets | None) -> Procedure[Rule]:
    wanted = msgspec.structs.replace(
        rule,
        subscription=old.subscription,
        created_at=old.created_at,
        begins=old.begins,
        paused=old.paused,  # what stopped it is not cured by changing something else; `resume` is for that
        revision=old.revision + 1,
    )

    def replaced(found: Rule) -> Rule:
        if found.subscription != wanted.subscription and found.removed_at is None:
            raise Invalid(_taken(rule.name))  # it was removed and made again meanwhile
        return wanted

    if secrets is not None:
        yield from update_document(Secrets, keys.secrets(rule.name), secrets, lambda found: _following(found, secrets))
    return (yield from update_document(Rule, keys.rule(rule.name), wanted, replaced))


class _Taken(Exception):
    """Somebody else made a rule of this name meanwhile."""


def _make_rule(
    bucket: OpenBucket, rule: Rule, secrets: Secrets | None, start: Start, left: Found | Missing
) -> Procedure[Rule]:
    """Make a rule where there is none, or one that was removed: its heads, its secrets, then itself.

    Of several that do so at once the one whose rule is there first wins, and the others take their heads away again:
    nobody reads them, and they would hold up trimming. `left` are the secrets of the one that was removed.
    """
    keys, queue = EventKeys(bucket.prefix), (yield from events_queue(bucket))
    subscription = subscription_name(rule.name, (yield from NewId()))
    created_at = time_text((yield from Now()))
    made = msgspec.structs.replace(
        rule,
        subscription=subscription,
        created_at=created_at,
        begins=(yield from begin(queue, subscription, start)),
    )

    def only(found: Secrets) -> Secrets:
        if found != secrets:
            raise _Taken
        return found

    try:
        if isinstance(left, Found):
            yield from remove_state(keys.secrets(rule.name), left.version)
        if secrets is not None:
            yield from update_document(Secrets, keys.secrets(rule.name), secrets, only)
        return (yield from update_document(Rule, keys.rule(rule.name), made, lambda found: _made(found, made)))
    except _Taken:
        yield from _delete_all(f"{queue.keys.heads}{subscription}/")
        raise


def _made(found: Rule, made: Rule) -> Rule:
    """What a rule becomes by being made. One that somebody else made meanwhile stays: its heads are where it began, and
    ours are not. Our own, which had landed, stays as it was changed since."""
    if found.subscription == made.subscription:
        return found
    if found.removed_at is None:
        raise _Taken
    return made


def _taken(name: str) -> str:
    return f"there is a rule {name!r} already; remove it, choose another name, or say replace"


def _following(old: Secrets, new: Secrets) -> Secrets:
    same = msgspec.structs.replace(new, revision=old.revision)
    return old if same == old else msgspec.structs.replace(new, revision=old.revision + 1)


def get_rule(bucket: OpenBucket, name: str) -> Procedure[Rule]:
    """The rule of this name, or `NotFound`. One GET."""
    key = EventKeys(bucket.prefix).rule(check_rule_name(name))
    found = yield from get_document(Rule, key)
    if found is None or found[0].removed_at is not None:
        raise NotFound(_absent(name))
    return found[0]


def get_secrets(bucket: OpenBucket, name: str) -> Procedure[Secrets]:
    return (yield from get_state(EventKeys(bucket.prefix).secrets(check_rule_name(name)), Secrets()))[0]


def list_rules(
    bucket: OpenBucket, known: dict[str, Kept] | None = None, *, unreadable: set[str] | None = None
) -> Procedure[dict[str, Kept]]:
    """Every rule by name, removed ones too. One LIST, and a GET for each that is not in `known` as it is.

    One that cannot be read, being broken or of a later format, must not stop the others: its name goes to `unreadable`.
    """
    folder = EventKeys(bucket.prefix).rules
    entries, _ = yield from list_all(folder)
    found: dict[str, Kept] = {}
    for entry in entries:
        name = entry.key.removeprefix(folder)
        if "/" in name or not name.endswith(".json") or name.endswith(".secrets.json"):
            continue
        name = name.removesuffix(".json")
        before = (known or {}).get(name)
        mark = entry.version or f"{entry.stored_at} {entry.size_bytes}"  # not every listing tells versions
        if before is not None and before.mark == mark:
            found[name] = before
            continue
        try:
            document = yield from get_document(Rule, entry.key)
        except Corrupt as error:
            logger.warning("action=rule_unreadable rule=%s %s", name, error)
            if unreadable is not None:
                unreadable.add(name)
            continue
        if document is not None:
            found[name] = Kept(document[0], document[1].version, mark)
    return found


def change_rule(bucket: OpenBucket, name: str, change: Callable[[Rule], Rule]) -> Procedure[Rule]:
    """Replace a rule by `change` of it, which must be repeatable. One GET and one PUT."""
    rule = yield from get_rule(bucket, name)

    def changed(before: Rule) -> Rule:
        if before is rule:  # there is none any more: it was removed since, and must not come back
            raise NotFound(_absent(name))
        return change(before)

    return (yield from update_document(Rule, EventKeys(bucket.prefix).rule(name), rule, changed))


def _absent(name: str) -> str:
    return f"there is no rule {name!r}; see `bucketmq rules ls`"


def pause_rule(bucket: OpenBucket, name: str, why: str) -> Procedure[Rule]:
    return (yield from change_rule(bucket, name, lambda rule: edited(rule, paused=why or "paused")))


def resume_rule(bucket: OpenBucket, name: str) -> Procedure[Rule]:
    return (yield from change_rule(bucket, name, lambda rule: edited(rule, paused=None)))


def change_secrets(bucket: OpenBucket, name: str, change: Callable[[Secrets], Secrets]) -> Procedure[Secrets]:
    """Replace a rule's secrets by `change` of them: rotation adds one in front and keeps the old for a while."""
    yield from get_rule(bucket, name)
    key = EventKeys(bucket.prefix).secrets(name)
    return (yield from update_document(Secrets, key, Secrets(), lambda old: _following(old, change(old))))


def remove_rule(bucket: OpenBucket, name: str) -> Procedure[Rule]:
    """Remove a rule. Its heads, with what it had not delivered, go a minute later."""
    at = time_text((yield from Now()))
    return (yield from change_rule(bucket, name, lambda rule: edited(rule, removed_at=rule.removed_at or at)))


def tidy_rules(bucket: OpenBucket) -> Procedure[int]:
    """Delete what removed rules left behind; returns how many objects. A LIST or two when there is nothing."""
    unreadable: set[str] = set()
    rules = yield from list_rules(bucket, unreadable=unreadable)
    queue = yield from events_queue(bucket)
    now = yield from Now()
    keys = EventKeys(bucket.prefix)
    gone = 0
    for name, kept in rules.items():
        removed_at = kept.rule.removed_at
        if removed_at is not None and now - seconds_of(removed_at) > REMOVED_SECONDS:
            gone += yield from _delete_all(f"{queue.keys.heads}{kept.rule.subscription}/")
            gone += yield from _delete_all(keys.gatherings(kept.rule.subscription))
            # Each only as it was: a rule of this name may be made again at any time. What stays is seen next time.
            gone += yield from _remove_found(keys.secrets(name), kept.rule, keys.rule(name))
            gone += isinstance((yield from Remove(keys.rule(name), kept.version)), Removed)
    in_use = {kept.rule.subscription for kept in rules.values()}
    entries, _ = yield from list_all(queue.keys.heads)
    for entry in entries:
        subscription, _ = head_of(entry.key)
        is_rule = subscription.startswith(SUBSCRIPTION_PREFIX) and rule_of(subscription) not in unreadable
        if is_rule and subscription not in in_use and now - entry.stored_at > ORPHAN_SECONDS:
            yield from delete(entry.key)
            gone += 1
    return gone


def _remove_found(key: str, rule: Rule, rule_key: str) -> Procedure[bool]:
    """Remove an object that belongs to a removed rule, unless a new rule has its name by then."""
    found = yield from look(key)
    current = yield from get_document(Rule, rule_key)
    if isinstance(found, Missing) or (current is not None and current[0].subscription != rule.subscription):
        return False
    return isinstance((yield from Remove(key, found.version)), Removed)


def _delete_all(folder: str) -> Procedure[int]:
    entries, _ = yield from list_all(folder)
    for entry in entries:
        yield from delete(entry.key)
    return len(entries)
