"""Pausing: a note in the queue's settings that claims honour. Nothing more is handed out; sends and leases go on.

Other processes believe settings for `queues.SETTINGS_SECONDS`, so a pause holds everywhere after that long, and so does
its end; in the process that asks, at once. Readers by offset, such as Spark queries, claim nothing and are not paused.
"""

from __future__ import annotations

import msgspec
from msgspec import UNSET

from bucketmq.errors import Invalid, NotFound
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.queues import change_settings, reload_settings
from bucketmq.procedures.requests import Now, Procedure
from bucketmq.procedures.verbs import list_page
from bucketmq.queue.settings import EVERYBODY, MAIN, WHY_CHARS_MAX, Settings, check_name


def pause(queue: OpenQueue, subscription: str | None, why: str) -> Procedure[Settings]:
    """Hand out nothing, to one subscription or to all. Two GETs and a PUT; a LIST more for one subscription."""
    if len(why) > WHY_CHARS_MAX:
        raise Invalid(f"the reason of a pause has at most {WHY_CHARS_MAX} characters, not {len(why):,}")
    name = yield from _whom(queue, subscription)
    return (yield from _note(queue, name, why or "paused"))


def resume(queue: OpenQueue, subscription: str | None) -> Procedure[Settings]:
    """Hand out messages again. What one pause stopped another may still stop: of the queue, or of the subscription."""
    name = EVERYBODY if subscription is None else check_name(subscription, "subscription")
    return (yield from _note(queue, name, None))


def _note(queue: OpenQueue, name: str, why: str | None) -> Procedure[Settings]:
    def change(before: Settings) -> Settings:
        others = {each: text for each, text in (before.paused or {}).items() if each != name}
        paused = others if why is None else {**others, name: why}
        return msgspec.structs.replace(before, paused=paused or UNSET)

    yield from reload_settings(queue)
    changed = yield from change_settings(queue.keys, queue.settings, change)
    queue.adopt(changed, (yield from Now()))
    return changed


def _whom(queue: OpenQueue, subscription: str | None) -> Procedure[str]:
    """A subscription that there is: a mistyped name must not seem to be paused."""
    if subscription is None:
        return EVERYBODY
    check_name(subscription, "subscription")
    if subscription == MAIN and queue.settings.main:
        return subscription
    if not (yield from list_page(f"{queue.keys.heads}{subscription}/", limit=1)).entries:
        raise NotFound(f"queue {queue.name!r} has no subscription {subscription!r}; see: bucketmq subscriptions ls")
    return subscription
