"""What a user can ask of a bucket and its queues, each as one procedure. The facades run these and add nothing.

Opening is part of every procedure and free after the first time, so naming a queue costs no request.
"""

from __future__ import annotations

import base64
import binascii
import math
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

import msgspec

from bucketmq.errors import Invalid, LeaseLost
from bucketmq.procedures import browse, redrive, stats, trim
from bucketmq.procedures.append import fresh_tail
from bucketmq.procedures.bodies import fetch_bodies
from bucketmq.procedures.checks import check_seconds
from bucketmq.procedures.commit import commit
from bucketmq.procedures.keeper import Keeper, keep
from bucketmq.procedures.lane import Once
from bucketmq.procedures.opened import OpenBucket, OpenQueue
from bucketmq.procedures.probe import probe
from bucketmq.procedures.queues import check_queue_name, dead_queue, list_queues, wanted_settings
from bucketmq.procedures.receive import Lot, extend
from bucketmq.procedures.requests import NewId, Now, Procedure, Spawn
from bucketmq.procedures.send import DELAY_SECONDS_MAX, Letters, Receipt, send
from bucketmq.procedures.shards import raise_shards, use_queue
from bucketmq.procedures.subscription import (
    Nobody,
    OpenSubscription,
    Start,
    begin,
    flush_all,
    give_back,
    look_after,
    receive,
)
from bucketmq.procedures.work import Work, call_handler, work
from bucketmq.queue.head import Held, Lease, Span
from bucketmq.queue.message import Message
from bucketmq.queue.settings import MAIN, SHARDS_MAX, Settings, check_name

LEASE_SECONDS_MIN = 0.1
LEASE_SECONDS_MAX = 12 * 3600.0
PREFETCH = 4
"""A worker claims this many messages for each of its handlers at a time."""


class BucketApi:
    """A bucket that is opened by the first procedure that needs it."""

    def __init__(
        self,
        prefix: str,
        *,
        lists_in_order: bool,
        local: bool,
        probe_first: bool,
        renames: bool = False,
        exact_versions: bool = False,
    ) -> None:
        self.prefix = prefix
        self._renames = renames
        self._exact_versions = exact_versions
        self.keeper = Keeper()
        self._lists_in_order = lists_in_order
        self._local = local
        self._probe_first = probe_first
        self._once = Once(self._open)

    def open(self) -> Procedure[OpenBucket]:
        """Probe the store, once. About ten requests."""
        return (yield from self._once.get())

    def _open(self) -> Procedure[OpenBucket]:
        if self._probe_first:
            yield from probe(self.prefix)
        holder: str = yield NewId()
        return OpenBucket(
            self.prefix,
            holder,
            lists_in_order=self._lists_in_order,
            local=self._local,
            renames=self._renames,
            exact_versions=self._exact_versions,
        )

    def queues(self) -> Procedure[list[str]]:
        return (yield from list_queues((yield from self.open())))

    def start_keeper(self) -> Procedure[None]:
        if not self.keeper.running:
            self.keeper.running = True
            yield Spawn(keep(self.keeper), "keeper")

    def close(self) -> Procedure[None]:
        """Hand in every settlement that waits."""
        self.keeper.stop.open()
        for subscription in self.keeper.subscriptions():
            give_back(subscription)
            yield from flush_all(subscription)


class QueueApi:
    """One queue by name."""

    def __init__(self, bucket: BucketApi, name: str, options: dict[str, Any], *, create: bool = True) -> None:
        self.bucket = bucket
        self.name = check_queue_name(name)
        self.options = wanted_settings(options)
        self._create = create
        self._once = Once(self._open)

    def open(self) -> Procedure[OpenQueue]:
        return (yield from self._once.get())

    def _open(self) -> Procedure[OpenQueue]:
        bucket = yield from self.bucket.open()
        return (yield from use_queue(bucket, self.name, self.options, create=self._create))

    def settings(self) -> Procedure[Settings]:
        return (yield from self.open()).settings

    def send(self, wanted: Letters, delay_seconds: float | None, at: object) -> Procedure[list[Receipt]]:
        queue = yield from self.open()
        delay = yield from _delay(delay_seconds, at)
        return (yield from send(queue, wanted, delay))

    def raise_shards(self, shards: int) -> Procedure[Settings]:
        return (yield from raise_shards((yield from self.open()), shards))

    def stats(self) -> Procedure[stats.QueueStats]:
        return (yield from stats.stats((yield from self.open())))

    def trim(self) -> Procedure[trim.Trimmed]:
        return (yield from trim.trim_all((yield from self.open())))

    def tails(self) -> Procedure[dict[int, int]]:
        """Where each shard ends now."""
        queue = yield from self.open()
        tails = {}
        for shard in range(queue.settings.shards):
            tails[shard] = yield from fresh_tail(queue, queue.log(shard))
        return tails

    def read_on(self, positions: dict[int, int]) -> Procedure[list[browse.Seen]]:
        """What was sent behind `positions`, which are moved on."""
        queue = yield from self.open()
        seen: list[browse.Seen] = []
        for shard in range(queue.settings.shards):
            found, positions[shard] = yield from browse.read_on(queue, shard, positions.get(shard, 0))
            seen += found
        return seen

    def dead(self) -> DeadApi:
        return DeadApi(self)


