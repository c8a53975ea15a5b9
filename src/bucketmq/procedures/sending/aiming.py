"""Aiming: segments that must get into a log once, whatever fails and however many processes try.

A register, that is a head or a small document, names the place a segment is meant for before the segment is created.
So at any time there is one place where it may be, and any process that finds the register unfinished can go on:

1. Choose a target: a shard, its tail, and a fresh number to recognise the segment by (`choose`).
2. Enter the target in the register, by a write with a condition. Refused or unknown: read the register; what stands
   there counts, whoever wrote it.
3. Create the segment at the target, or find it there.
4. Another segment took the place: choose a new target and enter it in place of the old one, as in 2; then 3. If the
   register does not name the old one any more, another process has gone on with it: stop.
5. Note in the register that the segment is there.

`land` does 3 and 4. There are four such registers: heads (`sending.dead_letters`), `later.json` (`sending.delayed`),
deduplication keys (`sending.dedup`) and publications (`bulk.publish`). They differ in what a segment is made of, how it
is recognised, and how the register is written; that is what they hand in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

import msgspec

from bucketmq.bucket.port import Version, Written
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.requests import NewId, Procedure
from bucketmq.procedures.segments.append import is_outdated
from bucketmq.procedures.segments.tail import tail
from bucketmq.procedures.sending.shards import sending_settings
from bucketmq.procedures.verbs import Patience, get_state, put_over
from bucketmq.queue.head import Target

Load = TypeVar("Load")
Entry = TypeVar("Entry")
Document = TypeVar("Document")


class Chosen(msgspec.Struct, Generic[Load], frozen=True):
    """A target for some loads, and the shard count by which its shard was chosen."""

    target: Target
    shards: int
    loads: tuple[Load, ...]


def choose(queue: OpenQueue, loads: Sequence[Load], home: Callable[[int, Load], int]) -> Procedure[list[Chosen[Load]]]:
    """One target for each shard that some of the loads go to; `home` says which, given the shard count.

    Usually free. In an ordered queue whose count is raised meanwhile, the loads are sorted into shards again.
    """
    while True:
        shards = (yield from sending_settings(queue)).shards
        by_shard: dict[int, list[Load]] = {}
        for load in loads:
            by_shard.setdefault(home(shards, load), []).append(load)
        chosen = []
        for shard, its in sorted(by_shard.items()):
            base = yield from tail(queue, queue.log(shard))
            chosen.append(Chosen(Target(shard, base, (yield from NewId())), shards, tuple(its)))
        if not is_outdated(queue, shards):
            return chosen


def land(
    entries: Iterable[Entry],
    create: Callable[[Entry], Procedure[bool]],
    enter_others: Callable[[list[Entry]], Procedure[Sequence[Entry] | None]],
) -> Procedure[list[Entry] | None]:
    """Have the segments of a register's entries in the log; returns the entries, as they stand in the register then.

    `create` puts one segment at its place and says whether it is there. `enter_others` is given those whose place was
    taken: it replaces them in the register, and returns the new ones; None if the register could not be changed, or
    does not name the old ones any more. Then `land` returns None, too.
    """
    landed: list[Entry] = []
    left = list(entries)
    while left:
        taken: list[Entry] = []
        for entry in left:
            (landed if (yield from create(entry)) else taken).append(entry)
        others = (yield from enter_others(taken)) if taken else ()
        if others is None:
            return None
        left = list(others)
    return landed


class Register(Generic[Document]):
    """A document that one caller changes step by step, each time on the condition that nobody else has."""

    def __init__(self, key: str, empty: Document, patience: Patience) -> None:
        self.key = key
        self.document = empty
        """As last read or written; `empty` where there is none in the bucket."""
        self._empty = empty
        self._version: Version | None = None
        self._patience = patience

    def read(self) -> Procedure[Document]:
        """One GET."""
        self.document, self._version = yield from get_state(self.key, self._empty)
        return self.document

    def write(self, after: Document) -> Procedure[bool]:
        """One PUT. False if it was refused or its outcome is unknown: read again, which tells whose change stands, our
        own included."""
        reply = yield from put_over(self.key, after, self._version)
        if not isinstance(reply, Written):
            yield from self._patience.again(reply)
            return False
        self.document, self._version = after, reply.version
        return True
