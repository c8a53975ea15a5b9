"""One seed, from its plan to its report: chaos, then healing, then a drain with a deadline, then the audit."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

from bucketmq.api.bucket import BucketApi
from bucketmq.api.queue import QueueApi
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.segments import hint, tail
from bucketmq.procedures.segments.tail import TRIM_GUARD_SECONDS
from bucketmq.procedures.sending import dedup
from bucketmq.procedures.upkeep.stats import QueueStats
from bucketmq.testing.simulation import population
from bucketmq.testing.simulation.auditor import DEAD, Auditor
from bucketmq.testing.simulation.engine import Process, run_alone
from bucketmq.testing.simulation.faults import Faults
from bucketmq.testing.simulation.ledger import Ledger
from bucketmq.testing.simulation.plan import DEDUP_ENTRIES_MAX, LATECOMER, LEVEL, QUEUE, Plan, Tilt, draw
from bucketmq.testing.simulation.workload import Actor, Line, Scene
from bucketmq.testing.simulation.world import EPOCH

CHAOS_SECONDS = 60.0
CHAOS_SECONDS_LONG = 420.0


class Report(population.Report, kw_only=True):
    """Of queues."""

    messages: int
    lost: int
    unexpected: int
    duplicated: int
    recovered: int
    redeliveries: int
    conflicts: int
    pending: int


def run_seed(seed: int, *, faults: Faults | None = None, tilt: Tilt = LEVEL, traced: bool = False) -> Report:
    """Run one seed. The same seed gives the same history, on every machine."""
    with quiet():
        return Run(draw(seed, faults, tilt), traced=traced).report()


@contextmanager
def quiet() -> Iterator[None]:
    """What the library warns about is what the simulator provokes."""
    logger = logging.getLogger("bucketmq")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def near_hints() -> Iterator[None]:
    """Hints every few segments, and a search that begins right before them: a run's logs are short."""
    with (
        patch.object(hint, "HINT_EVERY", 3),
        patch.object(hint, "HINT_EVERY_WALKED", 2),
        patch.object(tail, "HINT_WINDOWS", (2, 6)),
    ):
        yield


