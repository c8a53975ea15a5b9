"""Idempotent sends: within a window, a deduplication key is used for one message, whatever dies or is repeated.

The keys of a window lie in small registers, chosen by the key's hash and replaced with a condition. An entry names the
message and the segment it is meant for, and is written before the segment is created (see `sending.aiming`). The entry
alone decides: a later send with the same key looks whether that segment holds the message, and if not, puts it there.

A register that is full splits. It is marked, gets no more entries, and keys go on in one of 256 registers below it, by
two more digits of their hash. What it holds counts until the window has passed; it does not change any more, so a
process reads it once. So the bytes of a send do not grow with the number of keys in the window.
"""

from __future__ import annotations

import msgspec

from bucketmq.log import segment as lines
from bucketmq.log.documents import SPLIT_FORMAT, Dedup, DedupEntry
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.requests import Now, Procedure
from bucketmq.procedures.segments.append import begins_with, place
from bucketmq.procedures.segments.messages import read_segment
from bucketmq.procedures.sending.aiming import Register, choose, land
from bucketmq.procedures.verbs import Patience
from bucketmq.queue.message import Message
from bucketmq.queue.routing import digits_of, shard_of

SLOTS = 16
ENTRIES_MAX = 32
"""A register with this many keys inside the window is full. Some 2.5 kB, and 130,000 keys before a process that is new
to the queue has to read more than two registers to find the right one."""

SPLITS_MAX = 10_000
"""How many split registers a process remembers. It forgets all of them at once, and reads those it needs again."""

Entries = dict[str, DedupEntry]


def send_once(queue: OpenQueue, dedup_key: str, message: Message) -> Procedure[DedupEntry]:
    """Send `message` unless its key was used inside the window; returns what the key stands for, which has another id
    than the message if it was.

    One PUT more than a plain send, and one GET; one more for each split register that this process has not met yet.
    """
    name = digits_of(dedup_key)
    patience = Patience(f"deduplicating in {_key(queue, name, 0)}")

    def create(entry: DedupEntry) -> Procedure[bool]:
        shard_log = queue.log(entry.shard)
        mine = begins_with(entry.id)
        if entry.id != message.id:  # probably there: look before writing
            segment = yield from read_segment(queue, shard_log, entry.base)
            if segment is not None:
                queue.jump(shard_log, entry.base)
                shard_log.learn(segment.end, 0.0)
                return mine(segment)
        body = lines.encode([msgspec.structs.replace(message, id=entry.id)])
        return (yield from place(queue, shard_log, entry.base, body, mine, count=1))

    def enter_others(taken: list[DedupEntry]) -> Procedure[list[DedupEntry] | None]:
        entry = yield from _aim(queue, message.key, taken[0].id, taken[0].at)
        return [entry] if (yield from _enter(queue, register, name, entry)) else None

    while True:
        register, entry = yield from _find(queue, name, patience)
        now = yield from Now()
        if entry is None or not _counts(queue, entry, now):
            entry = yield from _aim(queue, message.key, message.id, now)
            if not (yield from _enter(queue, register, name, entry)):
                continue
        landed = yield from land([entry], create, enter_others)
        if landed is not None:
            return landed[0]


def _aim(queue: OpenQueue, key: str | None, id_: str, at: float) -> Procedure[DedupEntry]:
    """An entry for a message at the end of its shard."""
    (chosen,) = yield from choose(queue, [key], lambda shards, key: shard_of(shards, key, queue.turn))
    return DedupEntry(id_, at, chosen.target.shard, chosen.target.base)


def _key(queue: OpenQueue, name: str, level: int) -> str:
    return queue.keys.dedup(int(name[:2], 16) % SLOTS, name[2 : 2 + 2 * level])


def _counts(queue: OpenQueue, entry: DedupEntry, now: float) -> bool:
    """Whether an entry is inside the window."""
    return entry.at >= now - queue.settings.dedup_seconds


def splits_of(queue: OpenQueue) -> dict[str, Entries]:
    """The split registers that this process has met, by their keys, and what they hold."""
    return queue.shared("dedup splits", dict)


def _find(queue: OpenQueue, name: str, patience: Patience) -> Procedure[tuple[Register[Dedup], DedupEntry | None]]:
    """The register that takes entries of this name, and the last entry of it, there or in those that have split."""
    entry, level = None, 0
    while True:
        key = _key(queue, name, level)
        entries = splits_of(queue).get(key)
        if entries is None:
            register = Register(key, Dedup(), patience)
            entries = (yield from register.read()).sent
            if register.document.split is not True:
                return register, entries.get(name, entry)
            entries = yield from _note_split(queue, register)
        entry, level = entries.get(name, entry), level + 1


def _enter(queue: OpenQueue, register: Register[Dedup], name: str, entry: DedupEntry) -> Procedure[bool]:
    """Write the entry; False if the register has changed meanwhile, or was full and has split: find it again."""
    before, now = register.document, (yield from Now())
    inside = {other: sent for other, sent in before.sent.items() if _counts(queue, sent, now)}
    if len(inside.keys() - {name}) < ENTRIES_MAX:
        return (yield from register.write(Dedup(before.version + 1, inside | {name: entry})))
    if (yield from register.write(Dedup(before.version + 1, inside, SPLIT_FORMAT, split=True))):
        yield from _note_split(queue, register)
    return False


def _note_split(queue: OpenQueue, register: Register[Dedup]) -> Procedure[Entries]:
    """Remember the entries of a register that has split. Those of a long time ago are deleted: one PUT, once."""
    splits = splits_of(queue)
    entries, now = register.document.sent, (yield from Now())
    if entries and not any(_counts(queue, sent, now) for sent in entries.values()):
        entries = {}
        yield from register.write(Dedup(register.document.version + 1, entries, SPLIT_FORMAT, split=True))
    if len(splits) >= SPLITS_MAX:
        splits.clear()
    splits[register.key] = entries
    return entries
