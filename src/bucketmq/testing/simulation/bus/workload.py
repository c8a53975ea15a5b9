"""What simulated processes do with a bucket: write, receive notifications, sweep, run rules and watchers, manage rules.

All of it through `api/`, as the facades do. Each process takes over where the one before it died.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, NamedTuple

from bucketmq.api.bucket import BucketApi
from bucketmq.api.opening import Lent, Opening
from bucketmq.changes import ChangeApi, ChangesApi
from bucketmq.errors import BucketMQError, Invalid, NotFound
from bucketmq.events.event import ObjectEvent
from bucketmq.outcomes import Retry
from bucketmq.procedures.objects.batches import Failed
from bucketmq.procedures.objects.move import Move
from bucketmq.procedures.objects.put import Put
from bucketmq.procedures.objects.sweep import sweep
from bucketmq.procedures.requests import Delete, Pause, Procedure
from bucketmq.procedures.rules.fan_in import Complete
from bucketmq.testing.simulation.bus.auditor import FOREIGN, Auditor, full_key, post_of
from bucketmq.testing.simulation.bus.network import SimNetwork
from bucketmq.testing.simulation.bus.plan import AGAIN_SECONDS, CHAOS_SECONDS, LEASE_SECONDS, OUTCOMES, Plan, Step
from bucketmq.testing.simulation.bus.provider import Provider
from bucketmq.testing.simulation.bus.scenario import PAIRS, ROUTER, TEMP, temp_spec, watchers
from bucketmq.testing.simulation.engine import Process
from bucketmq.testing.simulation.store import SimStore
from bucketmq.testing.simulation.world import EPOCH, World

TEMP_SECONDS = CHAOS_SECONDS / 3
"""When the rule that does not stay as it is is made, paused, removed or replayed."""

SLOW_HANDLER_SECONDS = 2.5 * LEASE_SECONDS
HASTE_SECONDS = 0.3
"""Between the steps that are left once everything has healed."""


class Scene(NamedTuple):
    """What every procedure of the workload needs to know."""

    plan: Plan
    world: World
    store: SimStore
    network: SimNetwork
    provider: Provider
    auditor: Auditor
    trouble: list[bool]
    """`[True]` until everything heals."""

    @property
    def is_troubled(self) -> bool:
        return self.trouble[0]

    def is_ready(self) -> bool:
        """Whether the watchers' rules are there: they begin with what comes after that."""
        wanted = (ROUTER, self.plan.moderation), (PAIRS, self.plan.fan_in)
        return all(name in self.auditor.rules for name, needed in wanted if needed)


class Line:
    """One role: what is left to do of it, shared by the processes that play it one after the other."""

    def __init__(self, name: str, kind: str, steps: tuple[Step, ...] = ()) -> None:
        self.name = name
        self.kind = kind
        self.steps = deque(steps)
        self.open = 0
        """Steps that are under way."""
        self.chore_done = kind != "admin"

    def take(self, at_most: int) -> list[Step]:
        """The next step, and others of the same verb that may be taken with it: the order of a key's steps stays."""
        verb = self.steps[0].verb
        taken: list[Step] = []
        left: deque[Step] = deque()
        keys: set[str] = set()
        while self.steps:
            step = self.steps.popleft()
            fits = step.verb == verb != "again" and len(taken) < at_most and step.key not in keys
            (taken if fits or not taken else left).append(step)
            keys.add(step.key)
        self.steps = left
        return taken


def _change(bucket: Opening, _: object, event: ObjectEvent, attempt: int) -> ChangeApi:
    return ChangeApi(bucket, event, attempt)


