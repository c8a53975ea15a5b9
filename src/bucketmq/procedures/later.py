"""Delayed messages: kept as objects named by the second they are due, moved into the log when it has come.

Any worker moves them; there is no daemon. `later.json` is the register of the moves: a group of objects and the
segments they are meant for is entered there before the segments are created, and taken out after the objects are
deleted, so that a group arrives once whoever dies in between. Names of finished groups are remembered for a while,
because a sender whose reply was lost may create its object once more.

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
from bucketmq.procedures.append import Landed, is_outdated, marked, place, tail
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.requests import NewId, Now, Procedure, Replace
from bucketmq.procedures.routing import shard_of
from bucketmq.procedures.shards import sending_settings
from bucketmq.procedures.verbs import create_named, delete, get, get_many, list_page, update_document
from bucketmq.queue.head import Target
from bucketmq.queue.message import Message

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
    now = yield Now()
    if now < queue.later_check_at:
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
    aims = yield from _aim(queue, (), messages)
    group = Group(tuple(names), tuple(aim.target for aim in aims), tuple(aim.cut for aim in aims))
    after = msgspec.structs.replace(register, version=register.version + 1, groups=(group,))
    reply = yield Replace(queue.keys.later_register, documents.encode(after), version)
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


class Aim(msgspec.Struct, frozen=True):
    """A target, and which messages of the group are meant for it."""

    target: Target
    cut: tuple[tuple[int, int], ...]

    def choose(self, messages: list[Message]) -> list[Message]:
        return [m for m in messages if all(_home(shards, m) == shard for shards, shard in self.cut)]


def _home(shards: int, message: Message) -> int:
    """The shard of a delayed message: by its key, or else by its id, so that everybody finds the same one."""
    return shard_of(shards, message.key or message.id, 0)


def _aim(queue: OpenQueue, cut: tuple[tuple[int, int], ...], messages: list[Message]) -> Procedure[list[Aim]]:
    """Where to put messages that `cut` chose: the ends of their shards. In an ordered queue a raised count counts."""
    while True:
        settings = yield from sending_settings(queue)
        if cut and (not settings.ordered or cut[-1][0] == settings.shards):
            cuts = {cut[-1][1]: cut}
        else:
            homes = sorted({_home(settings.shards, message) for message in messages})
            cuts = {shard: (*cut, (settings.shards, shard)) for shard in homes}
        aims = []
        for shard, narrower in cuts.items():
            aims.append(Aim(Target(shard, (yield from tail(queue, queue.log(shard))), (yield NewId())), narrower))
        if not is_outdated(queue, settings.shards):
            return aims


def _finish(queue: OpenQueue, group: Group) -> Procedure[int]:
    messages = yield from _read(queue, list(group.names))
    if messages is not None:
        for target, cut in zip(group.targets, group.cuts, strict=True):
            if not (yield from _place(queue, Aim(target, cut), messages)):
                return 0
    for name in group.names:
        yield from delete(join(queue.keys.root, name))
    now = yield Now()
    yield from _change(queue, lambda before: _without(before, group, now))
    return len(messages or ())


def _place(queue: OpenQueue, aim: Aim, messages: list[Message]) -> Procedure[bool]:
    """Create the group's segment at its target, or at others that the register is told first.

    False means that somebody else has finished or moved the group on.
    """
    target, chosen = aim.target, aim.choose(messages)
    body = lines.encode([msgspec.structs.replace(message, move=target.move) for message in chosen])
    outcome = yield from place(queue, queue.log(target.shard), target.base, body, marked(target.move), known_at=0.0)
    if isinstance(outcome, Landed):
        return True
    others = yield from _aim(queue, aim.cut, chosen)
    register = yield from _change(queue, lambda before: _aimed(before, target, others))
    if not any(others[0].target in each.targets for each in register.groups):
        return False
    for other in others:
        if not (yield from _place(queue, other, messages)):
            return False
    return True


def _change(queue: OpenQueue, change: Callable[[Later], Later]) -> Procedure[Later]:
    queue.later = yield from update_document(Later, queue.keys.later_register, Later(), change)
    return queue.later


def _aimed(before: Later, target: Target, others: list[Aim]) -> Later:
    """The register with `target` replaced by others, if it is still there."""
    groups = []
    for group in before.groups:
        aims = []
        for each in map(Aim, group.targets, group.cuts):
            aims += others if each.target == target else [each]
        targets, cuts = tuple(aim.target for aim in aims), tuple(aim.cut for aim in aims)
        groups.append(msgspec.structs.replace(group, targets=targets, cuts=cuts))
    if tuple(groups) == before.groups:
        return before
    return msgspec.structs.replace(before, version=before.version + 1, groups=tuple(groups))


def _without(before: Later, group: Group, now: float) -> Later:
    groups = tuple(each for each in before.groups if each.names != group.names)
    if groups == before.groups:
        return before
    recent = {name: at for name, at in before.finished.items() if at > now - FINISHED_SECONDS}
    recent |= {name: round(now, 3) for name in group.names}
    for name in list(recent)[: max(0, len(recent) - FINISHED_MAX)]:
        del recent[name]
    return msgspec.structs.replace(before, version=before.version + 1, groups=groups, finished=recent)
