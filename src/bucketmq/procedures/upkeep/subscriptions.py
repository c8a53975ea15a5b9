"""Removing a subscription: its heads are deleted, so that trimming keeps nothing for it any more.

Each head is removed in the state in which it was looked at, so a message that is claimed meanwhile is noticed. What was
removed by half, because the process died, is listed still: removing it again finishes. A process that goes on reading
makes the subscription again, from the beginning of the log: stop its workers first.

How each is doing is `stats.subscriptions`.
"""

from __future__ import annotations

from bucketmq.bucket.port import Missing, Removed
from bucketmq.errors import Invalid, NotFound
from bucketmq.events.rule import OWN_QUEUES, rule_of
from bucketmq.log.documents import decode_head
from bucketmq.log.layout import head_of
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.queues import reload_settings
from bucketmq.procedures.requests import Now, Procedure, Remove
from bucketmq.procedures.upkeep.pausing import resume
from bucketmq.procedures.verbs import Patience, get, get_there, list_all
from bucketmq.queue.head import Head
from bucketmq.queue.settings import MAIN, check_name


def remove_subscription(queue: OpenQueue, name: str, *, force: bool = False) -> Procedure[int]:
    """Remove a subscription with everything it has not settled; returns how many heads that were.

    `Invalid` if messages are in flight, unless `force`; for `main` while the queue has it; and for that of a rule.
    `NotFound` if there is none. Two LISTs at most; two GETs and a DELETE for each shard.
    """
    check_name(name, "subscription")
    yield from _check_removable(queue, name)
    entries, _ = yield from list_all(f"{queue.keys.heads}{name}/")
    keys = [entry.key for entry in entries]
    if not force:  # all of them before the first goes: what is refused should be left whole
        for key, found in (yield from get_there(keys)).items():
            _check_idle(queue, name, decode_head(found.body, key), (yield from Now()))
    removed = 0
    for key in keys:
        removed += yield from _remove(queue, name, key, force=force)
    if not removed:
        entries, _ = yield from list_all(queue.keys.heads)
        others = ", ".join(sorted({head_of(entry.key)[0] for entry in entries})) or "none yet"
        raise NotFound(f"queue {queue.name!r} has no subscription {name!r}; there are: {others}")
    if name in (queue.settings.paused or {}):  # one of this name that is made later is another
        yield from resume(queue, name)
    return removed


def _check_removable(queue: OpenQueue, name: str) -> Procedure[None]:
    rule = rule_of(name) if queue.name in OWN_QUEUES else None
    if rule is not None:
        raise Invalid(f"{name} is the subscription of rule {rule!r}; remove the rule: bucketmq rules rm {rule}")
    if name == MAIN and (yield from reload_settings(queue)).main:
        raise Invalid(
            f"main is the queue's own subscription and would begin again with the oldest message; to drop what it has "
            f"not settled: bucketmq purge {queue.name}; to do without it: bucketmq init {queue.name} --no-main"
        )


def _remove(queue: OpenQueue, name: str, key: str, *, force: bool) -> Procedure[bool]:
    """Whether there was a head that is gone now. Asked again after a reply that was lost, while the head is there."""
    patience = Patience(f"removing {key}")
    asked = False
    while True:
        found = yield from get(key)
        if isinstance(found, Missing):
            return asked
        if not force:
            _check_idle(queue, name, decode_head(found.body, key), (yield from Now()))
        reply = yield from Remove(key, found.version)
        if isinstance(reply, Removed):
            return True
        asked = True
        yield from patience.again(reply)


def _check_idle(queue: OpenQueue, name: str, head: Head, now: float) -> None:
    leases = [lease for lease in head.leases if lease.until > now]
    if leases:
        count = sum(held.span.count for lease in leases for held in lease.held)
        seconds = max(lease.until for lease in leases) - now
        raise Invalid(
            f"subscription {name!r} of queue {queue.name!r} has {count:,} {'message' if count == 1 else 'messages'} in "
            f"flight for up to {seconds:.0f} s; stop its workers and try again, or force it"
        )
