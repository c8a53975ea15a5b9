"""What simulated processes do: send, publish in bulk, receive by hand, work, trim, raise, redrive, purge, look.

All of it through `api/`, as the facades do. Everything asked and answered is written into the ledger.
"""

from __future__ import annotations

from collections import deque
from typing import Any, NamedTuple

from bucketmq import outcomes
from bucketmq.api.bucket import BucketApi
from bucketmq.api.queue import QueueApi
from bucketmq.api.subscription import SubscriptionApi
from bucketmq.deliveries import extend_now, settle_now
from bucketmq.errors import BucketMQError, Invalid, LeaseLost
from bucketmq.log import segment
from bucketmq.procedures.bulk.publish import Made, create_part, publish
from bucketmq.procedures.claiming.browse import inline_body
from bucketmq.procedures.claiming.claim import Lot
from bucketmq.procedures.claiming.receipts import write_receipt
from bucketmq.procedures.requests import Call, NewId, Now, Pause, Procedure
from bucketmq.procedures.sending.send import Letters, Sent
from bucketmq.procedures.working.work import Work
from bucketmq.queue.message import Message
from bucketmq.queue.routing import shard_of
from bucketmq.testing.simulation.auditor import Auditor
from bucketmq.testing.simulation.engine import Process
from bucketmq.testing.simulation.ledger import Ledger, Place, body_of, header_of, token_of
from bucketmq.testing.simulation.plan import LATECOMER, QUEUE, Job, Plan, Role
from bucketmq.testing.simulation.world import EPOCH, World

TRIM_SECONDS = 20.0
STATS_SECONDS = 15.0
SENDER_PAUSE_SECONDS = 1.5
"""How often a sender without work looks whether somebody left it a send to repeat."""

LATECOMER_SECONDS = 260.0
TRANSACTION = "nightly"
"""The bulk writer's, and its rival's."""


class Line:
    """A role's jobs, shared by the processes that play it one after the other."""

    def __init__(self, role: Role) -> None:
        self.role = role
        self.jobs = deque(role.jobs)
        self.batches = deque(role.batches)
        self.under_way: list[Job] = []
        self.chores = set(role.chores)
        """Those that are still to be done."""


class Scene(NamedTuple):
    """What every procedure of the workload needs to know."""

    plan: Plan
    world: World
    ledger: Ledger
    auditor: Auditor
    lines: list[Line]
    trouble: list[bool]
    """Whether handlers still misbehave: `[True]` until everything heals."""
    receipts: list[tuple[str, Place]]
    """Receipts that a receiver gave away, for whoever finds them to settle."""

    @property
    def is_troubled(self) -> bool:
        return self.trouble[0]


class Hands(NamedTuple):
    """One message in a receiver's hands."""

    lot: Lot
    offset: int
    attempt: int
    message: Message
    place: Place


