"""What a seed of the event bus does: objects written, rules, processes, weather. Drawn before anything runs.

One thing users are told not to rely on is left out (see `bucketmq.events.window`): the same bytes are put again under
the same key only after more than `AGAIN_SECONDS`.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import msgspec

from bucketmq.events.rule import Breaker, Policy
from bucketmq.events.window import NEAR_SECONDS
from bucketmq.testing.simulation.faults import NONE, RATES, Faults, swarm

AGAIN_SECONDS = NEAR_SECONDS + 1.0

CHAOS_SECONDS = 26.0
"""For how long things are written and go wrong."""

VERBS = ("put", "put", "again", "delete", "delete", "move", "move")
"""What is done to a document once it is there."""

OUTCOMES = ("approved", "flagged", "needs-review")

VICTIMS = ("writer", "watcher", "notifier", "sweeper", "receiver")
VICTIM_ODDS = 5.0
"""How much likelier one of them dies when nobody else does."""

RETRY_SECONDS = (0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0, 8.0)
RETRY_SECONDS_FEW = (0.5, 1.0)
"""With so few attempts an endpoint in trouble makes dead letters."""

LEASE_SECONDS = 8.0


class Weather(msgspec.Struct, frozen=True):
    """What notifications on their way to us, and endpoints on the other side, suffer. Probabilities."""

    notice_lost: float = 0.0
    notice_doubled: float = 0.0
    notice_late: float = 0.0
    """Others overtake it."""
    answer_500: float = 0.0
    answer_503: float = 0.0
    """With a Retry-After."""
    answer_410: float = 0.0
    answer_302: float = 0.0
    answer_partial: float = 0.0
    """200, and the ids of some that failed."""
    no_answer: float = 0.0
    """It was not processed, and nobody says so."""
    late_answer: float = 0.0
    """It was processed, and nobody says so in time."""
    vanish: float = 0.0
    """Nobody is there for a while."""
    handler_error: float = 0.0
    """A watcher's handler raises before it did anything, or after it did everything."""


WEATHERS: tuple[str, ...] = Weather.__struct_fields__
FINE = Weather()


def blow(chance: random.Random) -> Weather:
    """A random mixture; an endpoint that is gone for good (410) answers so once in a while only."""
    drawn = {kind: chance.choice(RATES) for kind in WEATHERS}
    return Weather(**{**drawn, "answer_410": min(drawn["answer_410"], 0.1)})


def just(kinds: Iterable[str]) -> Weather:
    """Only these, and often."""
    return Weather(**{kind: 0.1 if kind == "answer_410" else RATES[-1] for kind in kinds})