def _delay(delay_seconds: float | None, at: object) -> Procedure[float]:
    if at is None:
        return 0.0 if delay_seconds is None else check_seconds(delay_seconds, "delay_seconds", high=DELAY_SECONDS_MAX)
    if delay_seconds is not None:
        raise Invalid("give delay_seconds or at, not both")
    now: float = yield Now()
    return max(0.0, seconds_of(at) - now)


def seconds_of(at: object) -> float:
    """A time given as seconds since 1970 or as a datetime with a time zone."""
    if isinstance(at, datetime):
        if at.tzinfo is None:
            raise Invalid(f"{at} has no time zone; use datetime.now(timezone.utc) or seconds since 1970")
        return at.timestamp()
    if isinstance(at, int | float) and not isinstance(at, bool) and math.isfinite(at):
        return float(at)
    raise Invalid(f"a time must be a datetime with a time zone or seconds since 1970, not {at!r}")


class SubscriptionApi:
    """One subscription of a queue by name."""

    def __init__(self, queue: QueueApi | DeadApi, name: str = MAIN, start: object = "earliest") -> None:
        self.queue = queue
        self.name = check_name(name, "subscription")
        self._start = _start(start)
        self._once = Once(self._open)

    def open(self) -> Procedure[OpenSubscription]:
        return (yield from self._once.get())

    def _open(self) -> Procedure[OpenSubscription]:
        queue = yield from self.queue.open()
        if self._start != "earliest":
            yield from begin(queue, self.name, self._start)
        return OpenSubscription(queue, self.name)

    def begin(self) -> Procedure[None]:
        """Make it now, so that it sees what is sent from here on even if it is first received from later."""
        yield from begin((yield from self.queue.open()), self.name, self._start)

    def receive(
        self, limit: int, wait_seconds: float, lease_seconds: float | None, *, keep_alive: bool = False
    ) -> Procedure[Received]:
        sub = yield from self.open()
        bucket = self.queue.bucket
        bucket.keeper.watch(sub)
        yield from bucket.start_keeper()
        lease = _lease(lease_seconds, sub.queue.settings)
        found = yield from receive(sub, limit, wait_seconds=wait_seconds, lease_seconds=lease)
        if isinstance(found, Nobody):
            return Received(None, {}, found)
        if keep_alive:
            bucket.keeper.keep_alive(found)
        return Received(found, (yield from fetch_bodies(sub.queue, found.messages)), Nobody())

    def flush(self) -> Procedure[None]:
        """Hand in what waits; `LeaseLost` if some of what was handed in since the last flush came too late."""
        sub = yield from self.open()
        yield from flush_all(sub)
        lost = [text for desk in sub.desks.values() for text in desk.take_lost()]
        if lost:
            raise LeaseLost(f"{len(lost)} settlements came too late and changed nothing, the first: {lost[0]}")

    def peek(self, limit: int) -> Procedure[list[browse.Seen]]:
        return (yield from browse.peek((yield from self.open()), limit))

    def purge(self) -> Procedure[int]:
        return (yield from browse.purge((yield from self.open())))

    def restore(self, receipt: str) -> Procedure[Lot]:
        """The lot of a delivery that was received elsewhere, from its receipt. No request."""
        sub = yield from self.open()
        proof = read_receipt(receipt)
        if (proof.queue, proof.subscription) != (sub.queue.name, sub.name):
            raise Invalid(f"the receipt is for {proof.queue}/{proof.subscription}, not {sub.queue.name}/{sub.name}")
        if proof.span.count != 1 or not 0 <= proof.shard < SHARDS_MAX:
            raise Invalid(f"{receipt[:40]!r} is not the receipt of one message; use the one that receive printed")
        lease = Lease(proof.lease, sub.queue.holder, 0.0, (Held(proof.span, proof.attempt),))
        return Lot(sub.desk(proof.shard), lease, sub.queue.settings.lease_seconds, [Message("", "")])

    def work(
        self,
        handler: Callable[[Any], Any],
        wrap: Callable[[Lot, dict[str, Any]], list[Any]],
        started: Callable[[Work], None],
        *,
        concurrency: int,
        prefetch: int | None,
        lease_seconds: float | None,
        stop_when_empty: bool,
    ) -> Procedure[None]:
        sub = OpenSubscription((yield from self.queue.open()), self.name)
        bucket = self.queue.bucket
        bucket.keeper.watch(sub)
        yield from bucket.start_keeper()

        def wrapped(lot: Lot) -> Procedure[list[Any]]:
            return wrap(lot, (yield from fetch_bodies(sub.queue, lot.messages)))

        state = Work(
            sub,
            bucket.keeper,
            call_handler(handler),
            wrapped,
            concurrency=concurrency,
            prefetch=prefetch if prefetch is not None else PREFETCH * concurrency,
            lease_seconds=_lease(lease_seconds, sub.queue.settings),
            stop_when_empty=stop_when_empty,
        )
        started(state)
        yield from work(state)


