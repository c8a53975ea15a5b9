"""What a seed of tables does: the table's shape, who commits what, who reads, faults. Drawn before anything runs."""

from __future__ import annotations

import random
from typing import Any, Literal

import msgspec

from bucketmq.testing.simulation.faults import Faults, swarm

GROUPS = ("ape", "bee", "cat", "dog", "eel")
WRITER = "query"
"""The numbered writer: its batches are committed by one process, or by two that do not know of each other."""


class Put(msgspec.Struct, frozen=True):
    """Rows for a group, in place of some or of all that it has."""

    group: str
    keys: tuple[int, ...]
    rev: int
    whole: bool


class Drop(msgspec.Struct, frozen=True):
    """Everything of a group goes, or the rows with these keys."""

    group: str
    newer: int | None
    keys: tuple[int, ...] | None = None


class Planned(msgspec.Struct, frozen=True):
    """One commit. Its token is the name of a group that it alone writes: whoever sees that row sees the commit."""

    token: str
    changes: tuple[Put | Drop, ...]
    wait_seconds: float
    id: str | None = None
    """By which the caller may come back with it."""
    number: int | None = None
    """For a batch of the numbered writer."""


class Role(msgspec.Struct, frozen=True):
    """What a line of processes does, each one taking over where the one before it died."""

    name: str
    does: Literal["commits", "reads"]
    commits: tuple[Planned, ...] = ()
    hands: int = 1
    """How many callers of one process commit at a time."""


class Plan(msgspec.Struct, frozen=True):
    """Everything a seed decides beforehand."""

    seed: int
    faults: Faults
    shape: dict[str, str | None]
    split_bytes: int
    roles: tuple[Role, ...]
    lists_in_order: bool
    answer_stamps: bool
    content_versions: bool
    whole_seconds: bool

    @property
    def commits(self) -> dict[str, Planned]:
        return {commit.token: commit for role in self.roles for commit in role.commits}


def draw(seed: int, faults: Faults | None = None) -> Plan:
    """The plan of a seed; `faults` takes the place of the swarm's mixture."""
    chance = random.Random(f"tables {seed}")
    mixture = swarm(chance)
    guarded = chance.random() < 0.7
    shape: dict[str, str | None] = {"key": "id", "group": "doc", "newer_by": "rev" if guarded else None}
    slow = chance.random() < 0.5
    roles = [
        Role(f"c{place}", "commits", _commits(chance, f"c{place}", slow=slow), chance.choice((1, 1, 2, 3)))
        for place in range(chance.randint(2, 3))
    ]
    if chance.random() < 0.5:
        batches = _commits(chance, WRITER, slow=slow)
        roles += [Role(f"w{place}", "commits", batches) for place in range(chance.choice((1, 2)))]
    roles += [Role(f"r{place}", "reads") for place in range(chance.choice((1, 2)))]
    return Plan(
        seed=seed,
        faults=mixture if faults is None else faults,
        shape=shape,
        split_bytes=chance.choice((1_600, 2_200, 1 << 20)),
        roles=tuple(roles),
        lists_in_order=chance.random() < 0.7,
        answer_stamps=chance.random() < 0.5,
        content_versions=chance.random() < 0.5,
        whole_seconds=chance.random() < 0.5,
    )


def _commits(chance: random.Random, who: str, *, slow: bool) -> tuple[Planned, ...]:
    made = []
    for number in range(chance.randint(3, 6)):
        token = f"{who}-{number}"
        changes = tuple(_change(chance) for _ in range(chance.choice((1, 1, 2))))
        wait = chance.uniform(0, 70 if slow else 4)
        if who == WRITER:
            made.append(Planned(token, changes, wait, WRITER, number))
        else:
            made.append(Planned(token, changes, wait, token if chance.random() < 0.5 else None))
    return tuple(made)


def _change(chance: random.Random) -> Any:
    group, state = chance.choice(GROUPS), chance.randint(0, 9)
    kind = chance.random()
    if kind < 0.75:
        keys = tuple(sorted(chance.sample(range(4), chance.randint(1, 3))))
        return Put(group, keys, state, whole=kind < 0.4)
    keys_gone = (chance.randrange(4),) if kind < 0.85 else None
    return Drop(group, state if chance.random() < 0.6 else None, keys_gone)
