"""Publishing: what a bulk writer made becomes part of the log, once for each batch of a transaction.

A batch is any number of parts, objects of lines that lie in the bucket already. It becomes one segment of parts in each
shard that it has lines for. A register for each transaction remembers the last batch: which parts it consists of, and
where its segments are meant to go (see `sending.aiming`). It alone decides. A driver that was started again, or a
rival, finishes the batch that stands in the register, with the parts that are named there, and leaves its own alone.

A batch may have parts for several logs: messages for one queue, and dead letters of another. One register decides about
all of them, so that a row is in one or the other, whichever attempt of a batch it is that counts. Parts with lines that
are due later become delayed objects instead of segments.

The register also repeats how far the batch's sources were read, so that a checkpoint that was lost can be made again.

Making parts is the bulk writer's task and does not belong here; nor does deleting those that were never published.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from bucketmq.bucket.port import Missing, Object
from bucketmq.errors import Corrupt, Invalid, Unavailable
from bucketmq.log import segment as lines
from bucketmq.log.documents import Trim
from bucketmq.log.layout import join
from bucketmq.log.segment import Part, Segment
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.queues import open_queue
from bucketmq.procedures.requests import NewId, Now, Procedure
from bucketmq.procedures.segments.append import begins_with, place
from bucketmq.procedures.segments.messages import notice_fence
from bucketmq.procedures.segments.tail import SLEEP_SECONDS
from bucketmq.procedures.sending.aiming import Register, choose, land
from bucketmq.procedures.sending.delayed import put_later
from bucketmq.procedures.verbs import Patience, create_named, delete, get, get_document, look
from bucketmq.queue.routing import shard_of
from bucketmq.queue.settings import FORMAT, check_name

replace = msgspec.structs.replace

ORPHAN_SECONDS = 86400.0
"""A part that is older and that neither a segment nor a register names was never published, and may be deleted."""

PUBLISH_SECONDS = ORPHAN_SECONDS / 2
"""Parts that are older are not published any more: they may be deleted soon. Much less than the above."""

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
    due: int = 0
    """The second from which on its lines may be in the log; 0 for at once."""


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
    due: int = 0
    """Not a segment but a delayed object: its lines wait for this second, as those of a delayed send do."""

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
    register = Register(key, Publication(), Patience(f"publishing batch {batch} of {transaction} in {key}"))
    ours: set[Aimed] = set()

    def create(aimed: Aimed) -> Procedure[bool]:
        there = yield from _queue_of(queue, aimed.queue)
        if aimed.due:
            return (yield from _delay(there, aimed))
        # What another call entered must not be created blindly: it may have landed long ago, and be trimmed by now.
        landed = aimed in ours and (yield from _place(there, aimed))
        return landed or (yield from _find_or_place(there, aimed, register.document.at))

    def enter_others(taken: list[Aimed]) -> Procedure[list[Aimed] | None]:
        now, before = (yield from Now()), register.document
        parts = [Made(each.shard, each.shards, part, now, each.queue) for each in taken for part in each.parts]
        others = yield from _aim(queue, transaction, before.batch, parts)
        ours.update(others)
        segments = (*(each for each in before.segments if each not in taken), *others)
        after = replace(before, version=before.version + 1, at=now, segments=segments)
        return others if (yield from register.write(after)) else None

    looks = 0
    while True:
        entered = yield from register.read()
        looks += 1
        if batch < entered.batch:
            return Published(batch, already=looks == 1)
        if batch == entered.batch and entered.done:
            return Published(batch, already=looks == 1, segments=entered.segments)
        if batch > entered.batch and entered.done:
            _check_age(made, (yield from Now()))
            aimed = yield from _aim(queue, transaction, batch, made)
            ours.update(aimed)
            read = _plain(offsets or {})  # where that is not known, what the batch before read is not an answer
            at = yield from Now()
            entered = Publication(entered.version + 1, batch, not aimed, at, tuple(aimed), read)
            if not (yield from register.write(entered)):
                continue
        # What is entered is finished, whichever batch it is: a batch after one that was left half done waits for it.
        if (yield from land(entered.segments, create, enter_others)) is None:
            continue
        after = replace(register.document, version=register.document.version + 1, done=True)
        if not entered.done and not (yield from register.write(after)):
            continue
        if entered.batch == batch:
            return Published(batch, already=False, segments=register.document.segments)


def forget(queue: OpenQueue, transaction: str) -> Procedure[None]:
    """Delete the register of a transaction that nobody will ever continue. One DELETE."""
    yield from delete(queue.keys.publication(transaction))


def _plain(offsets: Offsets) -> dict[str, dict[str, int]]:
    return {queue: dict(shards) for queue, shards in offsets.items()}


def _check_age(made: Sequence[Made], now: float) -> None:
    old = max((now - each.at for each in made), default=0.0)
    if old > PUBLISH_SECONDS:
        raise Unavailable(
            f"the parts of this batch were written {old / 3600:.0f} hours ago and may be deleted at any moment; "
            "run the batch again"
        )


def _aim(queue: OpenQueue, transaction: str, batch: int, made: Sequence[Made]) -> Procedure[list[Aimed]]:
    """Choose a place for each shard's parts, in each queue they are for; those that are due later need none."""
    aimed: list[Aimed] = []
    for each in (each for each in made if each.due):
        aimed.append(Aimed(0, 0, (yield from NewId()), 0, (each.part,), each.queue, each.due))
    now = [each for each in made if not each.due]
    for name in dict.fromkeys(each.queue for each in now):
        there = yield from _queue_of(queue, name)
        its = [each for each in now if each.queue == name]
        while True:
            chosen = yield from choose(there, its, lambda _, each: each.shard)
            outdated = there.settings.ordered and any(
                part.shards != each.shards for each in chosen for part in each.loads
            )
            if not outdated:
                break
            its = yield from _divide_outdated(there, transaction, batch, its, chosen[0].shards)
        for chosen_one in chosen:
            target, parts = chosen_one.target, tuple(load.part for load in chosen_one.loads)
            aimed.append(Aimed(target.shard, target.base, target.move, chosen_one.loads[0].shards, parts, name))
    return aimed


