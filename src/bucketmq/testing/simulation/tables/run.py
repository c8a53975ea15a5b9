"""One seed of tables, from its plan to its report: chaos, then healing, a drain, looks for unused files, the audit."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from bucketmq.api.bucket import BucketApi
from bucketmq.api.tables import TableApi
from bucketmq.errors import BucketMQError, Contended, NotFound, Unavailable
from bucketmq.procedures.requests import Pause, Procedure
from bucketmq.procedures.tables import commit as committing
from bucketmq.procedures.tables import files, unused
from bucketmq.procedures.tables.commit import commit
from bucketmq.procedures.tables.opened import Committed
from bucketmq.tables.changes import Change, Delete, Replace, Upsert
from bucketmq.tables.head import Mark
from bucketmq.testing.simulation import population
from bucketmq.testing.simulation.engine import Process, run_alone
from bucketmq.testing.simulation.faults import Faults
from bucketmq.testing.simulation.run import quiet
from bucketmq.testing.simulation.tables.auditor import CLOCKS_SECONDS, Auditor
from bucketmq.testing.simulation.tables.plan import Drop, Plan, Planned, Put, Role, draw
from bucketmq.testing.simulation.world import EPOCH

CHAOS_SECONDS = 400.0
DRAIN_SECONDS = 300.0
FREEZE_SECONDS = 10.0, 190.0
"""From well below the time that files are kept to three times of it."""

KEEP_SECONDS, SWEEP_SECONDS, FRESH_SECONDS = 60.0, 70.0, 30.0
COMPRESSED = (
    (unused, "KEEP_SECONDS", KEEP_SECONDS),
    (committing, "SWEEP_SECONDS", SWEEP_SECONDS),
    (committing, "FRESH_SECONDS", FRESH_SECONDS),
)
"""A minute of a real table is a second here."""

LOOKS = 5
"""So many looks for unused files, when all is well, must have removed all that chaos left."""


class Report(population.Report, kw_only=True):
    """Of tables."""

    commits: int


def run_seed(seed: int, *, faults: Faults | None = None, traced: bool = False) -> Report:
    """Run one seed. The same seed gives the same history, on every machine with the same Arrow."""
    plan = draw(seed, faults)
    with quiet(), compressed(plan):
        return Run(plan, traced=traced).report()


@contextmanager
def compressed(plan: Plan) -> Iterator[None]:
    """Shorter times than in earnest, and smaller files."""
    with ExitStack() as stack:
        for module, name, value in (*COMPRESSED, (files, "SPLIT_BYTES", plan.split_bytes)):
            stack.enter_context(patch.object(module, name, value))
        yield


class Line:
    """What is left to do for a role, whichever of its processes does it."""

    def __init__(self, role: Role) -> None:
        self.role = role
        self.todo = deque(role.commits)
        self.under_way: list[Planned] = []


class Run(population.Population):
    """The processes of one seed, and what they are to do."""

    plan: Plan

    def __init__(self, plan: Plan, *, traced: bool = False) -> None:
        super().__init__("tables", plan, traced=traced)
        self.auditor = Auditor(plan, self.world, self.store)
        self.auditor.keep_seconds = KEEP_SECONDS
        self.store.witness = self.auditor
        self.lines = [Line(role) for role in plan.roles]

    def report(self) -> Report:
        world, auditor = self.world, self.auditor
        self.store.faults = self.plan.faults
        for line in self.lines:
            self._play(line)
        world.run(self._is_done, EPOCH + CHAOS_SECONDS)
        healed = world.now
        self.heal()
        if not world.run(self._is_done, healed + DRAIN_SECONDS):
            left = [each.token for line in self.lines for each in (*line.todo, *line.under_way)]
            auditor.problem(f"not all was committed in time: {left}")
        drained = world.now - healed
        self.stop()
        self._tidy()
        return Report(**self.told(auditor, drained), commits=len(auditor.applied))

    def _table(self) -> TableApi:
        """The table as a process that has just started has it."""
        return TableApi(BucketApi.on(self.store, "", probe=False), "t", **self.plan.shape)

    def _play(self, line: Line) -> None:
        process = self.begin(line.role.name, lambda: self._died(line))
        table = self._table()
        if line.role.does == "reads":
            process.start(self._reads(process, table), "read")
        for _ in range(line.role.hands if line.role.does == "commits" else 0):
            process.start(self._commits(line, table), "commit")

    def _died(self, line: Line) -> None:
        """Whoever named a commit comes back with it. What became of the others nobody knows."""
        again = [each for each in line.under_way if each.id is not None]
        self.world.covered["committed again after a death"] += len(again)
        line.todo.extendleft(reversed(again))
        line.under_way.clear()
        self.world.after(self.successor_seconds(), self._play, line)

    def frozen_seconds(self, process: Process) -> float:
        return self.world.between(*FREEZE_SECONDS)

    # What processes do

    def _commits(self, line: Line, table: TableApi) -> Procedure[None]:
        covered = self.world.covered
        while line.todo:
            planned = line.todo.popleft()
            line.under_way.append(planned)
            yield from Pause(planned.wait_seconds if self.is_troubled else 0.1)
            while True:
                try:
                    done = yield from self._commit(table, planned)
                except (Contended, Unavailable) as error:
                    covered[f"commit {error.kind}"] += 1
                    if planned.id is not None:
                        yield from Pause(1.0)
                        continue
                except BucketMQError as error:
                    self.auditor.problem(f"commit {planned.token} ended with {error!r}")
                else:
                    covered["already applied"] += done.already
                    covered["stale"] += bool(done.stale)
                    covered["numbered"] += planned.number is not None
                    self.auditor.returned(planned, done.stale, already=done.already)
                break
            line.under_way.remove(planned)

    def _commit(self, table: TableApi, planned: Planned) -> Procedure[Committed]:
        guarded = self.plan.shape["newer_by"] is not None
        made = [_change(each, planned.token, guarded=guarded) for each in planned.changes]
        made.append(Upsert([_row(planned.token, 0, 0, planned.token)]))
        mark = None if planned.id is None else Mark(planned.id, planned.number)
        opened = yield from table.open()
        return (yield from commit(opened, made, mark=mark))

    def _reads(self, process: Process, table: TableApi) -> Procedure[None]:
        world, auditor = self.world, self.auditor
        while True:
            yield from Pause(world.between(0.5, 25.0))
            first, began = auditor.version, world.now
            try:
                if world.chance() < 0.5:
                    rows = yield from table.read()
                    auditor.read(process.name, rows, max(1, first), auditor.version)
                    world.covered["read"] += 1
                    continue
                at = yield from table.snapshot()
                yield from Pause(world.between(0.0, KEEP_SECONDS))
                rows = yield from table.read(at=at)
                auditor.read(process.name, rows, at.version, at.version)
                world.covered["snapshot read"] += 1
            except NotFound:
                world.covered["snapshot too old" if first else "no table yet"] += 1
                if first and world.now - began < KEEP_SECONDS - CLOCKS_SECONDS:
                    auditor.problem(f"{process.name}: a snapshot could not be read after {world.now - began:.1f} s")
            except (Contended, Unavailable):
                world.covered["read unavailable"] += 1
            except BucketMQError as error:
                auditor.problem(f"{process.name} read: {error!r}")

    # Phases

    def _is_done(self) -> bool:
        return not any(line.todo or line.under_way for line in self.lines)

    def stop(self) -> None:
        super().stop()
        self.world.run(lambda: not self.store.writes_in_flight, self.world.now + 60.0)

    def _tidy(self) -> None:
        """One commit in every period, until nothing of the chaos is left; then the table is read once more."""
        world, auditor = self.world, self.auditor
        began = world.now
        for number in range(LOOKS):
            planned = Planned(f"end-{number}", (), 0.0)
            auditor.add(planned)
            done = run_alone(world, self.store, self._commit(self._table(), planned))
            auditor.returned(planned, done.stale, already=done.already)
            world.run(lambda: False, world.now + SWEEP_SECONDS + 1.0)
        left = auditor.leftovers(world.now - began)
        if left:
            auditor.problem(f"files that no head names stay: {left}")
        rows = run_alone(world, self.store, self._table().read())
        auditor.read("the end", rows, auditor.version, auditor.version)


def _change(change: Put | Drop, token: str, *, guarded: bool) -> Change:
    if isinstance(change, Drop):
        return Delete([change.group], change.newer if guarded else None, change.keys)
    rows = [_row(change.group, key, change.rev, token) for key in change.keys]
    return Replace(rows, change.group) if change.whole else Upsert(rows)


def _row(group: str, key: int, rev: int, by: str) -> dict[str, Any]:
    return {"doc": group, "id": key, "rev": rev, "by": by}
