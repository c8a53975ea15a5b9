"""One seed of the event bus, from its plan to its report: chaos, then healing, a last sweep, a drain, the audit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from bucketmq.api.bucket import BucketApi
from bucketmq.errors import BucketMQError
from bucketmq.procedures.objects import recover
from bucketmq.procedures.objects.notes import Note, decode_note
from bucketmq.procedures.objects.sweep import Swept, sweep
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.rules import notifier
from bucketmq.procedures.rules import registry as rules
from bucketmq.testing.simulation import population
from bucketmq.testing.simulation.bus.auditor import Auditor, full_key
from bucketmq.testing.simulation.bus.network import SimNetwork
from bucketmq.testing.simulation.bus.plan import (
    CHAOS_SECONDS,
    LEVEL,
    VICTIM_ODDS,
    Plan,
    Step,
    Tilt,
    draw,
)
from bucketmq.testing.simulation.bus.provider import Provider
from bucketmq.testing.simulation.bus.scenario import DEADLINE_SECONDS, TEMP, specs, temp_spec
from bucketmq.testing.simulation.bus.spies import spying
from bucketmq.testing.simulation.bus.workload import Actor, Foreigners, Line, Scene
from bucketmq.testing.simulation.engine import Process, run_alone
from bucketmq.testing.simulation.run import quiet
from bucketmq.testing.simulation.store import LATE_SECONDS, SLOW_SECONDS, TIMEOUT_SECONDS
from bucketmq.testing.simulation.world import EPOCH

FREEZE_SECONDS = 4.0, 20.0

COMPRESSED = (
    (recover, "NOTE_SECONDS", 10.0),
    (notifier, "NOTES_SECONDS", 5.0),
    (notifier, "TIDY_SECONDS", 40.0),
    (rules, "REMOVED_SECONDS", 12.0),
)
"""A minute of the real bus is seconds here: a run of minutes would mostly watch workers poll."""

NOTICE_SECONDS = 10.0
"""Within this time, once all is well, whoever runs rules knows that one is paused or removed."""

NOTES_SECONDS = 18.0
LANDED_SECONDS = sum(span[1] for span in (LATE_SECONDS, TIMEOUT_SECONDS))
QUIET_SECONDS = 9.0
"""Longer than an idle worker sleeps: if nothing happened for so long, nothing will."""

DRAIN_SECONDS = 240.0
AUDIT_EVERY = 5
"""One seed in so many ends with the audit that users can run."""

PROBE = "docs/probe"


class Report(population.Report, kw_only=True):
    """Of the event bus."""

    events: int
    """Those in the log."""
    arrivals: int
    repeated: int
    """Arrivals beyond the first of an event at a rule."""


def run_seed(seed: int, *, tilt: Tilt = LEVEL, traced: bool = False) -> Report:
    """Run one seed. The same seed gives the same history, on every machine."""
    run = Run(draw(seed, tilt), traced=traced)
    with quiet(), compressed(), spying(run.world.covered):
        return run.report()


@contextmanager
def compressed() -> Iterator[None]:
    """Shorter times than in earnest."""
    with ExitStack() as stack:
        for module, name, value in COMPRESSED:
            stack.enter_context(patch.object(module, name, value))
        yield


class Run(population.Population):
    """The processes of one seed, the store they share, and the world around."""

    plan: Plan
    fates_max = 5

    def __init__(self, plan: Plan, *, traced: bool = False) -> None:
        super().__init__("bus", plan, renames=plan.renames, copies=plan.copies, traced=traced)
        self.provider = Provider(plan, self.world)
        self.auditor = Auditor(plan, self.world, self.store, self.provider)
        self.store.witness = self.auditor
        self.network = SimNetwork(plan, self.world, self.auditor.posted)
        self.scene = Scene(plan, self.world, self.store, self.network, self.provider, self.auditor, self.trouble)
        self.foreigners = Foreigners(self.scene)
        self.lines = self._lines()
        self.healed_at = 0.0

    def _lines(self) -> list[Line]:
        plan = self.plan
        lines = [Line(f"writer{number}", "writer", steps) for number, steps in enumerate(plan.own)]
        lines += [Line("receiver", "receiver")] if plan.notifies else []
        lines += [Line(f"sweeper{number}", "sweeper") for number in range(plan.sweepers)]
        lines += [Line(f"notifier{number}", "notifier") for number in range(plan.notifiers)]
        watched = plan.moderation or plan.fan_in
        lines += [Line(f"watcher{number}", "watcher") for number in range(plan.watchers if watched else 0)]
        return lines + ([Line("admin", "admin")] if plan.temp else [])

    def report(self) -> Report:
        world, auditor = self.world, self.auditor
        self._found()
        self.store.faults = self.plan.faults
        for line in self.lines:
            self._play(line)
        self.foreigners.start()
        world.run(lambda: False, EPOCH + CHAOS_SECONDS)
        self.heal()
        self._finish()
        auditor.check_reported(self._under_way())
        gone = self._gone()
        while run_alone(self.world, self.store, self._sweep()).resumed:
            pass  # it went on where another had died: what changed before that place is seen by the next one
        if not world.run(self._is_quiet, world.now + DRAIN_SECONDS):
            auditor.problem(f"not quiet in time: {self._what_is_left()}")
        self.stop()
        if self.plan.seed % AUDIT_EVERY == 0:
            self._check_audit()
        auditor.close(gone, self._old_notes())
        return Report(
            **self.told(auditor, world.now - self.healed_at),
            events=auditor.events,
            arrivals=sum(auditor.arrivals.values()),
            repeated=sum(count - 1 for count in auditor.arrivals.values()),
        )

    # Phases

    def _api(self) -> BucketApi:
        plan = self.plan
        return BucketApi(
            plan.prefix,
            lists_in_order=True,
            local=False,
            probe_first=False,
            renames=plan.renames,
            copies=plan.copies,
            exact_versions=not plan.content_versions,
        )

    def _found(self) -> None:
        """Make the rules that are there from the beginning, before anything can go wrong."""
        auditor, made = self.auditor, specs(self.plan)
        if self.plan.temp:
            auditor.specs[TEMP] = temp_spec(self.plan)
            if self.plan.temp not in ("late", "existing"):
                made.append(auditor.specs[TEMP])
        api = self._api()
        for spec in made:
            auditor.specs[spec.rule.name] = spec
            auditor.began[spec.rule.name] = EPOCH
            run_alone(self.world, self.store, api.rules.write(spec.rule))

    def _play(self, line: Line) -> None:
        """Begin a process for a role."""
        process = self.begin(line.name, lambda: self._died(line))
        process.http = self.network
        Actor(self.scene, line, process).start()

    def _died(self, line: Line) -> None:
        line.open = 0
        self.world.after(self.successor_seconds(), self._play, line)

    def odds(self, process: Process) -> float:
        victims = self.plan.victims
        if not process.name.startswith(victims):
            return 0.0
        return VICTIM_ODDS if victims else 1.0

    def frozen_seconds(self, process: Process) -> float:
        return self.world.between(*FREEZE_SECONDS)

    def heal(self) -> None:
        self.network.heal()
        self.provider.heal()
        super().heal()
        self.healed_at = self.world.now

    def _finish(self) -> None:
        """Let all writers end, check that paused rules rest, and wake everybody up."""
        world, auditor = self.world, self.auditor
        if not world.run(self._is_written, world.now + 200):
            auditor.problem(f"writers did not come to an end: {self._what_is_left()}")
        resting = self.plan.temp in ("pause", "remove")
        if self.plan.temp or self.plan.documents:
            if resting:
                world.run(lambda: False, max(world.now, self._answered_at()) + NOTICE_SECONDS)
            self.foreigners.put(Step("put", PROBE, 0.0, "is anybody there"))
            world.run(lambda: False, world.now + (NOTICE_SECONDS if resting else 0.0))
        if resting and any(name == TEMP and key == PROBE for name, key, _ in auditor.arrived_at):
            auditor.problem(f"the rule {TEMP} was told to {self.plan.temp}, and still delivers")
        if self.network.said_410:
            world.run(lambda: False, max(world.now, self._answered_at() + 5.0))  # who was told so pauses the rule
        for name, rule in sorted(auditor.rules.items()):
            if rule.paused is not None and rule.removed_at is None:
                world.covered["paused by 410"] += "410" in rule.paused
                self._resume(name)
        if self._notes():
            world.run(lambda: not self._notes(), max(world.now, self._answered_at()) + NOTES_SECONDS)
        if not world.run(lambda: self.provider.in_flight == 0, world.now + 100):
            auditor.problem("notifications are still under way")

    def _sweep(self) -> Procedure[Swept]:
        return (yield from sweep((yield from self._api().open()), range_keys=self.plan.range_keys))

    def _resume(self, name: str) -> None:
        try:
            run_alone(self.world, self.store, self._api().rules.resume(name))
        except BucketMQError as error:
            self.auditor.problem(f"the rule {name} cannot be resumed: {error}")

    def _is_written(self) -> bool:
        return (
            not self.foreigners.steps
            and self._is_landed()
            and all(not line.steps and not line.open and line.chore_done for line in self.lines)
        )

    def _is_landed(self) -> bool:
        """Whether what was written while things went wrong has landed: what is written now lands at once."""
        return self.world.now - self.healed_at > LANDED_SECONDS or not self.store.writes_in_flight

    def _notes(self) -> list[str]:
        return self.store.keys(full_key(self.plan, "inventory/notes/"))

    def _old_notes(self) -> list[Note]:
        """Notes that whoever recovers them has had time to see."""
        return [note for note, age in self._noted() if age > NOTES_SECONDS]

    def _under_way(self) -> set[str]:
        """The writes that somebody is just at: they are reported next."""
        return {note.write for note, age in self._noted() if age <= NOTES_SECONDS}

    def _noted(self) -> list[tuple[Note, float]]:
        """Each write that a note announces, and how old the note is."""
        found = [(key, self.store.objects[key]) for key in self._notes()]
        read = [(decode_note(each.body, key), self.world.now - each.stored_at) for key, each in found]
        return [(one, age) for note, age in read for one in ((note,) if isinstance(note, Note) else note.writes)]

    def _gone(self) -> set[str]:
        """What the last inventory has and the bucket has not: the last sweep must report it."""
        current = self.auditor.history.current
        return {key for key in self.auditor.inventoried() if current(key) is None}

    def _is_quiet(self) -> bool:
        auditor = self.auditor
        if self.world.now < max(auditor.active_at, self._answered_at()) + QUIET_SECONDS:
            return False
        if self.network.in_flight or self.provider.in_flight:
            return False
        return auditor.is_idle() and not self._due()

    def _answered_at(self) -> float:
        """By when everything is answered that was asked before the healing."""
        return self.healed_at + (SLOW_SECONDS[1] if self.plan.faults.slow else 0.0)

    def _due(self) -> bool:
        """Whether a set's deadline is still to come."""
        if not (self.plan.fan_in and self.plan.deadline):
            return False
        laters = self.store.keys(full_key(self.plan, "queues/events/later/"))
        soon = int(self.world.now + 2 * DEADLINE_SECONDS)
        return any(int(key.split("/")[-2]) < soon for key in laters)

    def _check_audit(self) -> None:
        """The audit that users can run finds nothing missed where nothing is."""
        for name in sorted(self.auditor.specs):
            rule = self.auditor.rules.get(name)
            if rule is not None and rule.removed_at is None:
                audited = run_alone(self.world, self.store, self._api().audit(name))
                self.world.covered["audited"] += 1
                if not audited.complete or audited.missed:
                    self.auditor.problem(f"the audit of {name} says that it missed {audited.missed_keys}")
                return

    def _what_is_left(self) -> str:
        busy = [name for name, busy in self.auditor.busy.items() if busy]
        steps = {line.name: len(line.steps) + line.open for line in self.lines if line.steps or line.open}
        return f"heads {busy}, steps {steps}, foreign {len(self.foreigners.steps)}, calls {self.provider.in_flight}"

    def stop(self) -> None:
        super().stop()
        self.world.run(lambda: False, self.world.now + 0.1)