def _queue_of(queue: OpenQueue, name: str | None) -> Procedure[OpenQueue]:
    return queue if name is None else (yield from open_queue(queue.bucket, name, {}))


def _delay(queue: OpenQueue, aimed: Aimed) -> Procedure[bool]:
    """Keep the lines of a part until they are due. One GET and one PUT; done again it changes nothing, until
    `delayed.FINISHED_SECONDS` after they were moved into the log."""
    yield from put_later(queue, (yield from _read(queue, aimed.parts[0])), aimed.due, aimed.id)
    return True


def _read(queue: OpenQueue, part: Part) -> Procedure[bytes]:
    key = join(queue.keys.root, part.key)
    found = yield from get(key)
    if isinstance(found, Missing):
        raise Corrupt(f"{key} is missing though it is about to be published: somebody else deleted it; restore it")
    return found.body


def _place(queue: OpenQueue, aimed: Aimed) -> Procedure[bool]:
    body, mine = lines.encode_parts(aimed.id, aimed.parts), begins_with(aimed.id)
    return (yield from place(queue, queue.log(aimed.shard), aimed.base, body, mine, count=aimed.count))


def _find_or_place(queue: OpenQueue, aimed: Aimed, chosen_at: float) -> Procedure[bool]:
    """Whether the segment is in its place, or was and has been trimmed; put there if the place is free."""
    shard_log = queue.log(aimed.shard)
    found = yield from get(shard_log.key(aimed.base))
    mark = yield from get_document(Trim, shard_log.keys.trim(aimed.shard))
    low = mark[0].low if mark else 0
    if isinstance(found, Object):
        segment = Segment(aimed.base, found.body)
        notice_fence(queue, segment)
        if not begins_with(aimed.id)(segment):
            queue.jump(shard_log, max(aimed.base, low))
            shard_log.learn(segment.end, 0.0)
            return False
        # Below the mark it is about to be trimmed, or a process that slept created it after trimming passed.
        return low <= aimed.base or found.stored_at - chosen_at <= SLEEP_SECONDS or _was_passed(mark, aimed.base, found)
    if low > aimed.base:
        queue.jump(shard_log, low)
        # Trimming deletes the parts before the segment. A part that is there was never published at this place.
        return isinstance((yield from look(join(queue.keys.root, aimed.parts[0].key))), Missing)
    return (yield from _place(queue, aimed))


def _was_passed(mark: tuple[Trim, Object] | None, base: int, found: Object) -> bool:
    """Whether a segment was there when the mark passed its place, and so is what the log held there."""
    if mark is None or mark[0].before is msgspec.UNSET:
        return False
    return mark[0].before <= base and found.stored_at < mark[1].stored_at


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
    body = yield from _read(queue, made.part)
    by_shard: dict[int, list[bytes]] = {}
    messages = lines.decode_lines(body, join(queue.keys.root, made.part.key))
    for message, line in zip(messages, body.split(b"\n"), strict=False):
        by_shard.setdefault(shard_of(shards, message.key, made.shard), []).append(line + b"\n")
    divided = []
    for shard, its in sorted(by_shard.items()):
        name = f"{batch}-divided-{(yield from NewId())}"
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