class Step(msgspec.Struct, frozen=True):
    """One thing somebody does to a user's object."""

    verb: str
    """put, again (the same bytes once more), delete, move"""
    key: str
    wait_seconds: float
    """Before it."""
    body: str = ""
    target: str = ""


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a seed decides beforehand."""

    seed: int
    faults: Faults
    weather: Weather
    prefix: str
    victims: str
    """Who crashes and freezes: one kind of process, so much the oftener, or all (empty)."""
    provider: str
    """s3 (with a sequencer) or tigris (without)."""
    notifies: bool
    """Whether the store reports changes at all."""
    content_versions: bool
    whole_seconds: bool
    answer_stamps: bool
    lists_in_order: bool
    renames: bool
    copies: bool
    range_keys: int
    sweepers: int
    notifiers: int
    watchers: int
    own: tuple[tuple[Step, ...], ...]
    """What our own writers do, one sequence for each process."""
    foreign: tuple[Step, ...]
    together: int
    """How many objects our writers write at a time, at most."""
    moderation: bool
    """Posts in pending/, a router, and humans who are notified of what is flagged."""
    moving: str
    """How the router treats what is in its way: replace, aside, or names that are never taken (versioned)."""
    documents: bool
    archive: bool
    """A rule to a queue."""
    batch: int
    ordered: bool
    stale: str
    few_attempts: bool
    fan_in: bool
    deadline: bool
    slow_sets: bool
    """Whether the handler of a set takes longer than a lease lasts."""
    temp: str
    """What becomes of one more rule: nothing, late, existing, pause, remove, replay."""

    @property
    def calm(self) -> bool:
        """Nothing in it makes anybody do anything twice."""
        faults, weather = self.faults, self.weather
        return faults == NONE and not set(_told(weather)) - {"notice_lost", "notice_doubled", "notice_late"}

    @property
    def policy(self) -> Policy:
        return Policy(
            retry_seconds=RETRY_SECONDS_FEW if self.few_attempts else RETRY_SECONDS,
            breaker=Breaker(4, 2.0, 6.0),
            ordered=self.ordered,
            stale="drop" if self.stale == "drop" else "deliver",
            concurrency=2,
            lease_seconds=LEASE_SECONDS,
        )


def _told(mixture: Faults | Weather) -> list[str]:
    return [name for name in mixture.__struct_fields__ if getattr(mixture, name)]


class Tilt(msgspec.Struct, frozen=True):
    """What is not left to the seed: None leaves it."""

    faults: Faults | None = None
    weather: Weather | None = None
    moderation: bool | None = None
    moving: str | None = None
    documents: bool | None = None
    archive: bool | None = None
    fan_in: bool | None = None
    slow_sets: bool | None = None
    temp: str | None = None
    content_versions: bool | None = None
    notifies: bool | None = None
    batch: int | None = None
    watchers: int | None = None
    sweepers: int | None = None
    few_attempts: bool | None = None
    stale: str | None = None
    ordered: bool | None = None
    victims: str | None = None
    together: int | None = None
    verbs: tuple[str, ...] = VERBS


LEVEL = Tilt()


def draw(seed: int, tilt: Tilt = LEVEL) -> Plan:
    """The plan of a seed; what `tilt` names takes the place of the dice."""
    chance = random.Random(f"bus {seed}")
    toss = chance.random
    faults, weather = swarm(chance), blow(chance)
    if toss() < 0.1:
        faults = NONE
    if toss() < 0.1:
        weather = FINE
    kept = {name: value for name, value in msgspec.structs.asdict(tilt).items() if value is not None}
    verbs = kept.pop("verbs")
    shape: dict[str, Any] = {
        "moderation": toss() < 0.5,
        "documents": toss() < 0.5,
        "fan_in": toss() < 0.15,
        "archive": toss() < 0.25,
        "temp": chance.choice(("late", "existing", "pause", "remove", "replay")) if toss() < 0.3 else "",
        "moving": chance.choice(("replace", "aside", "versioned")),
    }
    shape |= {name: kept[name] for name in kept if name in shape}
    if not (shape["moderation"] or shape["fan_in"]):
        shape["documents"] = True
    steps = _Steps(chance, shape, verbs)
    own, foreign = steps.deal()
    drawn: dict[str, Any] = {
        "faults": faults,
        "weather": weather,
        "victims": chance.choice(VICTIMS) if toss() < 0.5 else "",
        "prefix": chance.choice(("", "", "shop")),
        "provider": chance.choice(("s3", "tigris")),
        "notifies": toss() < 0.8,
        "content_versions": toss() < 0.6,
        "whole_seconds": toss() < 0.5,
        "answer_stamps": toss() < 0.5,
        "lists_in_order": toss() < 0.7,
        "renames": toss() < 0.2,
        "range_keys": chance.choice((2, 5, 1000)),
        "sweepers": chance.choice((0, 0, 1, 1, 2, 3)),
        "notifiers": chance.choice((1, 1, 1, 2)),
        "watchers": chance.choice((1, 1, 1, 1, 2)),
        "batch": chance.choice((1, 4, 4)),
        "ordered": toss() < 0.3,
        "stale": chance.choice(("deliver", "deliver", "drop")),
        "few_attempts": toss() < 0.25,
        "deadline": toss() < 0.5,
        "slow_sets": toss() < 0.4,
        "together": chance.choice((1, 3, 8)),
        "copies": toss() < 0.4,
    }
    return Plan(seed=seed, own=own, foreign=foreign, **{**drawn, **shape, **kept})


class _Steps:
    """Makes up who writes what."""

    def __init__(self, chance: random.Random, shape: dict[str, Any], verbs: tuple[str, ...]) -> None:
        self.chance = chance
        self.shape = shape
        self.verbs = verbs
        self.number = 0

    def deal(self) -> tuple[tuple[tuple[Step, ...], ...], tuple[Step, ...]]:
        chance = self.chance
        made: list[Step] = []
        if self.shape["moderation"]:
            made += self._posts()
        if self.shape["documents"] or self.shape["temp"] or self.shape["archive"]:
            made += self._documents()
        if self.shape["fan_in"]:
            made += self._sets()
        hands: list[list[Step]] = [[] for _ in range(chance.choice((1, 1, 2)) + 1)]
        for step in made:
            # One key has one writer of ours at most; foreigners write wherever they like.
            foreign = chance.random() < 0.5 and step.verb != "move"
            hands[-1 if foreign else hash_of(step.key) % (len(hands) - 1)].append(step)
        own = [tuple(self._paced(each)) for each in hands[:-1]]
        return tuple(own), tuple(self._paced(hands[-1]))

    def _paced(self, steps: list[Step]) -> list[Step]:
        """Over the time of chaos, keys mixed, the order of one key kept."""
        queues: dict[str, list[Step]] = {}
        for step in steps:
            queues.setdefault(step.key.split("/", 1)[1] if step.key.startswith("docs/") else step.key, []).append(step)
        mixed = []
        while queues:
            name = self.chance.choice(sorted(queues))
            mixed.append(queues[name].pop(0))
            if not queues[name]:
                del queues[name]
        most = 2.2 * CHAOS_SECONDS / max(1, len(mixed))
        waits = (self.chance.uniform(0, most) if self.chance.random() < 0.65 else 0.0 for _ in mixed)
        return [msgspec.structs.replace(step, wait_seconds=wait) for step, wait in zip(mixed, waits, strict=True)]

    def _posts(self) -> list[Step]:
        steps = []
        for number in range(self.chance.randint(2, 5)):
            for place in range(self.chance.choice((1, 1, 2, 3))):
                verb = "again" if place and self.chance.random() < 0.3 else "put"
                body = f'{{"id":"p{number}","n":{place},"verdict":"{self.chance.choice(OUTCOMES)}"}}'
                steps.append(Step(verb, f"pending/p{number}.json", 0.0, body))
            if self.shape["moving"] != "replace" and self.chance.random() < 0.2:
                taken = f"{self.chance.choice(OUTCOMES)}/p{number}.json"
                steps.append(Step("put", taken, 0.0, f'{{"squatter":"p{number}"}}'))
        return steps

    def _documents(self) -> list[Step]:
        steps = []
        for number in range(self.chance.randint(2, 4)):
            key = f"docs/d{number}"
            for place in range(self.chance.randint(1, 5)):
                self.number += 1
                verb = self.chance.choice(self.verbs) if place else "put"
                target = f"kept/d{number}.{self.number}" if verb == "move" else ""
                steps.append(Step(verb, key, 0.0, f"document {number} text {self.number}", target))
        return steps

    def _sets(self) -> list[Step]:
        steps = []
        for number in range(self.chance.choice((1, 2))):
            parts = ["a", "b"] if self.chance.random() < 0.7 else ["a"]
            parts += ["a"] if self.chance.random() < 0.5 else []  # replaced, perhaps while the handler runs
            steps += [
                Step("put", f"parts/s{number}/{part}.json", 0.0, f"part {part} of {number} ({place})")
                for place, part in enumerate(parts)
            ]
        return steps


def hash_of(text: str) -> int:
    """The same in every process."""
    return sum(text.encode())
