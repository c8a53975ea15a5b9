"""What became of every message: the processes' own records held against the log and the dead letters."""

from __future__ import annotations

from collections import Counter

import msgspec

from bucketmq.cli.demo import plan
from bucketmq.cli.demo.crew import PRODUCER, WORKER, Workers
from bucketmq.cli.demo.records import HANDLED
from bucketmq.cli.look import read_to_end
from bucketmq.client import Queue
from bucketmq.engines.meter import Requests
from bucketmq.pricing import cost, dollars

DEAD_MAX = 100_000


class Account(msgspec.Struct, frozen=True):
    """The closing account. Every number is counted from records, log and dead letters, none is assumed."""

    sent: int
    """Messages the producers know to be durable."""
    in_log: int
    settled: int
    """In the log, handled by some worker by its own record, and not in the queue any more."""
    dead: int
    unsettled: int
    lost: int
    """Sent, and not in the log; or in the log, and neither handled by anyone, nor dead, nor in the queue."""
    strangers: int
    """In the log twice, or without a producer's record of it."""
    failures: int
    """Attempts that failed, those of dead letters included."""
    redelivered: int
    """Deliveries repeated because a worker was killed or frozen, not because it failed."""
    handled_twice: int
    """Messages whose handler ran to its end more than once."""
    seconds: float
    handled_per_second: float
    requests: Requests
    s3_usd: float

    @property
    def good(self) -> bool:
        return not (self.lost or self.strangers or self.unsettled) and self.sent == self.settled + self.dead


def add_up(queue: Queue, crew: Workers, seconds: float) -> Account:
    """Read the whole log and all dead letters, and hold them against what the processes wrote down."""
    sent = [id_ for record in crew.records(PRODUCER) for id_ in record.sent]
    handled = Counter(id_ for record in crew.records(WORKER) for id_, _ in record.handled)
    logged = Counter(message.id for message in read_to_end(queue, {}))
    dead = {letter.id for letter in queue.dead_letters.peek(DEAD_MAX)}
    unsettled = {message.id for message in queue.peek(queue.stats().depth + 1)}
    requests = _sum([record.requests() for record in crew.records()])
    accounted = handled.keys() | dead | unsettled
    gone = [id_ for id_ in sent if id_ not in logged or id_ not in accounted]
    known = set(sent)
    return Account(
        sent=len(sent),
        in_log=sum(logged.values()),
        settled=len((logged.keys() & handled.keys()) - dead - unsettled),
        dead=len(dead),
        unsettled=len(unsettled),
        lost=len(gone),
        strangers=sum(count if id_ not in known else count - 1 for id_, count in logged.items()),
        failures=sum(len(record.failed) for record in crew.records(WORKER)),
        redelivered=_redelivered(crew),
        handled_twice=sum(1 for count in handled.values() if count > 1),
        seconds=seconds,
        handled_per_second=crew.total(HANDLED) / seconds,
        requests=requests,
        s3_usd=cost(requests, "s3"),
    )


def _redelivered(crew: Workers) -> int:
    """Attempts that began and that no record tells the end of: the attempt counted, but its worker was gone."""
    last: Counter[str] = Counter()
    told: set[tuple[str, int]] = set()
    for record in crew.records(WORKER):
        for id_, attempt in (*record.handled, *record.failed):
            told.add((id_, attempt))
            last[id_] = max(last[id_], attempt)
    return sum(last.values()) - len(told) + _late(crew)


def _late(crew: Workers) -> int:
    """Attempts whose worker finished after the message had been handed to another."""
    best: dict[str, int] = {}
    for record in crew.records(WORKER):
        for id_, attempt in record.handled:
            best[id_] = max(best.get(id_, 0), attempt)
    return sum(1 for record in crew.records(WORKER) for id_, attempt in record.handled if attempt < best[id_])


def _sum(counts: list[Requests]) -> Requests:
    total: Counter[str] = Counter()
    for each in counts:
        total.update(msgspec.to_builtins(each))
    return Requests(**total)


def lines(account: Account) -> list[str]:
    """The account for people."""
    made = account.requests
    total = made.writes + made.get + made.list + made.delete
    attempts, work = plan.SETTINGS["attempts_max"], plan.WORK_SECONDS * 1000
    rows = (
        ("sent", account.sent, f"by {plan.PRODUCERS} producers"),
        ("settled", account.settled, f"by {plan.WORKERS} workers, one of them killed, one frozen"),
        ("dead", account.dead, f"poison: each failed {attempts} times, and its history is kept"),
        ("unsettled", account.unsettled, ""),
        ("lost", account.lost, "every id a producer wrote down was looked up in the log and the workers' records"),
        ("redelivered", account.redelivered, f"{plan.KILLED} was killed and {plan.FROZEN} frozen past its lease"),
        ("done twice", account.handled_twice, "of these: handled, but too late to say so; at least once means this"),
        ("failures", account.failures, "exceptions in handlers, retried with back-off"),
    )
    return [
        *(f"{name:<12}{count:>6,}  {text}".rstrip() for name, count, text in rows),
        "",
        f"{account.seconds:.1f} s, {account.handled_per_second:.0f} messages/s (each pretends {work:.0f} ms of work)",
        f"{total:,} requests: {made.writes:,} writes ({made.refused / max(1, made.writes):.0%} of them refused), "
        f"{made.get:,} reads, {made.list:,} listings; on S3 that is {dollars(account.s3_usd)}",
    ]