class Actor:
    """One process and the bucket it has open."""

    def __init__(self, scene: Scene, line: Line, process: Process) -> None:
        self.scene = scene
        self.line = line
        self.process = process
        self.api = BucketApi.on(scene.store, scene.plan.prefix, probe=False, lent=Lent(change=_change))

    def start(self) -> None:
        match self.line.kind:
            case "receiver":
                self.scene.provider.receiver = self.process, self.api
            case kind:
                self.process.start(getattr(self, f"_{kind}")(), kind)

    # Writers

    def _writer(self) -> Procedure[None]:
        line = self.line
        while not self.scene.is_ready():
            yield from Pause(0.2)
        while True:
            if not line.steps:
                yield from Pause(2.0)
                continue
            steps = line.take(self.scene.plan.together)
            step, what = steps[0], " ".join(f"{step.verb} {step.key} {step.target}" for step in steps)
            line.open += len(steps)
            yield from Pause(step.wait_seconds if self.scene.is_troubled else HASTE_SECONDS)
            self.scene.world.note(self.process.name, f"BEGINS {what}")
            try:
                yield from self._step(step) if len(steps) == 1 else self._steps(steps)
            except BucketMQError as error:
                self.scene.world.covered[f"{step.verb} {error.kind}"] += 1
                self.scene.world.note(self.process.name, f"{what} failed: {error}")
            else:
                self.scene.world.note(self.process.name, f"ENDED {what}")
            line.open -= len(steps)

    def _step(self, step: Step) -> Procedure[None]:
        if step.verb == "delete":
            self.scene.auditor.meant.add((self.process.name, step.key))
            yield from self.api.delete(step.key)
        elif step.verb == "move":
            yield from self.api.move(step.key, step.target)
        else:
            body = step.body.encode()
            if step.verb == "again":
                body = yield from self._same(step.key, body)
            yield from self.api.put(step.key, body, content_type="text/plain")

    def _steps(self, steps: list[Step]) -> Procedure[None]:
        """The same verb on several objects, together."""
        covered, verb = self.scene.world.covered, steps[0].verb
        outcomes: Sequence[object]
        match verb:
            case "delete":
                self.scene.auditor.meant |= {(self.process.name, step.key) for step in steps}
                outcomes = yield from self.api.delete_many([step.key for step in steps])
            case "move":
                outcomes = yield from self.api.move_many([Move(step.key, step.target) for step in steps])
            case _:
                objects = [Put(step.key, step.body.encode(), content_type="text/plain") for step in steps]
                outcomes = yield from self.api.put_many(objects)
        covered[f"{verb} together"] += 1
        for outcome in outcomes:
            covered[f"{verb} together {outcome.kind if isinstance(outcome, Failed) else 'done'}"] += 1

    def _same(self, key: str, otherwise: bytes) -> Procedure[bytes]:
        """The bytes that are there, once they have been there for a while."""
        while (state := self.scene.auditor.history.current(key)) is not None:
            age = self.scene.world.now - state.landed_at
            if age > AGAIN_SECONDS:
                self.scene.world.covered["same bytes again"] += 1
                return state.body
            yield from Pause(AGAIN_SECONDS - age + 0.1)
        return otherwise

    # Sweepers, notifiers, watchers

    def _sweeper(self) -> Procedure[None]:
        world = self.scene.world
        while True:
            yield from Pause(world.between(1.0, 12.0))
            if not self.scene.is_troubled:
                return
            try:
                swept = yield from sweep((yield from self.api.open()), range_keys=self.scene.plan.range_keys)
                world.covered["sweep resumed"] += swept.resumed
                world.covered["sweep in several ranges"] += swept.ranges > 1
            except BucketMQError as error:
                world.covered[f"sweep {error.kind}"] += 1

    def _notifier(self) -> Procedure[None]:
        while True:
            try:
                yield from self.api.notify()
            except BucketMQError:
                yield from Pause(1.0)

    def _watcher(self) -> Procedure[None]:
        route: Any = self._route if self.scene.plan.together == 1 else self._route_together
        made = watchers(self.scene.plan, route, self._complete)  # type: ignore[arg-type]
        while True:
            try:
                yield from self.api.run_chosen(made)
            except BucketMQError as error:
                self.scene.world.covered[f"watch {error.kind}"] += 1
                yield from Pause(1.0)

    def _stumbles(self) -> bool:
        """Whether a handler raises here."""
        odds = self.scene.plan.weather.handler_error if self.scene.is_troubled else 0.0
        if not odds or self.scene.world.chance() >= odds / 2:
            return False
        self.scene.world.faults["handler_error"] += 1
        return True

    def _route(self, change: ChangeApi) -> Procedure[None]:
        """The router: where a post goes is written in it."""
        if change.kind == "deleted":
            return
        if self._stumbles():
            raise RuntimeError("the router stumbled before it did anything")
        yield from change.bytes()
        try:
            yield from change.move((yield from self._target(change)), replace=self.scene.plan.moving == "replace")
        except Invalid:
            yield from self._put_aside(change)
        if self._stumbles():
            raise RuntimeError("the router stumbled after it did everything")

    def _route_together(self, changes: ChangesApi[ChangeApi]) -> Procedure[list[object]]:
        """The router, with many posts in hand."""
        if self._stumbles():
            raise RuntimeError("the router stumbled before it did anything")
        answers: dict[ChangeApi, object] = dict.fromkeys(changes)
        targets: dict[ChangeApi, str] = {}
        read = yield from changes.get_many()
        for change, found in zip(changes, read, strict=True):
            if change.kind == "deleted" or change.is_over:
                continue
            if isinstance(found, Failed):
                answers[change] = Retry(found.reason)
            else:
                targets[change] = yield from self._target(change)
        moved = yield from changes.move_many(targets, replace=self.scene.plan.moving == "replace")
        for change, outcome in zip(targets, moved, strict=True):
            if not isinstance(outcome, Failed) or change.is_over:
                continue
            if outcome.kind != Invalid.kind:
                answers[change] = Retry(outcome.reason)
                continue
            try:
                yield from self._put_aside(change)
            except BucketMQError as error:
                answers[change] = None if change.is_over else Retry(str(error))
        self.scene.world.covered["posts routed together"] += len(targets) > 1
        if self._stumbles():
            raise RuntimeError("the router stumbled after it did everything")
        return list(answers.values())

    def _target(self, change: ChangeApi) -> Procedure[str]:
        verdict = post_of((yield from change.bytes())).verdict
        outcome = verdict if verdict in OUTCOMES else "needs-review"
        return f"{outcome}/{_aside(change) if self.scene.plan.moving == 'versioned' else change.name}"

    def _put_aside(self, change: ChangeApi) -> Procedure[None]:
        """The way is not free: go elsewhere, or nowhere if these very bytes are there already."""
        self.scene.world.covered["another object in the way"] += 1
        target = f"needs-review/{_aside(change)}"
        try:
            yield from change.move(target)
        except Invalid:
            there = yield from self.api.get(target)
            if there.version != change.version:
                raise
            self.scene.auditor.meant.add((self.process.name, change.key))
            yield from change.delete()

    def _complete(self, complete: Complete) -> Procedure[None]:
        yield from Pause(SLOW_HANDLER_SECONDS if self.scene.plan.slow_sets else 0.0)
        if self._stumbles():
            raise RuntimeError("the handler of a set stumbled")
        name = complete.values["set"]
        auditor = self.scene.auditor
        auditor.fired.setdefault(name, []).append((self.scene.world.now, complete.missing))
        self.scene.world.note(self.process.name, f"FIRED {name} without {complete.missing}")

    # Somebody who manages rules

    def _admin(self) -> Procedure[None]:
        world, line = self.scene.world, self.line
        yield from Pause(max(0.0, EPOCH + TEMP_SECONDS - world.now) if self.scene.is_troubled else 0.0)
        while not line.chore_done:
            try:
                yield from getattr(self, f"_{self.scene.plan.temp}")()
            except BucketMQError as error:
                world.note(self.process.name, f"{self.scene.plan.temp} failed: {error}")
                yield from Pause(1.0)
            else:
                line.chore_done = True
                world.covered[f"rule {self.scene.plan.temp}"] += 1

    def _late(self) -> Procedure[None]:
        yield from self._added(None)

    def _existing(self) -> Procedure[None]:
        yield from self._added("docs/")

    def _added(self, existing: str | None) -> Procedure[None]:
        auditor, spec = self.scene.auditor, temp_spec(self.scene.plan)
        try:
            yield from self.api.rules.get(TEMP)
        except NotFound:
            auditor.asked.setdefault(TEMP, self.scene.world.now)
            yield from self.api.rules.write(spec.rule, existing=existing)
        else:  # by an earlier attempt, which may have died before it was through
            if existing is not None:
                yield from self.api.rules.replay(TEMP, prefix=existing)
        auditor.began[TEMP] = self.scene.world.now
        if existing is not None:
            auditor.existing.add(TEMP)

    def _pause(self) -> Procedure[None]:
        yield from self.api.rules.pause(TEMP, "the endpoint is being rebuilt")

    def _remove(self) -> Procedure[None]:
        try:
            yield from self.api.rules.remove(TEMP)
        except NotFound:
            pass  # by an earlier attempt

    def _replay(self) -> Procedure[None]:
        if self.scene.world.chance() < 0.5:
            yield from self.api.rules.replay(TEMP, prefix="docs/")
        else:
            yield from self.api.rules.replay(TEMP, since=EPOCH - 1, rate_per_second=2.0)


