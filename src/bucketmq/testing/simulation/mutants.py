"""Planted bugs: each takes away one thing that the protocol relies on. A simulator that does not see them is blind.

Those of the queues; how they are planted and looked for is in `hunting`.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from bucketmq.bucket.port import Missing, Object, Refused, Unknown, Version, Written
from bucketmq.engines.clock import StoreClock
from bucketmq.log.layout import join
from bucketmq.procedures import queues
from bucketmq.procedures.claiming import claim as claiming
from bucketmq.procedures.claiming.claim import Lot
from bucketmq.procedures.claiming.gaps import passed_gap, read_held
from bucketmq.procedures.heads import desk as commit
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.requests import Create, Get, Procedure, Replace, StoreRequest, Together
from bucketmq.procedures.segments import append, tail
from bucketmq.procedures.segments.losses import Losses, record_loss
from bucketmq.procedures.segments.messages import read_span
from bucketmq.procedures.segments.tail import lowest
from bucketmq.procedures.sending import dead_letters as moves
from bucketmq.procedures.sending import dedup
from bucketmq.procedures.sending import delayed as later
from bucketmq.procedures.upkeep import inspect, trim
from bucketmq.procedures.verbs import delete
from bucketmq.queue import machine
from bucketmq.queue.claiming import claim
from bucketmq.queue.commands import Ack, Aim, Bury, Claim, Claimed, Outcome, Settle, Settled
from bucketmq.queue.head import Head, Lease, Span, stamp
from bucketmq.queue.policy import Policy, policy_of
from bucketmq.queue.settling import settle
from bucketmq.testing.simulation.corrected import run_corrected
from bucketmq.testing.simulation.damage import run_damaged
from bucketmq.testing.simulation.faults import Faults, only
from bucketmq.testing.simulation.hunting import Mutant, Plant, everywhere, swap
from bucketmq.testing.simulation.newcomers import run_newcomers
from bucketmq.testing.simulation.plan import FENCED, LONG, ONCE, PLAIN, Tilt
from bucketmq.testing.simulation.run import run_seed
from bucketmq.testing.simulation.store import SimStore

replace = msgspec.structs.replace

SEEDS_MAX = 150
"""How many seeds a mutant may survive before it counts as missed."""


def bug(
    name: str, plant: Plant, faults: Faults | None = None, tilt: Tilt = PLAIN, scene: Callable[[int], Any] | None = None
) -> Mutant:
    """A planted bug, and the weather in which it shows soonest; `scene` runs a seed, if it is not the swarm."""
    return Mutant(name, plant, scene or partial(run_seed, faults=faults, tilt=tilt))


def twisted(function: Callable[..., Any], twist: Callable[[], Callable[[Any, Any], Any]]) -> Callable[..., Any]:
    """A procedure that misreads what it is answered: `twist()` makes a function from request and reply to a reply."""

    def mutated(*arguments: Any, **options: Any) -> Procedure[Any]:
        procedure, misread = function(*arguments, **options), twist()
        reply: Any = None
        error: BaseException | None = None
        while True:
            try:
                request = procedure.send(reply) if error is None else procedure.throw(error)
            except StopIteration as end:
                return end.value
            reply, error = None, None
            try:
                reply = misread(request, (yield request))
            except Exception as raised:
                error = raised

    return mutated


# What a write's answer means


def _unknown_as_written() -> Callable[[Any, Any], Any]:
    def misread(request: Any, reply: Any) -> Any:
        return Written(Version("guessed"), None) if isinstance(reply, Unknown) else reply

    return misread


def _unknown_as_written_together() -> Callable[[Any, Any], Any]:
    def misread(request: Any, reply: Any) -> Any:
        if isinstance(request, Together) and isinstance(reply[0], Unknown):
            return [Written(Version("guessed"), None), *reply[1:]]
        return reply

    return misread


def _refused_as_there() -> Callable[[Any, Any], Any]:
    """Whoever is refused and finds nothing there believes that it is there all the same."""
    refused: list[bytes] = []

    def misread(request: Any, reply: Any) -> Any:
        if isinstance(request, Create):
            refused[:] = [request.body] if isinstance(reply, Refused) else []
        if isinstance(request, Get) and isinstance(reply, Missing) and refused:
            return Object(refused[0], Version("guessed"), 0.0)
        return reply

    return misread


def _careless_create(store: SimStore, request: StoreRequest) -> Any:
    if isinstance(request, Create) and request.key in store.objects:
        found = store.objects[request.key]
        return _perform(store, Replace(request.key, request.body, found.version))
    return _perform(store, request)


def _careless_replace(store: SimStore, request: StoreRequest) -> Any:
    if isinstance(request, Replace) and request.key in store.objects:
        request = replace(request, version=store.objects[request.key].version)
    return _perform(store, request)


_perform = SimStore.perform


def _never_mine(_: str) -> Callable[[Any], bool]:
    return lambda segment: False


def _stamp_of_another(head: Head, holder: str, commit_: int, *rest: Any, **options: Any) -> Head:
    return stamp(head, holder, commit_ + 1_000_000, *rest, **options)


# Leases and settling


def _overlap(one: tuple[Span, ...], other: Span) -> bool:
    return any(span.start < other.stop and other.start < span.stop for span in one)


def _settle_any_lease(head: Head, command: Settle, now: float, policy: Policy) -> tuple[Head, Outcome]:
    """No look at the lease number: whoever has had the message may settle it."""
    for lease in head.leases:
        if any(_overlap(command.spans, held.span) for held in lease.held):
            command = replace(command, lease=lease.number)
            break
    return settle(head, command, now, policy)


def _settle_expired(head: Head, command: Settle, now: float, policy: Policy) -> tuple[Head, Outcome]:
    """An ack that comes after the message was given back still counts."""
    if isinstance(command, Ack) and all(lease.number != command.lease for lease in head.leases):
        left = tuple(entry for entry in head.waiting if not _overlap(command.spans, entry.span))
        if left != head.waiting:
            return replace(head, waiting=left), Settled(len(command.spans))
    return settle(head, command, now, policy)


def _bury_forgets(head: Head, command: Settle, now: float, policy: Policy) -> tuple[Head, Outcome]:
    return settle(head, Ack(command.lease, command.spans) if isinstance(command, Bury) else command, now, policy)


def _expire_drops(head: Head, now: float, policy: Policy) -> Head:
    return replace(head, leases=tuple(lease for lease in head.leases if lease.until > now))


def _expire_never(head: Head, now: float, policy: Policy) -> Head:
    return head


def _attempt_not_counted(head: Head, command: Claim, now: float, policy: Policy) -> tuple[Head, Outcome]:
    after, outcome = claim(head, command, now, policy)
    if not isinstance(outcome, Claimed):
        return after, outcome
    held = tuple(replace(each, attempt=max(1, each.attempt - 1)) for each in outcome.lease.held)
    lease = replace(outcome.lease, held=held)
    return replace(after, leases=(*after.leases[:-1], lease)), Claimed(lease)


def _unordered(desk: Any) -> Policy:
    return replace(policy_of(desk.queue.settings), ordered=False)


_ack = Lot.ack


def _acked_again(lot: Lot, offset: int) -> None:
    """A lot that does not look whether a message was settled before."""
    lot.unsettled.add(offset)
    _ack(lot, offset)


# Trimming, moving, deduplicating, delaying


def _no_guard(shard_log: Any, base: int, known_at: float, now: float) -> Procedure[int]:
    yield from ()
    return base


def _never_jumped(*_: Any) -> Procedure[bool]:
    """Does not look at the trim mark: what has expired, or died and was created again by a sleeper, is claimed."""
    yield from ()
    return False


def _nobody_needs(queue: OpenQueue, shards: int) -> Procedure[dict[int, int]]:
    yield from ()
    return dict.fromkeys(range(shards), sys.maxsize)


def _begun_in_time(desk: commit.Desk) -> Procedure[bool]:
    yield from ()
    return False


def _no_mark(kind: Any, key: str, empty: Any, change: Callable[[Any], Any]) -> Procedure[Any]:
    """Deletes what lies below the mark, but the mark is not there yet."""
    yield from ()
    return change(empty)


def _commit_without_aim(desk: Any, *commands: Any, **options: Any) -> Procedure[Any]:
    """Remembers where a message is moving to, but tells nobody."""
    if commands and all(isinstance(command, Aim) for command in commands):
        desk.head, outcomes = machine.apply(desk.head, commands, 0.0, policy_of(desk.queue.settings))
        return outcomes
    return (yield from _commit(desk, *commands, **options))


_commit = commit.commit


def _entry_after_send(queue: OpenQueue, dedup_key: str, message: Any) -> Procedure[Any]:
    """Looks, sends, and only then writes down that it did."""
    procedure = _send_once(queue, dedup_key, message)
    reply: Any = None
    entered: list[Create | Replace] = []
    while True:
        try:
            request = procedure.send(reply)
        except StopIteration as end:
            for each in entered:
                yield from each
            return end.value
        if isinstance(request, Create | Replace) and "/dedup/" in request.key:
            entered.append(request)
            reply = Written(Version("promised"), None)
        else:
            try:
                reply = yield request
            except Exception as error:
                request = procedure.throw(error)
                reply = yield request


_send_once = dedup.send_once


def _split_forgets(queue: OpenQueue, register: Any) -> Procedure[Any]:
    """A register that was full is begun afresh: what it held counts no longer."""
    yield from _note_split(queue, register)
    dedup.splits_of(queue)[register.key] = {}
    return {}


_note_split = dedup._note_split


def _delete_first(queue: OpenQueue, group: Any) -> Procedure[int]:
    """Takes the delayed objects away before their segment exists."""
    messages = yield from later._read(queue, list(group.names))
    for name in group.names:
        yield from delete(join(queue.keys.root, name))
    if messages is not None and not (yield from later._land(queue, group, messages)):
        return 0
    yield from later._change(queue, lambda before: later._without(before, group, 0.0))
    return len(messages or ())


def _finished_forgotten(before: Any, group: Any, now: float) -> Any:
    return replace(_without(before, group, now), finished={})


_without = later._without


# Damage and time


def _nothing(*_: Any) -> Procedure[None]:
    yield from ()


def _no_gap(*_: Any) -> Procedure[bool]:
    yield from ()
    return False


def _read_all_or_nothing(desk: Any, lease: Lease) -> Procedure[tuple[Lease, list[Any]]]:
    """One message that cannot be read keeps all that were claimed with it from their receiver."""
    messages: list[Any] = []
    for held in lease.held:
        messages += yield from read_span(desk.queue, desk.log, held.span)
    return lease, messages


def _believe_hint(shard_log: Any, start: int, hinted: int) -> Procedure[tuple[int, int]]:
    yield from ()
    return max(start, hinted), 0


def _forget_listed(head: Head, gone: Any) -> Head:
    """Forgets everything that is listed, though only some of it is gone."""
    return inspect._emptied(head)


def _observe_all(clock: StoreClock, stored_at: float, before: float, after: float) -> None:
    """Does not notice that the clock was set while a write was under way."""
    local, clock._local = clock._local, False
    try:
        _observe(clock, stored_at, before, after)
    finally:
        clock._local = local


_observe = StoreClock.observe


def _no_losses(keys: Any, shard: int, start: int, stop: int) -> Procedure[Losses]:
    yield from ()
    return Losses()


SILENCE = only(["lost_request", "lost_reply", "late_landing"])
DEATH = only(["crash", "freeze", "lost_reply"])

MUTANTS: tuple[Mutant, ...] = (
    bug("a settlement counts whatever its lease", swap(machine, "settle", _settle_any_lease)),
    bug("an ack counts after the lease expired", swap(machine, "settle", _settle_expired)),
    bug("a buried message is forgotten", swap(machine, "settle", _bury_forgets)),
    bug("an ack that comes twice counts twice", swap(Lot, "ack", _acked_again)),
    bug("an expired lease is dropped", swap(machine, "expire", _expire_drops)),
    bug("a lease never expires", swap(machine, "expire", _expire_never), DEATH),
    bug("an attempt is not counted at the claim", swap(machine, "claim", _attempt_not_counted)),
    bug("a key is not held back", swap(commit.Desk, "policy", property(_unordered))),
    bug(
        "an append without an answer is taken as done",
        everywhere(append.place, twisted(append.place, _unknown_as_written)),
        SILENCE,
    ),
    bug(
        "a commit without an answer is taken as done",
        everywhere(commit._write, twisted(commit._write, _unknown_as_written_together)),
        SILENCE,
    ),
    bug(
        "a conflict (409) is taken as done",
        everywhere(append.place, twisted(append.place, _refused_as_there)),
        only(["conflict_409"]),
    ),
    bug("creates are not conditional", swap(SimStore, "perform", _careless_create)),
    bug("replaces are not conditional", swap(SimStore, "perform", _careless_replace)),
    bug("an own landed segment is not recognised", everywhere(append.begins_with, _never_mine), SILENCE),
    bug("an own landed commit is not recognised", swap(commit, "stamp", _stamp_of_another), Faults(lost_reply=0.1)),
    bug("an own landed move is not recognised", everywhere(append.marked, _never_mine), SILENCE),
    bug("a sleeper does not look at the trim mark", everywhere(lowest, _no_guard), only(["freeze"]), LONG),
    bug("a receiver does not look at the trim mark", everywhere(commit.jumped, _never_jumped), only(["freeze"]), LONG),
    bug("segments are deleted before the mark has moved", swap(trim, "update_document", _no_mark), only([]), LONG),
    bug(
        "a trim does not look at the heads again after it moved the mark",
        swap(trim, "lowest_needed", _nobody_needs),
        scene=run_newcomers,
    ),
    bug(
        "a claim that begins a subscription does not look at the trim mark",
        swap(claiming, "_begun_too_late", _begun_in_time),
        scene=run_newcomers,
    ),
    bug("a move's target is not written down", swap(moves, "commit", _commit_without_aim), DEATH),
    bug("a deduplication key is entered after the send", everywhere(dedup.send_once, _entry_after_send), DEATH),
    bug("a split register of deduplication keys is forgotten", swap(dedup, "_note_split", _split_forgets), DEATH, ONCE),
    bug("delayed objects are deleted first", swap(later, "_finish", _delete_first), DEATH),
    bug("finished delayed objects are forgotten", swap(later, "_without", _finished_forgotten), only(["late_landing"])),
    bug(
        "a fence is noticed only by senders that do not know the new count",
        everywhere(append.is_outdated, lambda queue, shards: queue.settings.ordered and queue.stale),
        only(["slow"]),
        FENCED,
    ),
    bug("a fence is ignored", everywhere(append.is_outdated, lambda queue, shards: False), None, FENCED),
    bug("a gap in the log is taken for its end", everywhere(passed_gap, _no_gap), scene=run_damaged),
    bug(
        "what is claimed beside something lost shares its fate",
        everywhere(read_held, _read_all_or_nothing),
        scene=run_damaged,
    ),
    bug("a head beyond its log is not noticed", swap(tail, "_furthest_head", _nothing), scene=run_damaged),
    bug("a hint is believed", swap(tail, "_last_listed", _believe_hint), scene=run_damaged),
    bug(
        "a shard that the settings do not know is not looked for",
        swap(inspect._Inspector, "find_hidden", lambda *_: None),
        scene=run_damaged,
    ),
    bug("mending forgets what is in flight", swap(inspect, "_without", _forget_listed), scene=run_damaged),
    bug("a loss is not recorded", everywhere(record_loss, _no_losses), scene=run_damaged),
    bug("lost settings are made up", swap(queues, "_check_empty", _nothing), scene=run_damaged),
    bug(
        "a stamp counts though the clock was set under way",
        swap(StoreClock, "observe", _observe_all),
        scene=run_corrected,
    ),
)
