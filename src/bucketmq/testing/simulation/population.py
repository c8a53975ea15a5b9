"""What the runs of all simulators share: processes that are begun with clocks that may be wrong, killed and frozen by
chance, healed and ended; the store they share; and what a seed's report says of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

from bucketmq.testing.simulation.engine import Process
from bucketmq.testing.simulation.faults import NONE
from bucketmq.testing.simulation.store import SimStore
from bucketmq.testing.simulation.world import EPOCH, World

PROBLEMS_MAX = 20
FATES_MAX = 6
"""No more crashes and freezes than this in one run: later ones show nothing new and take long."""


class Report(msgspec.Struct, kw_only=True):
    """What one seed did and whether anything was wrong."""

    seed: int
    problems: list[str]
    requests: int
    virtual_seconds: float
    drain_seconds: float
    faults: dict[str, int] = {}
    covered: dict[str, int] = {}
    trace: list[str] | None = None

    @property
    def digest(self) -> str:
        """Of a traced run: equal for equal histories."""
        return hashlib.blake2b("\n".join(self.trace or []).encode(), digest_size=16).hexdigest()


class Auditor:
    """Says what should never be: the base of every simulator's own."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.problems: list[str] = []

    def problem(self, text: str) -> None:
        self.world.note("AUDIT", text)
        if len(self.problems) < PROBLEMS_MAX and text not in self.problems:
            self.problems.append(text)


class Population:
    """The processes of one seed and the store they share. Faults happen while `store.faults` says so."""

    fates_max = FATES_MAX

    def __init__(self, name: str, plan: Any, *, renames: bool = False, copies: bool = False, traced: bool) -> None:
        self.plan = plan
        self.world = World(f"{name} {plan.seed}", traced=traced)
        self.store = SimStore(
            self.world,
            lists_in_order=plan.lists_in_order,
            answer_stamps=plan.answer_stamps,
            content_versions=plan.content_versions,
            whole_seconds=plan.whole_seconds,
            renames=renames,
            copies=copies,
        )
        self.processes: list[Process] = []
        self.trouble = [True]
        """Whether things still go wrong, shared with those who act on it."""
        self._skew = plan.faults.skew
        self._fates = 0

    @property
    def is_troubled(self) -> bool:
        return self.trouble[0]

    def begin(self, role: str, on_death: Callable[[], None]) -> Process:
        """A new process for a role."""
        world = self.world
        skewed = world.chance() < self._skew * 2 and self.is_troubled
        skew = world.between(-5.0, 5.0) if skewed else 0.0
        if skewed:
            world.faults["skew"] += 1
        process = Process(world, self.store, f"{role}.{len(self.processes) + 1}", skew_seconds=skew)
        process.on_request = self.fate
        process.on_death = lambda _: on_death()
        self.processes.append(process)
        return process

    def successor_seconds(self) -> float:
        """How long it takes until another process takes the place of one that died."""
        return self.world.between(0.1, 8.0) if self.is_troubled else 0.0

    def odds(self, process: Process) -> float:
        """How much likelier than planned this process is to die or freeze."""
        return 1.0

    def frozen_seconds(self, process: Process) -> float:
        """How long it sleeps when it freezes."""
        raise NotImplementedError

    def fate(self, process: Process) -> str | None:
        """Whether a process dies or freezes at this request."""
        faults, world = self.store.faults, self.world
        odds = 0.0 if faults is NONE or self._fates >= self.fates_max else self.odds(process)
        if not odds:
            return None
        if faults.crash and world.chance() < faults.crash * odds:
            self._fates += 1
            world.faults["crash"] += 1
            return "before" if world.chance() < 0.5 else "after"
        if faults.freeze and world.chance() < faults.freeze * odds:
            self._fates += 1
            world.faults["freeze"] += 1
            process.freeze(self.frozen_seconds(process))
        return None

    def heal(self) -> None:
        """From now on nothing goes wrong."""
        self.world.note("HEAL", "")
        self.store.faults = NONE
        self.trouble[0] = False
        for process in self.processes:
            process.thaw()

    def stop(self) -> None:
        """End all processes."""
        for process in self.processes:
            process.on_death = lambda _: None
            process.kill()

    def told(self, auditor: Auditor, drain_seconds: float) -> dict[str, Any]:
        """What the report of every simulator has, with what processes died of."""
        for process in self.processes:
            if process.broken is not None:
                auditor.problem(f"{process.name}: a procedure ended with {process.broken!r}")
        world = self.world
        return {
            "seed": self.plan.seed,
            "problems": auditor.problems,
            "requests": self.store.requests,
            "virtual_seconds": world.now - EPOCH,
            "drain_seconds": drain_seconds,
            "faults": dict(world.faults),
            "covered": dict(world.covered),
            "trace": world.lines,
        }
