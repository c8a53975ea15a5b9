"""Opening queues: their settings, made on first use, read again now and then, changed with a condition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from bucketmq.bucket.port import Missing
from bucketmq.errors import Corrupt, Invalid, NotFound
from bucketmq.log.documents import decode_settings
from bucketmq.log.layout import QueueKeys, join
from bucketmq.procedures.opened import OpenBucket, OpenQueue
from bucketmq.procedures.requests import Chance, Now, Procedure
from bucketmq.procedures.verbs import get, list_page, update_document
from bucketmq.queue.settings import DEAD_SUFFIX, SHARDS_MAX, TUNABLE, Backoff, Settings, check_name, check_settings

SETTINGS_SECONDS = 30.0
"""How long settings are believed before they are read again."""

DEAD_SETTINGS = Settings(attempts_max=1000, keep_seconds=7 * 86400.0)

EVENTS = "events"
DELIVERIES = "deliveries"
ACTIONS = "bucketmq-actions"
"""What people and programs asked for through the server's doors, for the record; see `server.actions`."""

FIRST_SETTINGS = {
    EVENTS: Settings(main=False, ordered=True, attempts_max=1000, keep_seconds=7 * 86400.0),
    DELIVERIES: Settings(main=False, keep_seconds=7 * 86400.0, expire_seconds=7 * 86400.0),
    ACTIONS: Settings(main=False, keep_seconds=90 * 86400.0, expire_seconds=90 * 86400.0),
}
"""How our own queues are made. Nobody but rules reads those of the event bus, and what they hold stays for a week."""


def check_queue_name(name: str) -> str:
    """Raise `Invalid` unless a user may name a queue so."""
    check_name(name, "queue name")
    if name.endswith(DEAD_SUFFIX):
        raise Invalid(f"queue name {name!r} ends with {DEAD_SUFFIX!r}, which is for dead letters; use .dead_letters")
    return name


def wanted_settings(options: dict[str, Any]) -> dict[str, Any]:
    """Settings given by keyword, checked. None of them has a default here: absent means "as it is"."""
    unknown = sorted(set(options) - TUNABLE)
    if unknown:
        raise Invalid(f"unknown setting {unknown[0]!r}; there are {', '.join(sorted(TUNABLE))}")
    backoff = options.get("backoff")
    try:
        if isinstance(backoff, dict):
            options = {**options, "backoff": msgspec.convert(backoff, Backoff)}
        defaults: dict[str, Any] = msgspec.to_builtins(Settings())
        check_settings(msgspec.convert({**defaults, **msgspec.to_builtins(options)}, Settings))
    except msgspec.ValidationError as error:
        raise Invalid(f"bad setting: {error}") from error
    return options


def open_queue(bucket: OpenBucket, name: str, options: dict[str, Any], *, create: bool = True) -> Procedure[OpenQueue]:
    """The queue of this name with these settings; made if there is none. One GET the first time in a process.

    `shards` counts here only when the queue is made; raising it later is `procedures.sending.shards`.
    """
    found = bucket.queues.get(name)
    if found is not None and not options:
        return found
    keys = QueueKeys(bucket.prefix, name)
    wanted = wanted_settings(options)
    stored = yield from get(keys.settings)
    now = yield from Now()
    if isinstance(stored, Missing):
        if not create:
            raise NotFound(
                f"there is no queue {name!r} under {join(bucket.prefix, 'queues')!r}; run init or send to it"
            )
        yield from _check_empty(keys)
        plain = DEAD_SETTINGS if name.endswith(DEAD_SUFFIX) else FIRST_SETTINGS.get(name, Settings())
        first = msgspec.structs.replace(plain, **wanted)
        settings = yield from change_settings(keys, first, lambda before: before)
    else:
        settings = decode_settings(stored.body, keys.settings)
    if _with(settings, wanted) != settings:
        settings = yield from change_settings(keys, settings, lambda before: _with(before, wanted))
    queue = bucket.queues.setdefault(name, OpenQueue(bucket, keys, settings, now))
    queue.turn = queue.turn or int((yield from Chance()) * SHARDS_MAX)
    queue.adopt(settings, now)
    return queue


def _check_empty(keys: QueueKeys) -> Procedure[None]:
    """Settings that are missing beside a log were lost: new ones could have too few shards, and hide messages."""
    for part in (keys.log(0), keys.heads):
        page = yield from list_page(part, limit=1)
        if page.entries and isinstance((yield from get(keys.settings)), Missing):
            raise Corrupt(
                f"{keys.settings} is missing though queue {keys.queue!r} holds messages or heads: restore it, or run "
                "bucketmq doctor --deep, then --mend"
            )


def _with(before: Settings, wanted: dict[str, Any]) -> Settings:
    if wanted.get("shards", before.shards) < before.shards:
        raise Invalid(f"the shard count can be raised but not lowered: it is {before.shards}")
    if wanted.get("ordered", before.ordered) != before.ordered:
        raise Invalid("a queue is ordered or not from its beginning; send to a new queue instead")
    return check_settings(msgspec.structs.replace(before, **{k: v for k, v in wanted.items() if k != "shards"}))


def change_settings(keys: QueueKeys, first: Settings, change: Callable[[Settings], Settings]) -> Procedure[Settings]:
    return (yield from update_document(Settings, keys.settings, first, change))


def refresh_settings(queue: OpenQueue) -> Procedure[Settings]:
    """The settings, read again if they were read long ago. One GET every `SETTINGS_SECONDS`."""
    now = yield from Now()
    if (queue.stale and queue.settings.ordered) or now - queue.settings_at > SETTINGS_SECONDS:
        yield from reload_settings(queue)
    return queue.settings


def reload_settings(queue: OpenQueue) -> Procedure[Settings]:
    now, doubts = (yield from Now()), queue.doubts
    found = yield from get(queue.keys.settings)
    settings = queue.settings if isinstance(found, Missing) else decode_settings(found.body, queue.keys.settings)
    queue.adopt(settings, now, doubts)
    return queue.settings


def dead_queue(queue: OpenQueue) -> Procedure[OpenQueue]:
    return (yield from open_queue(queue.bucket, queue.name + DEAD_SUFFIX, {}))


def origin_queue(queue: OpenQueue) -> Procedure[OpenQueue]:
    return (yield from open_queue(queue.bucket, queue.name.removesuffix(DEAD_SUFFIX), {}))


def list_queues(bucket: OpenBucket) -> Procedure[list[str]]:
    """The names of all queues, dead letters left out. Some LISTs: one for each queue, however deep they are."""
    return [name for name in (yield from names_below(bucket, "queues")) if not name.endswith(DEAD_SUFFIX)]


def names_below(bucket: OpenBucket, folder: str) -> Procedure[list[str]]:
    """The first parts of the keys below a folder of ours, in order. One LIST for each of them, whatever they hold."""
    prefix = join(bucket.prefix, folder) + "/"
    names: set[str] = set()
    after = ""
    while True:
        page = yield from list_page(prefix, after=after)
        for entry in page.entries:
            names.add(entry.key.removeprefix(prefix).split("/", 1)[0])
        if not page.more:
            return sorted(names)
        last = max(entry.key for entry in page.entries)
        # Jump over everything else of the last one seen: "0" is the character after "/".
        after = prefix + last.removeprefix(prefix).split("/", 1)[0] + "0" if bucket.lists_in_order else last