class Run(population.Population):
    """The processes of one seed, and what they are to do."""

    plan: Plan

    def __init__(self, plan: Plan, *, traced: bool = False) -> None:
        super().__init__("run", plan, traced=traced)
        self.ledger = Ledger(plan)
        self.auditor = Auditor(plan, self.world, self.ledger)
        self.store.witness = self.auditor
        self.lines = [Line(role) for role in plan.roles]
        self.scene = Scene(plan, self.world, self.ledger, self.auditor, self.lines, self.trouble, [])
        self._line_of: dict[Process, Line] = {}
        self.drain_seconds = 0.0

    def report(self) -> Report:
        with patch.object(dedup, "ENTRIES_MAX", DEDUP_ENTRIES_MAX), near_hints() if self.plan.more else nullcontext():
            return self._report()

    def _report(self) -> Report:
        world, auditor = self.world, self.auditor
        self._found()
        chaos = CHAOS_SECONDS_LONG if self.plan.long else CHAOS_SECONDS
        self.store.faults = self.plan.faults
        for line in self.lines:
            self._play(line)
        world.run(self._chaos_is_over, EPOCH + chaos)
        self.heal()
        drained = self._drain()
        if drained:
            self.stop()
            self._check_stats()
        else:
            auditor.problem(f"not drained in time: {auditor.what_is_left()}")
        auditor.close()
        world.covered["conflict"] += self.store.refused
        return Report(
            **self.told(auditor, self.drain_seconds),
            messages=self.plan.messages,
            lost=len(auditor.lost()) if drained else 0,
            unexpected=auditor.unexpected,
            duplicated=auditor.duplicated,
            recovered=auditor.recovered(),
            redeliveries=auditor.expiries,
            conflicts=self.store.refused,
            pending=world.pending,
        )

    # Phases

    def _found(self) -> None:
        """Make the queue and its subscriptions before anything can go wrong."""
        api: QueueApi[Any] = QueueApi(BucketApi.on(self.store, "", probe=False), QUEUE, dict(self.plan.settings))

        def founding() -> Procedure[None]:
            yield from api.open()
            for name in self.plan.subscriptions:
                yield from api.subscription(name)

        run_alone(self.world, self.store, founding())

    def _play(self, line: Line) -> None:
        """Begin a process for a role."""
        process = self.begin(line.role.name, lambda: self._died(line))
        self._line_of[process] = line
        Actor(self.scene, line, process).start()

    def _died(self, line: Line) -> None:
        """What was under way ends unknown; somebody sends again what may be sent again; a successor comes."""
        actor = Actor(self.scene, line, self.processes[-1])
        for job in line.under_way:
            self.ledger.calls_open -= 1
            if self.ledger.sends[job.tokens[0]].tries == 0:
                line.jobs.appendleft(job)
            else:
                actor.scene_retry(job)
        line.under_way.clear()
        self.world.after(self.successor_seconds(), self._play, line)

    def frozen_seconds(self, process: Process) -> float:
        lease = float(self.plan.settings["lease_seconds"])
        asleep = self.world.between(130.0, 320.0) if self.plan.long else self.world.between(lease, 3 * lease)
        if asleep > TRIM_GUARD_SECONDS:
            for send in (send for job in self._line_of[process].under_way for send in self.ledger.of(job)):
                send.slept = True
        return asleep

    def _chaos_is_over(self) -> bool:
        return self._is_all_sent() and self._is_drained()

    def _is_all_sent(self) -> bool:
        """Whether nothing more will come into the log: no sends, redrives or raises are left."""
        return not self.ledger.calls_open and not any(
            line.jobs or line.batches or "redrive" in line.chores or "raise" in line.chores for line in self.lines
        )

    def _is_drained(self) -> bool:
        return not self.store.creates_in_flight and self.auditor.is_drained() and not self._delayed()

    def _delayed(self) -> list[str]:
        root = f"queues/{QUEUE}/"
        finished = self.auditor.register.finished
        return [key for key in self.store.keys(root + "later/") if key.removeprefix(root) not in finished]

    def _drain(self) -> bool:
        """Let everything end; the clock starts when nothing new is sent any more."""
        world = self.world
        healed = world.now
        sent = world.run(self._is_all_sent, healed + 200)
        began = world.now if sent else healed
        drained = sent and world.run(self._is_drained, began + self._drain_limit())
        self.drain_seconds = world.now - began
        return drained

    def stop(self) -> None:
        """End all processes, and let what is in flight land."""
        super().stop()
        self.world.run(lambda: False, self.world.now + 0.1)

    def _drain_limit(self) -> float:
        settings = self.plan.settings
        limit = float(settings["lease_seconds"]) + 4.0 * 1.2 + 5.0 + 2 * 6.25 + 10.0
        if self.plan.delayed:
            limit += 30.0 + 15.0
        if any("raise" in role.chores for role in self.plan.roles):
            limit += 30.0
        if self.plan.faults.slow:
            limit += 20.0
        return limit

    def _check_stats(self) -> None:
        """The numbers a user is shown are those of the store (I11)."""
        auditor = self.auditor
        api: QueueApi[Any] = QueueApi(BucketApi("", lists_in_order=True, local=False, probe_first=False), QUEUE, {})
        stats: QueueStats = run_alone(self.world, self.store, api.stats())
        left = stats.depth - sum(each.depth for each in stats.subscriptions if each.name == LATECOMER)
        if left or stats.damaged:
            auditor.problem(f"stats of a drained queue: {stats}")
        sent = sum(auditor.log(QUEUE, shard).end for shard in range(auditor.settings.shards))
        if stats.sent != sent:
            auditor.problem(f"stats say that {stats.sent} offsets were used, it was {sent}")
        dead = sum(log.end for (queue, _), log in auditor.logs.items() if queue == DEAD)
        gone = sum(
            watch.head.next - len(watch.states) for (queue, _, _), watch in auditor.heads.items() if queue == DEAD
        )
        if stats.dead != dead - gone:
            auditor.problem(f"stats say {stats.dead} dead letters, there are {dead - gone}")