class Actor:
    """One process and what it has open."""

    def __init__(self, scene: Scene, line: Line, process: Process) -> None:
        self.scene = scene
        self.line = line
        self.process = process
        self.queue = self._fresh()
        self.bucket = self.queue.queue.bucket
        self.works: list[Work] = []

    def start(self) -> None:
        """Begin everything the role does."""
        role, process = self.line.role, self.process
        for number in range(role.senders):
            process.start(self._sender(), f"sender-{number}")
        for number, (subscription, kind) in enumerate(role.workers):
            how = self._worker if kind == "worker" else self._by_hand
            process.start(how(subscription), f"{subscription}-{kind}-{number}")
        for chore in sorted(self.line.chores):
            process.start(getattr(self, f"_{chore}")(), chore)

    # Sending

    def _sender(self) -> Procedure[None]:
        line, chance = self.line, self.scene.world.chance
        yield from Pause(chance())
        while True:
            if not line.jobs:
                yield from Pause(SENDER_PAUSE_SECONDS)
                continue
            job = line.jobs.popleft()
            line.under_way.append(job)
            self.scene.ledger.calls_open += 1
            yield from Pause(job.gap_seconds if self.scene.is_troubled else 0.0)
            yield from self._send(job)
            line.under_way.remove(job)
            self.scene.ledger.calls_open -= 1

    def _send(self, job: Job) -> Procedure[None]:
        ledger, world = self.scene.ledger, self.scene.world
        for send in ledger.of(job):
            send.begin(world.now)
            send.tries += 1
        bodies = [body_of(token, job) for token in job.tokens]
        wanted = Letters(bodies, list(job.keys), header_of(job), job.dedup_key)
        world.note(self.process.name, f"SEND {job.tokens}")
        queue = self._fresh() if self.line.role.cold else self.queue
        world.covered["cold send"] += queue is not self.queue
        try:
            answers = yield from queue.post(wanted, job.delay_seconds or None, None)
        except BucketMQError as error:
            world.note(self.process.name, f"SENT {job.tokens} unknown: {error.kind}")
            world.covered["send unknown"] += 1
            self.scene_retry(job)
            return
        world.note(self.process.name, f"SENT {job.tokens} ok")
        self._sent(job, answers)

    def _fresh(self) -> QueueApi[Any]:
        """The queue as a process that has just started has it: nothing is known of it."""
        return QueueApi(BucketApi.on(self.process.store, "", probe=False), QUEUE, {})

    def scene_retry(self, job: Job) -> None:
        """A sender that does not know whether a deduplicated send arrived has another one send it again."""
        if job.dedup_key is not None:
            others = [line for line in self.scene.lines if line.role.senders and line is not self.line]
            chosen = others[int(self.scene.world.chance() * len(others))] if others else self.line
            chosen.jobs.append(job)
            self.scene.world.covered["dedup retry"] += 1

    def _sent(self, job: Job, answers: list[Sent]) -> None:
        ledger, world, auditor = self.scene.ledger, self.scene.world, self.scene.auditor
        for token, answer in zip(job.tokens, answers, strict=True):
            send = ledger.sends[token]
            send.answered(world.now)
            send.ids.add(answer.id)
            if answer.duplicate:
                world.covered["dedup takeover"] += 1
            place = answer.shard, answer.offset
            if answer.shard is not None and auditor.where.get(token) != place and not send.slept:
                auditor.problem(f"{token} was answered with {answer}, but lies at {auditor.where.get(token)}")

    # Publishing in bulk

    def _bulk(self) -> Procedure[None]:
        """Publish batch after batch; one whose outcome is unknown is made and published again."""
        line, ledger, world = self.line, self.scene.ledger, self.scene.world
        while line.batches:
            job = line.batches[0]
            yield from Pause(job.gap_seconds if self.scene.is_troubled else 0.0)
            for send in ledger.of(job):
                send.begin(world.now)
            try:
                yield from self._publish(job)
            except BucketMQError as error:
                world.note(self.process.name, f"PUBLISH {job.tokens} unknown: {error}")
                world.covered["publish unknown"] += 1
                yield from Pause(1.0)
                continue
            for send in ledger.of(job):
                send.answered(world.now)
            line.batches.popleft()
        line.chores.discard("bulk")

    def _publish(self, job: Job) -> Procedure[None]:
        assert job.batch is not None
        queue = yield from self.queue.open()
        shards, made, by_shard = queue.settings.shards, [], dict[int, list[Message]]()
        name = yield from NewId()
        for place, (token, key) in enumerate(zip(job.tokens, job.keys, strict=True)):
            message = Message(f"{name}-{place}", "", key, header_of(job), body_of(token, job))
            by_shard.setdefault(shard_of(shards, key, job.batch), []).append(message)
        for shard, messages in sorted(by_shard.items()):
            lines = segment.encode(messages)
            part = yield from create_part(queue, TRANSACTION, f"{job.batch}-{name}-{shard}", lines, len(messages))
            made.append(Made(shard, shards, part, (yield from Now())))
        published = yield from publish(queue, TRANSACTION, job.batch, made)
        self.scene.world.covered["published already" if published.already else "published"] += 1

    # Receiving by hand

    def _by_hand(self, name: str) -> Procedure[None]:
        chance = self.scene.world.chance
        if name == LATECOMER:
            yield from Pause(max(0.0, EPOCH + LATECOMER_SECONDS - self.scene.world.now))
        sub: SubscriptionApi[Any] = SubscriptionApi(self.queue.queue, name)
        while True:
            yield from self._settle_for_others(sub)
            limit = 1 + int(chance() * 4)
            keep_alive = chance() < 0.3
            try:
                received = yield from sub.claim(limit, 5.0, None, keep_alive=keep_alive, fill=chance() < 0.5)
            except BucketMQError as error:
                self.scene.world.note(self.process.name, f"RECEIVE failed: {error}")
                yield from Pause(1.0)
                continue
            self.scene.world.covered["batch of several shards"] += len(received.lots) > 1
            hands = [each for lot in received.lots for each in self._hands(lot, received.bodies)]
            decided = []
            for each in hands:
                decided.append((each, (yield from self._treat(each, may_forget=not keep_alive))))
            for lot in received.lots:
                if chance() < 0.6:
                    yield from self._confirm(lot, [(each.place, kind) for each, kind in decided if each.lot is lot])

    def _settle_for_others(self, sub: SubscriptionApi[Any]) -> Procedure[None]:
        """Ack what another process received, by its receipt."""
        receipts = [each for each in self.scene.receipts if each[1][1] == sub.subscription_name]
        if not receipts:
            return
        self.scene.receipts.remove(receipts[0])
        text, place = receipts[0]
        try:
            lot = yield from sub.restore(text)
            self.scene.ledger.decide(place, "ack")
            lot.ack(place[3])
            yield from settle_now(lot)
        except LeaseLost:
            self.scene.world.covered["receipt too late"] += 1
        except BucketMQError:
            self.scene.world.covered["settle unknown"] += 1
        else:
            self.scene.world.covered["settled by receipt"] += 1
            self.scene.auditor.confirmed(place, "ack")

    def _hands(self, lot: Lot, bodies: dict[str, Any]) -> list[Hands]:
        desk, made = lot.desk, []
        for message, (offset, attempt) in zip(lot.messages, lot.places(), strict=True):
            place = desk.queue.name, desk.subscription, desk.shard, offset, lot.lease
            body = bodies[message.id] if message.id in bodies else inline_body(message)
            self.scene.world.note(self.process.name, f"DELIVERED {place} attempt {attempt}: {token_of(message)}")
            self.scene.auditor.delivered(place, attempt, message, body)
            made.append(Hands(lot, offset, attempt, message, place))
        return made

    def _choose(self, each: Hands) -> str:
        """What becomes of a message; once everything has healed handlers succeed."""
        scene, dice = self.scene, self.scene.world.chance()
        token = token_of(each.message)
        if not scene.is_troubled or each.lot.desk.subscription == LATECOMER:
            return "ack"
        if token in scene.plan.poison:
            return "die"
        for kind, odds in (("retry", 0.10), ("bury", 0.05), ("release", 0.05), ("extend", 0.05)):
            dice -= odds
            if dice < 0:
                return kind
        if scene.plan.calm:
            return "ack"
        return "forget" if dice < 0.02 else "give" if dice < 0.06 else "ack"

    def _handling_seconds(self) -> float:
        chance = self.scene.world.chance
        return chance() * 0.5 if chance() < 0.8 else chance() * 4.0

    def _treat(self, each: Hands, *, may_forget: bool) -> Procedure[str | None]:
        """Handle a message and say what becomes of it; returns what was said, None for nothing."""
        kind = self._choose(each)
        yield from Pause(self._handling_seconds())
        if kind == "die":
            self.scene.world.covered["poison"] += 1
            yield from Call(lambda _: self.process.kill(), None)
        if kind == "extend":
            try:
                yield from extend_now(each.lot, None)
            except BucketMQError as error:
                self.scene.world.covered[f"extend {error.kind}"] += 1
            kind = "ack"
        if each.lot.lost:
            return None
        if kind == "give" and may_forget:
            self.scene.receipts.append((write_receipt(each.lot, each.offset, each.attempt), each.place))
            return None
        if kind == "forget" and may_forget:
            return None
        kind = "ack" if kind in ("forget", "give") else kind
        self.scene.ledger.decide(each.place, kind)
        if kind == "ack":
            each.lot.ack(each.offset)
            self._ack_again(each)
        elif kind == "retry":
            each.lot.retry(each.offset, each.attempt, self.scene.world.chance() * 4.0, "it did not work")
        elif kind == "bury":
            each.lot.bury(each.offset, each.attempt, "never again")
        else:
            each.lot.release(each.offset, each.attempt)
        return kind

    def _ack_again(self, each: Hands) -> None:
        """As another thread would that had looked whether it was settled before this one settled it."""
        try:
            each.lot.ack(each.offset)
        except Invalid:
            self.scene.world.covered["acked twice"] += 1

    def _confirm(self, lot: Lot, decided: list[tuple[Place, str | None]]) -> Procedure[None]:
        """Ask whether the settlements counted."""
        world = self.scene.world
        try:
            yield from settle_now(lot)
        except LeaseLost:
            world.covered["lease lost"] += 1
            return
        except BucketMQError:
            world.covered["settle unknown"] += 1
            return
        for place, kind in decided:
            if kind is not None:
                self.scene.auditor.confirmed(place, kind)

    # A worker

    def _worker(self, name: str) -> Procedure[None]:
        sub: SubscriptionApi[Any] = SubscriptionApi(self.queue.queue, name)
        concurrency = 1 + int(self.scene.world.chance() * 3)
        while True:
            try:
                yield from sub.work(
                    self._handle,
                    self._fetch,
                    self.works.append,
                    concurrency=concurrency,
                    prefetch=None,
                    lease_seconds=None,
                    stop_when_empty=False,
                )
            except BucketMQError:
                pass
            yield from Pause(1.0)  # also when it was stopped: while the bucket closes, work ends as soon as it begins

    def _fetch(self, lot: Lot, bodies: dict[str, Any]) -> list[Hands]:
        hands = self._hands(lot, bodies)
        self.scene.ledger.fetched.update(each.place for each in hands)
        return hands

    def _handle(self, each: Hands) -> Procedure[outcomes.Outcome]:
        self.scene.ledger.fetched.discard(each.place)
        kind = self._choose(each)
        yield from Pause(self._handling_seconds())
        if kind == "die":
            self.scene.world.covered["poison"] += 1
            yield from Call(lambda _: self.process.kill(), None)
        if kind in ("extend", "forget", "give"):
            kind = "ack"
        self.scene.ledger.decide(each.place, kind)
        if kind == "retry" and self.scene.world.chance() < 0.5:
            raise RuntimeError("a handler's own error")
        made: dict[str, outcomes.Outcome] = {
            "ack": outcomes.Done(),
            "retry": outcomes.Retry(),
            "bury": outcomes.Bury(),
            "release": outcomes.Release(),
        }
        return made[kind]

    # Chores

    def _trim(self) -> Procedure[None]:
        while True:
            yield from Pause(TRIM_SECONDS * (0.5 + self.scene.world.chance()))
            try:
                yield from self.queue.trim()
            except BucketMQError:
                self.scene.world.covered["trim failed"] += 1

    def _stats(self) -> Procedure[None]:
        while True:
            yield from Pause(STATS_SECONDS * (0.5 + self.scene.world.chance()))
            try:
                yield from self.queue.stats()
            except BucketMQError:
                self.scene.world.covered["stats failed"] += 1

    def _raise(self) -> Procedure[None]:
        yield from Pause(self.scene.world.chance() * (60.0 if self.scene.plan.long else 12.0))
        while True:
            try:
                yield from self.queue.raise_shards(self.scene.plan.raise_to)
            except BucketMQError:
                yield from Pause(1.0)
            else:
                self.line.chores.discard("raise")
                return

    def _purge(self) -> Procedure[None]:
        """Forget everything, once."""
        world, auditor = self.scene.world, self.scene.auditor
        yield from Pause(2.0 + world.chance() * (120.0 if self.scene.plan.long else 15.0))
        name = self.scene.plan.subscriptions[-1]
        self.line.chores.discard("purge")
        sub: SubscriptionApi[Any] = SubscriptionApi(self.queue.queue, name)
        before = auditor.begin_purge(self.process.name, name)
        try:
            queue = yield from self.queue.open()
            shards = queue.settings.shards
            yield from sub.purge()
        except BucketMQError:
            world.covered["purge failed"] += 1  # and what is under way may still land
        else:
            auditor.end_purge(self.process.name, name, before[:shards])

    def _restart(self) -> Procedure[None]:
        """A process that ends as it should: workers stop, what waits is handed in."""
        yield from Pause(2.0 + self.scene.world.chance() * 15.0)
        self.line.chores.discard("restart")
        for state in self.works:
            state.stop()
        try:
            yield from Pause(1.0)
            yield from self.bucket.close()
        except BucketMQError:
            self.scene.world.covered["close failed"] += 1
        self.scene.world.covered["closed"] += 1
        yield from Call(lambda _: self.process.kill(), None)

    def _redrive(self) -> Procedure[None]:
        dead = self.queue.dead()
        for _ in range(2):
            yield from Pause(3.0 + self.scene.world.chance() * 12.0)
            try:
                redriven = yield from dead.redrive()
            except BucketMQError:
                self.scene.world.covered["redrive failed"] += 1
            else:
                self.scene.world.covered["redrive"] += redriven.redriven
        self.line.chores.discard("redrive")
