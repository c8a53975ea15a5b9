"""Publishing: what a bulk writer made becomes part of the log, once for each batch of a transaction.

A batch is any number of parts, objects of lines that lie in the bucket already. It becomes one segment of parts in each
shard that it has lines for. A register for each transaction remembers the last batch: which parts it consists of, and
where its segments are meant to go. It is written before the segments are created, and it alone decides. Whoever comes
with a batch that the register has not finished, a driver that was started again or a rival, finishes what is written
there, with the parts that are named there, and leaves his own alone. If somebody else's segment took a place, the
register is given another one first. So at any time there is one place where a segment of the batch may be.

A batch may have parts for several logs: messages for one queue, and dead letters of another. One register decides about
all of them, so that a row is in one or the other, whichever attempt of a batch it is that counts.

The register also repeats how far the batch's sources were read, so that a checkpoint that was lost can be made again.

Making parts is the bulk writer's task and does not belong here; nor does deleting those that were never published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from bucketmq.bucket.port import Missing, Object, Version, Written
from bucketmq.errors import Corrupt, Invalid, Unavailable
from bucketmq.log import documents
from bucketmq.log import segment as lines
from bucketmq.log.layout import join
from bucketmq.log.segment import Part, Segment
from bucketmq.procedures.append import (
    SLEEP_SECONDS,
    Landed,
    begins_with,
    is_outdated,
    maybe_hint,
    notice_fence,
    place,
    tail,
    trim_mark,
)
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.queues import open_queue
from bucketmq.procedures.requests import Create, NewId, Now, Procedure, Replace
from bucketmq.procedures.routing import shard_of
from bucketmq.procedures.shards import sending_settings
from bucketmq.procedures.verbs import Patience, create_named, delete, get, look
from bucketmq.queue.settings import FORMAT, check_name

replace = msgspec.structs.replace

ORPHAN_SECONDS = 86400.0
"""A part that is older and that neither a segment nor a register names was never published, and may be deleted."""

PUBLISH_SECONDS = ORPHAN_SECONDS / 2
"""Parts that are older are not published any more: they may be deleted soon. Much less than the above."""

Log = tuple[str | None, int]
"""A queue, or None for the register's, and a shard of it."""

Offsets = Mapping[str, Mapping[str, int]]
"""How far sources were read: queue -> shard -> the first offset that was not."""


class Made(msgspec.Struct, frozen=True):
    """A part that a bulk writer made: lines for `shard`, chosen by a count of `shards`."""

    shard: int
    shards: int
    part: Part
    at: float
    """When it was written, on the store's clock."""
    queue: str | None = None
    """The queue it was made for; None for the one of the register."""


class Aimed(msgspec.Struct, frozen=True, omit_defaults=True):
    """A segment of the batch: where it is meant to go, and what it names."""

    shard: int
    base: int
    id: str
    shards: int
    """The shard count by which its lines were chosen."""
    parts: tuple[Part, ...]
    queue: str | None = None
    """The queue whose log it goes to; None for the one of the register."""

    @property
    def count(self) -> int:
        return sum(part.count for part in self.parts)


class Publication(msgspec.Struct, frozen=True):
    """`spark/<transaction>.json`: the last batch of a transaction. `version` grows by one with every change."""

    version: int = 0
    batch: int = -1
    done: bool = True
    """Whether every segment of the batch is in the log."""
    at: float = 0.0
    """When the places of its segments were last chosen."""
    segments: tuple[Aimed, ...] = ()
    offsets: dict[str, dict[str, int]] = {}
    format: int = FORMAT


class Published(msgspec.Struct, frozen=True):
    """What came of it. `already` says that the batch had been published before, as a whole or by a batch after it."""

    batch: int
    already: bool
    segments: tuple[Aimed, ...] = ()
    """Where it lies, as far as the register still knows: nothing for a batch before the last."""


