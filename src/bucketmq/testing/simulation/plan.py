"""What a seed does: settings, processes, sends, faults. Drawn before anything runs, so it can be shown."""

from __future__ import annotations

import functools
import itertools
import random
from typing import Any

import msgspec

from bucketmq.queue.routing import digits_of
from bucketmq.queue.settings import MAIN
from bucketmq.testing.simulation.faults import Faults, swarm

AUDIT = "audit"
"""The second subscription, in runs that have one."""

LATECOMER = "late"
"""A subscription that begins when much has been trimmed."""

QUEUE = "jobs"
KEYS = ("red", "green", "blue", "black")
JOBS_MAX = 18
DEDUP_ENTRIES_MAX = 2
"""Registers of deduplication keys are full with so many, or no run would have enough of them to split one."""


class Job(msgspec.Struct, frozen=True):
    """One call of send. `tokens` name its messages whatever ids they get."""

    tokens: tuple[str, ...]
    keys: tuple[str | None, ...]
    gap_seconds: float
    """How long the sender waits before it."""
    delay_seconds: float = 0.0
    dedup_key: str | None = None
    large: bool = False
    batch: int | None = None
    """For what a bulk writer publishes: the batch of its transaction."""


class Role(msgspec.Struct, frozen=True):
    """What a line of processes does, each one taking over where the one before it died."""

    name: str
    senders: int
    """How many concurrent callers send."""
    workers: tuple[tuple[str, str], ...]
    """For each concurrent receiver its subscription and its kind: hand or worker."""
    chores: tuple[str, ...]
    jobs: tuple[Job, ...] = ()
    batches: tuple[Job, ...] = ()
    """What a bulk writer publishes, in this order. A rival writer of the same transaction has the same ones."""
    cold: bool = False
    """Whether each of its sends opens the queue afresh, and so has to find where the log ends."""


class Plan(msgspec.Struct, frozen=True):
    """Everything a seed decides beforehand."""

    seed: int
    faults: Faults
    settings: dict[str, Any]
    roles: tuple[Role, ...]
    subscriptions: tuple[str, ...]
    long: bool
    """Minutes instead of seconds: trimming, and processes that sleep through it."""
    calm: bool
    """Nothing in it may make a lease expire."""
    raise_to: int
    lists_in_order: bool
    answer_stamps: bool
    content_versions: bool
    whole_seconds: bool
    poison: tuple[str, ...] = ()
    """Tokens of messages that kill whoever handles them."""
    more: bool = False
    """Whether there are bulk writers, purges and cold senders, and hints every few segments."""

    @property
    def messages(self) -> int:
        batches = {job for role in self.roles for job in role.batches}
        return sum(len(job.tokens) for job in (*(job for role in self.roles for job in role.jobs), *batches))

    @property
    def delayed(self) -> bool:
        return any(job.delay_seconds for role in self.roles for job in role.jobs)


class Tilt(msgspec.Struct, frozen=True):
    """What is not left to the seed: None leaves it."""

    long: bool | None = None
    ordered: bool | None = None
    raised: bool | None = None
    more: bool | None = None
    once: bool | None = None
    """Whether whatever is sent alone has a deduplication key."""


LEVEL = Tilt()
SHORT = Tilt(long=False)
PLAIN = Tilt(more=False)
"""What `more` adds is drawn apart from everything else: without it a seed is the history that it was before."""
LONG = Tilt(long=True, more=False)
FENCED = Tilt(long=False, ordered=True, raised=True, more=False)
MORE = Tilt(more=True)
ONCE = Tilt(long=False, more=False, once=True)


def draw(seed: int, faults: Faults | None = None, tilt: Tilt = LEVEL) -> Plan:
    """The plan of a seed; `faults` takes the place of the swarm's mixture, `tilt` of some of its dice."""
    chance = random.Random(f"plan {seed}")
    mixture = swarm(chance)
    mixture = faults if faults is not None else mixture
    long = _toss(chance, 0.10, tilt.long)
    calm = _is_calm(mixture)
    settings = _settings(chance, long=long, calm=calm, ordered=_toss(chance, 0.35, tilt.ordered))
    subscriptions = (MAIN, AUDIT) if chance.random() < 0.3 else (MAIN,)
    jobs = _jobs(chance, settings, long=long, once=bool(tilt.once))
    roles = _roles(chance, subscriptions, jobs, long=long, raised=_toss(chance, 0.35, tilt.raised), calm=calm)
    tokens = [token for job in jobs for token in job.tokens]
    apart = random.Random(f"more {seed}")
    more = _toss(apart, 0.4, tilt.more)
    if more:
        roles = _with_more(apart, roles, settings, long=long)
    return Plan(
        seed=seed,
        faults=mixture,
        settings=settings,
        roles=roles,
        subscriptions=subscriptions,
        long=long,
        calm=calm,
        raise_to=settings["shards"] + chance.choice((1, 2)),
        lists_in_order=chance.random() < 0.7,
        answer_stamps=chance.random() < 0.5,
        content_versions=chance.random() < 0.5,
        whole_seconds=chance.random() < 0.5,
        poison=tuple(chance.sample(tokens, 1)) if mixture.crash and chance.random() < 0.4 else (),
        more=more,
    )


def _toss(chance: random.Random, odds: float, tilt: bool | None) -> bool:
    tossed = chance.random() < odds
    return tossed if tilt is None else tilt


