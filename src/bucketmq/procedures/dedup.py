"""Idempotent sends: within a window, a deduplication key is used for one message, whoever dies or repeats what.

The keys of a window lie in a few small registers (slots by hash), replaced with a condition. An entry names the message
and the segment it is meant for, and is written before the segment is created. The entry alone decides: whoever comes
with the same key later looks whether that segment holds the message, and if not, puts it there himself. If somebody
else's segment took the place, the entry is given another one first. So at any time there is one place where the message
may be, and it is created there at most once.
"""

from __future__ import annotations

import hashlib

import msgspec

from bucketmq.bucket.port import Missing, Object, Version, Written
from bucketmq.errors import Contended
from bucketmq.log import documents
from bucketmq.log import segment as lines
from bucketmq.log.documents import Dedup, Sent
from bucketmq.log.segment import Segment
from bucketmq.procedures.append import Landed, Taken, is_outdated, maybe_hint, notice_fence, place, tail
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.requests import Create, Now, Procedure, Replace
from bucketmq.procedures.routing import shard_of
from bucketmq.procedures.shards import sending_settings
from bucketmq.procedures.verbs import Patience, get
from bucketmq.queue.message import Message

SLOTS = 16
SLOT_ENTRIES_MAX = 20_000


class Once(msgspec.Struct, frozen=True):
    """The message a deduplication key stands for, and whether this call sent it."""

    id: str
    shard: int
    offset: int
    duplicate: bool


def send_once(queue: OpenQueue, dedup_key: str, message: Message) -> Procedure[Once]:
    """Send `message` unless its key was used inside the window. One PUT more than a plain send, and one GET."""
    name = hashlib.blake2b(dedup_key.encode(), digest_size=12).hexdigest()
    slot_key = queue.keys.dedup(int(name[:2], 16) % SLOTS)
    patience = Patience(f"deduplicating in {slot_key}")
    taken: Sent | None = None
    while True:
        register, version = yield from _read(slot_key)
        now = yield Now()
        entry = register.sent.get(name)
        known_at = 0.0
        if entry is None or entry.at < now - queue.settings.dedup_seconds or entry == taken:
            entry, known_at = yield from _enter(queue, entry if entry == taken else None, message, now)
            body = documents.encode(_with(register, name, entry, now - queue.settings.dedup_seconds))
            reply = yield (Create(slot_key, body) if version is None else Replace(slot_key, body, version))
            if not isinstance(reply, Written):
                # Refused or unknown: reading again tells whose entry stands, ours included.
                yield from patience.again(reply)
                continue
        outcome = yield from _deliver(queue, entry, message, known_at)
        if isinstance(outcome, Segment):
            offset = outcome.base + _place_of(outcome, entry.id)
            return Once(entry.id, entry.shard, offset, duplicate=entry.id != message.id)
        taken = entry


def _read(key: str) -> Procedure[tuple[Dedup, Version | None]]:
    found = yield from get(key)
    if isinstance(found, Missing):
        return Dedup(), None
    return documents.decode(Dedup, found.body, key), found.version


def _enter(queue: OpenQueue, old: Sent | None, message: Message, now: float) -> Procedure[tuple[Sent, float]]:
    """An entry for a fresh message, or the same message at another place."""
    while True:
        shards = (yield from sending_settings(queue)).shards
        shard = shard_of(shards, message.key, queue.turn)
        log = queue.log(shard)
        base = yield from tail(queue, log)
        if not is_outdated(queue, shards):
            break
    return Sent(old.id if old else message.id, old.at if old else now, shard, base), log.tail_at


def _with(register: Dedup, name: str, entry: Sent, since: float) -> Dedup:
    """The register with the entry, without those that have left the window."""
    kept = {other: sent for other, sent in register.sent.items() if sent.at >= since}
    if len(kept) >= SLOT_ENTRIES_MAX:
        raise Contended(f"{len(kept)} deduplication keys in one slot of the window; shorten dedup_seconds")
    return Dedup(register.version + 1, {**kept, name: entry})


def _deliver(queue: OpenQueue, entry: Sent, message: Message, known_at: float) -> Procedure[Segment | Taken]:
    """Make sure that the entry's message is in the entry's segment, or learn that somebody else's is there."""
    log = queue.log(entry.shard)
    if entry.id != message.id:
        found = yield from get(log.key(entry.base))
        if isinstance(found, Object):
            segment = Segment(entry.base, found.body)
            notice_fence(queue, segment)
            log.learn(segment.end, 0.0)
            return segment if _place_of(segment, entry.id) >= 0 else Taken(segment.end)
    body = lines.encode([msgspec.structs.replace(message, id=entry.id)])
    outcome = yield from place(
        queue, log, entry.base, body, lambda segment: _place_of(segment, entry.id) >= 0, known_at=known_at
    )
    if isinstance(outcome, Landed):
        yield from maybe_hint(queue, log)
        return Segment(entry.base, body)
    return outcome


def _place_of(segment: Segment, id_: str) -> int:
    """Where in the segment the message lies; -1 if nowhere."""
    if segment.parts or id_.encode() not in segment.body:
        return -1
    ids = [message.id for message in segment.messages(segment.base, segment.end)]
    return ids.index(id_) if id_ in ids else -1