def publish(
    queue: OpenQueue, transaction: str, batch: int, made: Sequence[Made], offsets: Offsets | None = None
) -> Procedure[Published]:
    """Put a batch into the log, unless that was done before. Returns when every segment of it is there.

    A GET and two PUTs of the register, and for each shard the search for the tail and one PUT. The register is that of
    `queue`; parts may be for other queues of the bucket, too.
    """
    check_name(transaction, "transaction")
    if batch < 0:
        raise Invalid(f"batch must be 0 or more, not {batch}")
    key = queue.keys.publication(transaction)
    patience = Patience(f"publishing batch {batch} of {transaction} in {key}")
    looks = 0
    while True:
        register, version = yield from _read(key)
        looks += 1
        if batch < register.batch:
            return Published(batch, already=looks == 1)
        if batch == register.batch and register.done:
            return Published(batch, already=looks == 1, segments=register.segments)
        known_at: dict[Log, float] = {}
        if batch > register.batch and register.done:
            register, known_at = yield from _enter(queue, transaction, batch, made, offsets=offsets, before=register)
            reply = yield from _write(key, register, version)
            if not isinstance(reply, Written):
                # Refused or unknown: reading again tells whose entry stands, ours included.
                yield from patience.again(reply)
                continue
            version = reply.version
        # What is entered is finished, whichever batch it is: a batch after one that was left half done waits for it.
        after = yield from _land(queue, transaction, register, known_at)
        if after != register:
            reply = yield from _write(key, after, version)
            if not isinstance(reply, Written):
                yield from patience.again(reply)
                continue
        if after.done and after.batch == batch:
            return Published(batch, already=False, segments=after.segments)


def forget(queue: OpenQueue, transaction: str) -> Procedure[None]:
    """Delete the register of a transaction that nobody will ever continue. One DELETE."""
    yield from delete(queue.keys.publication(transaction))


def _read(key: str) -> Procedure[tuple[Publication, Version | None]]:
    found = yield from get(key)
    if isinstance(found, Missing):
        return Publication(), None
    return documents.decode(Publication, found.body, key), found.version


def _write(key: str, register: Publication, version: Version | None) -> Procedure[object]:
    body = documents.encode(register)
    return (yield (Create(key, body) if version is None else Replace(key, body, version)))


def _plain(offsets: Offsets) -> dict[str, dict[str, int]]:
    return {queue: dict(shards) for queue, shards in offsets.items()}


def _enter(
    queue: OpenQueue,
    transaction: str,
    batch: int,
    made: Sequence[Made],
    *,
    offsets: Offsets | None,
    before: Publication,
) -> Procedure[tuple[Publication, dict[Log, float]]]:
    """The register with the batch entered, and what `_aim` knows about the places. A batch of nothing is done."""
    _check_age(made, (yield Now()))
    aimed, known_at = yield from _aim(queue, transaction, batch, made)
    read = _plain(offsets or {})  # where that is not known, what the batch before read is no answer
    return Publication(before.version + 1, batch, not aimed, (yield Now()), tuple(aimed), read), known_at


def _check_age(made: Sequence[Made], now: float) -> None:
    old = max((now - each.at for each in made), default=0.0)
    if old > PUBLISH_SECONDS:
        raise Unavailable(
            f"the parts of this batch were written {old / 3600:.0f} hours ago and may be deleted at any moment; "
            "run the batch again"
        )


def _aim(
    queue: OpenQueue, transaction: str, batch: int, made: Sequence[Made]
) -> Procedure[tuple[list[Aimed], dict[Log, float]]]:
    """Choose a place for each shard's parts; and since when it is certain, by shard, that the place was free."""
    aimed: list[Aimed] = []
    known_at: dict[Log, float] = {}
    for name in dict.fromkeys(each.queue for each in made):
        there = yield from _queue_of(queue, name)
        its = [each for each in made if each.queue == name]
        aimed += yield from _aim_in(there, name, transaction, batch, made=its, known_at=known_at)
    return aimed, known_at


def _aim_in(
    queue: OpenQueue,
    name: str | None,
    transaction: str,
    batch: int,
    *,
    made: Sequence[Made],
    known_at: dict[Log, float],
) -> Procedure[list[Aimed]]:
    while True:
        shards = (yield from sending_settings(queue)).shards
        if queue.settings.ordered:
            made = yield from _divide_outdated(queue, transaction, batch, made, shards)
        by_shard: dict[int, list[Made]] = {}
        for each in made:
            by_shard.setdefault(each.shard, []).append(each)
        aimed = []
        for shard, its in sorted(by_shard.items()):
            log = queue.log(shard)
            base = yield from tail(queue, log)
            parts = tuple(each.part for each in its)
            aimed.append(Aimed(shard, base, (yield NewId()), its[0].shards, parts, name))
            known_at[name, shard] = log.tail_at
        if not is_outdated(queue, shards):
            return aimed


def _queue_of(queue: OpenQueue, name: str | None) -> Procedure[OpenQueue]:
    return queue if name is None else (yield from open_queue(queue.bucket, name, {}))


