"""Delayed messages: kept as objects named by the second they are due, moved into the log when it has come.

Any worker moves them; there is no daemon. `later.json` is the register of the moves (see `sending.aiming`): a group of
objects and the segments they are meant for is entered there before the segments are created, and taken out after the
objects are deleted. Names of finished groups are remembered for a while, because a sender whose reply was lost may
create its object once more.

A delayed send costs one PUT, its move one PUT of the segment and two of the register, shared by all that is due.
Workers look for due objects with one LIST every few seconds, and only in queues that ever had any.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

import msgspec

from bucketmq.bucket.port import Missing, Version, Written
from bucketmq.log import documents
from bucketmq.log import segment as lines
from bucketmq.log.documents import Group, Later
from bucketmq.log.layout import due_of, join
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.requests import Now, Procedure, Replace
from bucketmq.procedures.segments.append import marked, place
from bucketmq.procedures.sending.aiming import choose, land
from bucketmq.procedures.verbs import create_named, delete, get, get_many, list_page, update_document
from bucketmq.queue.head import Target
from bucketmq.queue.message import Message
from bucketmq.queue.routing import shard_of

replace = msgspec.structs.replace

FINISHED_SECONDS = 180.0
"""How long a finished name is remembered: longer than any sender keeps trying."""

FINISHED_MAX = 5_000
OBJECTS_PER_GROUP = 100
LOOK_SECONDS = 2.0
LOOK_SECONDS_LOCAL = 0.5
LOOK_SECONDS_UNUSED = 30.0


def put_later(queue: OpenQueue, data: bytes, due: float, name: str) -> Procedure[None]:
    """Keep these lines until `due`. One PUT; the first one of a process also makes sure that the register exists."""
    if queue.later is None:
        queue.later = yield from update_document(Later, queue.keys.later_register, Later(), lambda before: before)
    second = ceil(due)
    yield from create_named(queue.keys.later(second, name), data)
    queue.later_check_at = min(queue.later_check_at, second)


def stage(queue: OpenQueue) -> Procedure[int]:
    """Move what is due into the log; returns how many messages. Nothing but a comparison while nothing can be due."""
    now = yield from Now()
    if now < queue.later_check_at <= now + LOOK_SECONDS_UNUSED:  # further away: the clock was set back
        return 0
    pause = LOOK_SECONDS_LOCAL if queue.bucket.local else LOOK_SECONDS
    queue.later_check_at = now + pause
    found = yield from get(queue.keys.later_register)
    if isinstance(found, Missing):
        queue.later_check_at = now + LOOK_SECONDS_UNUSED
        return 0
    register = documents.decode(Later, found.body, queue.keys.later_register)
    queue.later = register
    moved = 0
    for group in register.groups:
        moved += yield from _finish(queue, group)
    if register.groups:
        return moved
    return (yield from _begin(queue, register, found.version, now))


def _begin(queue: OpenQueue, register: Later, version: Version, now: float) -> Procedure[int]:
    """Enter what is due as one group. The listing is younger than the register we replace, so what another worker
    moves in the meantime makes our replacement fail."""
    page = yield from list_page(queue.keys.laters, limit=OBJECTS_PER_GROUP)
    names = [entry.key.removeprefix(queue.keys.root + "/") for entry in page.entries if due_of(entry.key) <= now]
    for name in [name for name in names if name in register.finished]:
        yield from delete(join(queue.keys.root, name))
        names.remove(name)
    waiting = [due_of(entry.key) for entry in page.entries if due_of(entry.key) > now]
    if not names:
        if waiting and queue.lists_in_order:
            queue.later_check_at = min(queue.later_check_at, *waiting)
        return 0
    messages = yield from _read(queue, names)
    if messages is None:
        return 0
    portions = yield from _aim(queue, (), messages)
    group = Group(tuple(names), tuple(each.target for each in portions), tuple(each.cut for each in portions))
    after = replace(register, version=register.version + 1, groups=(group,))
    reply = yield from Replace(queue.keys.later_register, documents.encode(after), version)
    if not isinstance(reply, Written):
        queue.later_check_at = now
        return 0
    moved = yield from _finish(queue, group)
    queue.later_check_at = now if page.more else queue.later_check_at
    return moved


def _read(queue: OpenQueue, names: list[str]) -> Procedure[list[Message] | None]:
    """The messages of delayed objects; None if one is gone, which means that its group has arrived."""
    messages: list[Message] = []
    for name, found in zip(names, (yield from get_many([join(queue.keys.root, name) for name in names])), strict=True):
        if isinstance(found, Missing):
            return None
        messages += lines.decode_lines(found.body, name)
    return messages


Cut = tuple[tuple[int, int], ...]


class Portion(msgspec.Struct, frozen=True):
    """A target, and the cut that says which messages of the group are meant for it (see `documents.Group`)."""

    target: Target
    cut: Cut

    def of(self, messages: list[Message]) -> list[Message]:
        return [each for each in messages if all(_home(shards, each) == shard for shards, shard in self.cut)]


def _home(shards: int, message: Message) -> int:
    """The shard of a delayed message: by its key, or else by its id, so that every process finds the same one."""
    return shard_of(shards, message.key or message.id, 0)


def _aim(queue: OpenQueue, cut: Cut, messages: list[Message]) -> Procedure[list[Portion]]:
    """Where to put the messages that `cut` chose. They stay together, unless an ordered queue has more shards now."""

    def stays(shards: int) -> bool:
        return bool(cut) and (not queue.settings.ordered or cut[-1][0] == shards)

    def home(shards: int, message: Message) -> int:
        return cut[-1][1] if stays(shards) else _home(shards, message)

    chosen = yield from choose(queue, messages, home)
    return [
        Portion(target, cut if stays(shards) else (*cut, (shards, target.shard)))
        for target, shards in ((each.target, each.shards) for each in chosen)
    ]


def _finish(queue: OpenQueue, group: Group) -> Procedure[int]:
    messages = yield from _read(queue, list(group.names))
    if messages is not None and not (yield from _land(queue, group, messages)):
        return 0
    for name in group.names:
        yield from delete(join(queue.keys.root, name))
    now = yield from Now()
    yield from _change(queue, lambda before: _without(before, group, now))
    return len(messages or ())


def _land(queue: OpenQueue, group: Group, messages: list[Message]) -> Procedure[bool]:
    """Have the group's segments in the log. False if another process has finished the group, or gone on with it."""

    def create(portion: Portion) -> Procedure[bool]:
        target, its = portion.target, portion.of(messages)
        body = lines.encode([replace(message, move=target.move) for message in its])
        mine, shard_log = marked(target.move), queue.log(target.shard)
        return (yield from place(queue, shard_log, target.base, body, mine, count=len(its)))

    def enter_others(taken: list[Portion]) -> Procedure[list[Portion] | None]:
        others = {}
        for portion in taken:
            others[portion.target] = yield from _aim(queue, portion.cut, portion.of(messages))
        register = yield from _change(queue, lambda before: _aimed(before, others))
        entered = {target for each in register.groups for target in each.targets}
        fresh = [portion for its in others.values() for portion in its]
        return fresh if all(portion.target in entered for portion in fresh) else None

    return (yield from land(map(Portion, group.targets, group.cuts), create, enter_others)) is not None


def _change(queue: OpenQueue, change: Callable[[Later], Later]) -> Procedure[Later]:
    queue.later = yield from update_document(Later, queue.keys.later_register, Later(), change)
    return queue.later


def _aimed(before: Later, others: dict[Target, list[Portion]]) -> Later:
    """The register with other targets instead of some, where it still has them."""
    groups = []
    for group in before.groups:
        portions: list[Portion] = []
        for each in map(Portion, group.targets, group.cuts):
            portions += others.get(each.target, [each])
        targets, cuts = tuple(each.target for each in portions), tuple(each.cut for each in portions)
        groups.append(replace(group, targets=targets, cuts=cuts))
    if tuple(groups) == before.groups:
        return before
    return replace(before, version=before.version + 1, groups=tuple(groups))


def _without(before: Later, group: Group, now: float) -> Later:
    groups = tuple(each for each in before.groups if each.names != group.names)
    if groups == before.groups:
        return before
    recent = {name: at for name, at in before.finished.items() if at > now - FINISHED_SECONDS}
    recent |= {name: round(now, 3) for name in group.names}
    for name in list(recent)[: max(0, len(recent) - FINISHED_MAX)]:
        del recent[name]
    return replace(before, version=before.version + 1, groups=groups, finished=recent)
