"""Planted bugs of tables. Each takes away one thing that commits rely on, and a simulator must notice."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from bucketmq.bucket.port import Object, Unknown, Version, Written
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.tables import commit as committing
from bucketmq.procedures.tables import files
from bucketmq.procedures.verbs import get, put_over
from bucketmq.tables.head import Head, Mark, after_commit
from bucketmq.testing.simulation.faults import Faults, only
from bucketmq.testing.simulation.hunting import Mutant, Plant, swap
from bucketmq.testing.simulation.tables.run import run_seed

SEEDS_MAX = 100
"""How many seeds a mutant may survive before it counts as missed."""


def bug(name: str, plant: Plant, faults: Faults | None = None) -> Mutant:
    """A planted bug, and the weather in which it shows soonest."""
    return Mutant(name, plant, partial(run_seed, faults=faults))


def _forgetful(self: Any, head: Head | None) -> Any:
    """An own write of the head that landed without an answer is not recognised."""
    self._tried = {own: told for own, told in self._tried.items() if head is not None and head.commits[-1:] == (own,)}
    return _waiting(self, head)


def _over_anything(key: str, after: Head, over: Version | None) -> Procedure[object]:
    """The head is replaced whatever has become of it meanwhile."""
    now = yield from get(key)
    return (yield from put_over(key, after, now.version if isinstance(now, Object) else None))


def _half(head: Head, marks: Any, made: Mapping[str, Any], **options: Any) -> Head:
    """Only one of the shards that a commit touches gets its new file."""
    return after_commit(head, marks, dict(list(made.items())[:1]), **options)


def _hopeful(key: str, after: Head, over: Version | None) -> Procedure[object]:
    """No answer is taken for a good one."""
    reply = yield from put_over(key, after, over)
    return Written(Version("guessed"), None) if isinstance(reply, Unknown) else reply


def _never_numbered(self: Head, mark: Mark) -> bool:
    return mark.number is None and mark.id in self.commits


_waiting = committing._Carrying._waiting

MUTANTS: tuple[Mutant, ...] = (
    bug(
        "an own landed commit is not recognised",
        swap(committing._Carrying, "_waiting", _forgetful),
        Faults(lost_reply=0.1),
    ),
    bug("the last head wins", swap(committing, "put_over", _over_anything), only(["slow"])),
    bug("no answer is a good one", swap(committing, "put_over", _hopeful), only(["lost_request"])),
    bug("a commit is half in", swap(committing, "after_commit", _half), Faults()),
    bug("what is newer does not count", swap(files, "_states", lambda *_: {}), Faults()),
    bug("a batch is applied by each of two rivals", swap(Head, "has", _never_numbered), Faults()),
)