def _land(
    queue: OpenQueue, transaction: str, register: Publication, known_at: dict[Log, float]
) -> Procedure[Publication]:
    """Make sure that each segment is in its place. The register as it should be now: done, or with other places."""
    kept: list[Aimed] = []
    lost: list[Aimed] = []
    for aimed in register.segments:
        there = yield from _queue_of(queue, aimed.queue)
        since = known_at.get((aimed.queue, aimed.shard))
        landed = (yield from _place(there, aimed, since)) if since is not None else None
        if not landed:  # not ours to create blindly: it may have landed long ago, and be trimmed by now
            landed = yield from _find_or_place(there, aimed, register.at)
        (kept if landed else lost).append(aimed)
    if not lost:
        return register if register.done else replace(register, version=register.version + 1, done=True)
    now = yield Now()
    made = [Made(each.shard, each.shards, part, now, each.queue) for each in lost for part in each.parts]
    others, _ = yield from _aim(queue, transaction, register.batch, made)
    return replace(register, version=register.version + 1, at=now, segments=(*kept, *others))


def _place(queue: OpenQueue, aimed: Aimed, known_at: float) -> Procedure[bool]:
    log = queue.log(aimed.shard)
    body = lines.encode_parts(aimed.id, aimed.parts)
    outcome = yield from place(queue, log, aimed.base, body, begins_with(aimed.id), known_at=known_at)
    if isinstance(outcome, Landed):
        yield from maybe_hint(queue, log)
        return True
    return False


def _find_or_place(queue: OpenQueue, aimed: Aimed, chosen_at: float) -> Procedure[bool]:
    """Whether the segment is in its place, or was and has been trimmed; put there if the place is free."""
    log = queue.log(aimed.shard)
    found = yield from get(log.key(aimed.base))
    low = yield from trim_mark(log)
    if isinstance(found, Object):
        segment = Segment(aimed.base, found.body)
        notice_fence(queue, segment)
        if not begins_with(aimed.id)(segment):
            log.learn(max(segment.end, low), 0.0)
            return False
        # Below the mark it is about to be trimmed, or somebody who slept created a name that was dead.
        return low <= aimed.base or found.stored_at - chosen_at <= SLEEP_SECONDS
    if low > aimed.base:
        log.learn(low, 0.0)
        # Trimming deletes the parts before the segment. A part that is there was never published at this place.
        return isinstance((yield from look(join(queue.keys.root, aimed.parts[0].key))), Missing)
    return (yield from _place(queue, aimed, 0.0))


def _divide_outdated(
    queue: OpenQueue, transaction: str, batch: int, made: Sequence[Made], shards: int
) -> Procedure[list[Made]]:
    """In an ordered queue whose shard count was raised since, lines of a part may belong to several shards now."""
    divided: list[Made] = []
    for each in made:
        if each.shards == shards:
            divided.append(each)
        else:
            divided += yield from _divide(queue, transaction, batch, each, shards)
    return divided


def _divide(queue: OpenQueue, transaction: str, batch: int, made: Made, shards: int) -> Procedure[list[Made]]:
    """One GET, and one PUT for each shard. Lines without a key stay where they are."""
    key = join(queue.keys.root, made.part.key)
    found = yield from get(key)
    if isinstance(found, Missing):
        raise Corrupt(f"{key} is missing though it is about to be published: somebody else deleted it; restore it")
    by_shard: dict[int, list[bytes]] = {}
    messages = lines.decode_lines(found.body, key)
    for message, line in zip(messages, found.body.split(b"\n"), strict=False):
        by_shard.setdefault(shard_of(shards, message.key, made.shard), []).append(line + b"\n")
    divided = []
    for shard, its in sorted(by_shard.items()):
        name = f"{batch}-divided-{(yield NewId())}"
        part = yield from create_part(queue, transaction, name, b"".join(its), len(its))
        divided.append(Made(shard, shards, part, made.at, made.queue))
    return divided


def create_part(
    queue: OpenQueue, transaction: str, name: str, body: bytes, count: int, *, xxh3: str = ""
) -> Procedure[Part]:
    """Write lines under a name that nobody else uses; the part as a segment names it. One PUT."""
    key = queue.keys.part(transaction, name)
    yield from create_named(key, body)
    return Part(key.removeprefix(f"{queue.keys.root}/"), count, len(body), xxh3)