def _lease(lease_seconds: float | None, settings: Settings) -> float:
    if lease_seconds is None:
        return settings.lease_seconds
    return check_seconds(lease_seconds, "lease_seconds", low=LEASE_SECONDS_MIN, high=LEASE_SECONDS_MAX)


def _start(start: object) -> Start:
    if isinstance(start, str):
        if start not in ("earliest", "latest"):
            raise Invalid(f"start must be 'earliest', 'latest', a time or offsets by shard, not {start!r}")
        return start
    if isinstance(start, Mapping):
        try:
            return {int(shard): int(offset) for shard, offset in start.items()}
        except (TypeError, ValueError):
            raise Invalid(f"offsets must be numbers by shard, like {{0: 100}}, not {start!r}") from None
    return seconds_of(start)


class DeadApi:
    """The dead letters of a queue: a queue too, with messages that say how they died."""

    def __init__(self, origin: QueueApi) -> None:
        self.origin = origin
        self.bucket = origin.bucket
        self._sub = SubscriptionApi(self)

    def open(self) -> Procedure[OpenQueue]:
        return (yield from dead_queue((yield from self.origin.open())))

    def peek(self, limit: int) -> Procedure[list[browse.Seen]]:
        return (yield from self._sub.peek(limit))

    def purge(self) -> Procedure[int]:
        return (yield from self._sub.purge())

    def redrive(
        self, wanted: Callable[[browse.Seen], bool], limit: int | None, *, dry_run: bool
    ) -> Procedure[redrive.Redriven]:
        sub = yield from self._sub.open()
        how = redrive.count_matching if dry_run else redrive.redrive
        return (yield from how(sub, wanted, redrive.LETTERS_MAX if limit is None else limit))


class Received(msgspec.Struct, frozen=True):
    """A lot and its large bodies, or nothing and why."""

    lot: Lot | None
    bodies: dict[str, Any]
    nobody: Nobody


class Proof(msgspec.Struct, frozen=True, array_like=True):
    """What a receipt holds."""

    queue: str
    subscription: str
    shard: int
    lease: int
    span: Span
    attempt: int


def write_receipt(lot: Lot, offset: int, attempt: int) -> str:
    """A receipt as text, to settle the delivery from elsewhere."""
    desk = lot.desk
    (span,) = lot.spans_of([offset])
    proof = Proof(desk.queue.name, desk.subscription, desk.shard, lot.lease, span, attempt)
    return base64.urlsafe_b64encode(msgspec.json.encode(proof)).decode().rstrip("=")


def read_receipt(text: str) -> Proof:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text + "=" * (-len(text) % 4)), type=Proof)
    except (binascii.Error, ValueError, msgspec.DecodeError, TypeError) as error:
        raise Invalid(f"{str(text)[:40]!r} is not a receipt; use the one that receive printed") from error


def settle_now(lot: Lot) -> Procedure[None]:
    """Commit what waits for this lot's head and raise `LeaseLost` if the lease is gone. One PUT."""
    yield from commit(lot.desk)
    yield from look_after(lot.desk)
    lot.check()


def extend_now(lot: Lot, seconds: float | None) -> Procedure[float]:
    lease_seconds = lot.lease_seconds if seconds is None else check_seconds(seconds, "seconds", high=LEASE_SECONDS_MAX)
    return (yield from extend(lot, lease_seconds))