def _is_calm(faults: Faults) -> bool:
    rates = faults.lost_request, faults.lost_reply, faults.late_landing, faults.conflict_409, faults.error_503
    return max(rates) <= 0.1 and not (faults.slow or faults.crash or faults.freeze or faults.skew)


def _settings(chance: random.Random, *, long: bool, calm: bool, ordered: bool) -> dict[str, Any]:
    return {
        "shards": 1 if long else chance.choice((1, 1, 2, 3)),
        "ordered": ordered,
        "lease_seconds": 40.0 if calm else chance.choice((5.0, 10.0, 20.0)),
        "attempts_max": chance.choice((3, 4, 5)),
        "backoff": {"first_seconds": 0.5, "factor": 2.0, "max_seconds": 4.0, "jitter": 0.2},
        "dedup_seconds": chance.choice((0.0, 30.0)) if long else 3600.0,
        "keep_seconds": 0.0,
        "expire_seconds": chance.choice((0.0, 0.0, 0.0, 150.0)) if long else 0.0,
        "inline_bytes_max": 150,
    }


def _jobs(chance: random.Random, settings: dict[str, Any], *, long: bool, once: bool) -> list[Job]:
    left = chance.randint(10, JOBS_MAX)
    jobs: list[Job] = []
    unique = iter(range(1000))
    dedup_works = settings["dedup_seconds"] > 0 and not long
    while left > 0:
        count = min(left, chance.choice((1, 1, 1, 2, 3)))
        left -= count
        name = f"t{next(unique)}"
        tokens = tuple(f"{name}-{place}" for place in range(count)) if count > 1 else (name,)
        keyed = chance.random() < (0.9 if settings["ordered"] else 0.3)
        kind = chance.random()
        is_once = dedup_works and count == 1 and (once or 0.12 <= kind < 0.4)
        jobs.append(
            Job(
                tokens,
                tuple(chance.choice(KEYS) if keyed else None for _ in tokens),
                gap_seconds=chance.uniform(0, 60 if long else 3) if chance.random() < 0.7 else 0.0,
                delay_seconds=chance.uniform(0.5, 15) if kind < 0.12 and not once else 0.0,
                dedup_key=crowded()[len(jobs)] if is_once else None,
                large=chance.random() < 0.1,
            )
        )
    return jobs


@functools.cache
def crowded() -> tuple[str, ...]:
    """Deduplication keys that meet in one register, and when that has split, in two of those below it."""
    keys = (f"d{number}" for number in itertools.count())
    return tuple(itertools.islice((key for key in keys if digits_of(key)[1:4] in ("000", "001")), JOBS_MAX))


def _roles(
    chance: random.Random, subscriptions: tuple[str, ...], jobs: list[Job], *, long: bool, raised: bool, calm: bool
) -> tuple[Role, ...]:
    count = chance.randint(3, 5)
    senders = [chance.choice((1, 1, 2, 3)) if place < 2 else chance.choice((0, 0, 1)) for place in range(count)]
    workers: list[list[tuple[str, str]]] = [[] for _ in range(count)]
    for place in range(count):
        for _ in range(chance.choice((1, 1, 2)) if place >= 1 else chance.choice((0, 1))):
            workers[place].append((subscriptions[0], chance.choice(("hand", "hand", "worker"))))
    for subscription in subscriptions[1:]:
        workers[chance.randrange(count)].append((subscription, "hand"))
    chores: list[list[str]] = [[] for _ in range(count)]
    wanted = ["trim", "trim"] if long else []
    wanted += ["raise"] if raised else []
    odds = {"stats": 0.25, "redrive": 0.3, "restart": 0.0 if calm else 0.2}
    wanted += [name for name, odd in odds.items() if chance.random() < odd]
    for name in wanted:
        chores[chance.randrange(count)].append(name)
    if long and chance.random() < 0.3:
        workers[chance.randrange(count)].append((LATECOMER, "hand"))
    hands = [place for place in range(count) for _ in range(senders[place])]
    given: list[list[Job]] = [[] for _ in range(count)]
    for job in jobs:
        given[chance.choice(hands)].append(job)
    return tuple(
        Role(f"p{place}", senders[place], tuple(workers[place]), tuple(chores[place]), tuple(given[place]))
        for place in range(count)
    )


def _with_more(
    chance: random.Random, roles: tuple[Role, ...], settings: dict[str, Any], *, long: bool
) -> tuple[Role, ...]:
    """The roles, with cold senders, somebody who purges, and a bulk writer, perhaps with a rival."""
    replace = msgspec.structs.replace
    made = [replace(role, cold=bool(role.senders) and chance.random() < 0.4) for role in roles]
    places = chance.sample(range(len(made)), 3)
    if chance.random() < 0.4:
        made[places[0]] = replace(made[places[0]], chores=(*made[places[0]].chores, "purge"))
    if chance.random() < 0.7:
        batches = _batches(chance, keyed=0.9 if settings["ordered"] else 0.3, long=long)
        for place in places[1 : 3 if chance.random() < 0.4 else 2]:
            made[place] = replace(made[place], chores=(*made[place].chores, "bulk"), batches=batches)
    return tuple(made)


def _batches(chance: random.Random, *, keyed: float, long: bool) -> tuple[Job, ...]:
    batches = []
    for batch in range(chance.randint(1, 3)):
        tokens = tuple(f"b{batch}-{place}" for place in range(chance.randint(1, 4)))
        keys = tuple(chance.choice(KEYS) if chance.random() < keyed else None for _ in tokens)
        batches.append(Job(tokens, keys, chance.uniform(0, 60 if long else 3), batch=batch))
    return tuple(batches)
