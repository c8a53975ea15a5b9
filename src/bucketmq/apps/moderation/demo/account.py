"""What became of every post: the bucket, the registers and the mailbox held against what the ingest agent answered."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

import msgspec

from bucketmq.api.bucket import BucketApi
from bucketmq.apps.moderation import posts
from bucketmq.apps.moderation.demo.feed import Told
from bucketmq.apps.moderation.demo.mailbox import Mailbox
from bucketmq.apps.moderation.ids import id_at, key_of
from bucketmq.apps.moderation.record import FLAGGED, OUTCOMES, PENDING
from bucketmq.client import Bucket
from bucketmq.events.event import seconds_of
from bucketmq.procedures.requests import Procedure
from bucketmq.server.place import bus_of, run_now


class Latency(msgspec.Struct, frozen=True):
    """How long a step took, in seconds, over all posts that took it."""

    step: str
    count: int
    median: float
    most: float
    """Nine of ten took less."""


class Account(msgspec.Struct, frozen=True):
    """The closing account. Every number is counted, none is assumed."""

    accepted: int
    repeated: int
    revised: int
    refused: int
    outcomes: dict[str, int]
    """Accepted posts by the prefix they ended in."""
    lost: int
    """Accepted, and nowhere; named in `examples`."""
    twice: int
    """In more than one place."""
    flagged: int
    noticed: int
    """Flagged posts of which at least one notice arrived."""
    notices: int
    notices_refused: int
    """Deliveries that the mailbox refused, and that were tried again."""
    failed: tuple[str, ...]
    """Unexpected answers of the ingest agent."""
    steps: tuple[Latency, ...]
    examples: tuple[str, ...] = ()

    @property
    def good(self) -> bool:
        return not (self.lost or self.twice or self.failed) and self.noticed == self.flagged


def counts(bucket: Bucket) -> dict[str, int]:
    """Objects by prefix, for the screen."""
    return run_now(bucket, posts.overview(bus_of(bucket))).objects


def add_up(bucket: Bucket, told: Told, mailbox: Mailbox) -> Account:
    """Look at every accepted post. Three or more requests for each."""
    judged, decided = judged_at(bucket), decided_at(bucket, told.accepted)
    where = {id_: _places(bucket, id_) for id_ in told.accepted}
    ends = {id_: places[0] for id_, places in where.items() if len(places) == 1}
    flagged = {id_ for id_, place in ends.items() if place == FLAGGED}
    missing = [id_ for id_, places in where.items() if not places]
    return Account(
        accepted=len(told.accepted),
        repeated=told.repeated,
        revised=told.revised,
        refused=told.refused,
        outcomes={prefix: sum(place == prefix for place in ends.values()) for prefix in OUTCOMES},
        lost=len(missing),
        twice=sum(len(places) > 1 for places in where.values()),
        flagged=len(flagged),
        noticed=len(flagged & mailbox.arrived.keys()),
        notices=sum(mailbox.notices.values()),
        notices_refused=mailbox.refused,
        failed=tuple(told.failed),
        steps=(
            _latency("submit until durable", told.answer_seconds),
            _latency("durable until judged", _between(told.accepted, judged)),
            _latency("judged until routed", _between(judged, decided)),
            _latency("flagged until noticed", _between({id_: decided[id_] for id_ in flagged}, mailbox.arrived)),
            _latency("submit until outcome", _between(told.accepted, decided)),
        ),
        examples=tuple(missing[:5]),
    )


def all_settled(bucket: Bucket, told: Told, mailbox: Mailbox) -> bool:
    """Whether every accepted post has its outcome and every flagged one its notice: when the demo may end."""
    bus = bus_of(bucket)
    found = counts(bucket)
    if found[PENDING] or sum(found[prefix] for prefix in OUTCOMES) < len(told.accepted):
        return False
    waiting = run_now(bucket, posts.waiting(bus)).entries
    if any(each.outcome == FLAGGED and each.id not in mailbox.arrived for each in waiting):
        return False
    return all(run_now(bucket, _is_decided(bus, id_)) for id_ in told.accepted)


def _is_decided(bus: BucketApi, id_: str) -> Procedure[bool]:
    """Whether the newest accepted revision was decided."""
    register = (yield from posts.look_at(bus, id_)).register
    return register is not None and register.decision is not None and register.decision.revision >= register.revision


def _places(bucket: Bucket, id_: str) -> list[str]:
    bus = bus_of(bucket)
    return [prefix for prefix in (PENDING, *OUTCOMES) if run_now(bucket, _is_there(bus, key_of(prefix, id_)))]


def _is_there(bus: BucketApi, key: str) -> Procedure[bool]:
    from bucketmq.bucket.port import Missing
    from bucketmq.procedures.objects.keys import full_key
    from bucketmq.procedures.verbs import look

    bucket = yield from bus.open()
    return not isinstance((yield from look(full_key(bucket, key))), Missing)


def decided_at(bucket: Bucket, ids: Iterable[str]) -> dict[str, float]:
    """id -> when it was decided where the post belongs, for those that have been; a few requests for each."""
    bus = bus_of(bucket)
    found: dict[str, float] = {}
    for id_ in ids:
        register = run_now(bucket, posts.look_at(bus, id_)).register
        if register is not None and register.decision is not None:
            found[id_] = seconds_of(register.decision.at)
    return found


def judged_at(bucket: Bucket) -> dict[str, float]:
    """id -> when its record was first written below `pending/`, as the log of events tells."""
    found: dict[str, float] = {}
    positions: dict[int, int] = {}
    queue = bucket.queue("events")
    while True:
        before = dict(positions)
        for message in queue.tail(positions):
            body = message.body
            id_ = id_at(PENDING, body.get("key", "")) if isinstance(body, dict) else None
            if id_ is not None and body.get("kind") == "created":
                found.setdefault(id_, seconds_of(body["at"]))
        if positions == before:
            return found


def _between(start: dict[str, float], end: dict[str, float]) -> list[float]:
    return [max(0.0, end[id_] - start[id_]) for id_ in start.keys() & end.keys()]


def _latency(step: str, seconds: Iterable[float]) -> Latency:
    values = sorted(seconds)
    if not values:
        return Latency(step, 0, 0.0, 0.0)
    return Latency(step, len(values), statistics.median(values), values[int(0.9 * (len(values) - 1))])