def _aside(change: ChangeApi) -> str:
    """A name that only this state of this object has."""
    return f"{change.name.removesuffix('.json')}.{(change.version or '')[:12]}.json"


class Foreigners:
    """Programs that know nothing of us and write plainly."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.steps = deque(scene.plan.foreign)

    def start(self) -> None:
        if self.scene.is_ready():
            self._next()
        else:
            self.scene.world.after(0.2, self.start)

    def _next(self) -> None:
        if self.steps:
            wait = self.steps[0].wait_seconds if self.scene.is_troubled else HASTE_SECONDS
            self.scene.world.after(wait, self._do)

    def _do(self) -> None:
        step = self.steps.popleft()
        scene = self.scene
        state = scene.auditor.history.current(step.key)
        if step.verb == "again" and state is not None:
            age = scene.world.now - state.landed_at
            if age <= AGAIN_SECONDS:
                self.steps.appendleft(step)
                scene.world.after(AGAIN_SECONDS - age + 0.1, self._do)
                return
        self.put(step, state.body if step.verb == "again" and state is not None else None)
        self._next()

    def put(self, step: Step, same: bytes | None = None) -> None:
        """Write or delete, now."""
        scene = self.scene
        key = full_key(scene.plan, step.key)
        scene.world.note(FOREIGN, f"{step.verb} {step.key} {step.body}")
        if step.verb == "delete":
            scene.store.who = FOREIGN
            scene.store.perform(Delete(key))
        else:
            scene.world.covered["same bytes again"] += same is not None
            scene.store.overwrite(FOREIGN, key, step.body.encode() if same is None else same)
