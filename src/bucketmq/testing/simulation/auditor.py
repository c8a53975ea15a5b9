"""The auditor: sees every object the moment it lands, and says what should never be.

Heads are compared with what they were before, message by message, so that every move in the machine's table is seen
and every other one is reported. Segments are checked to be dense. At the end the books are balanced against the ledger.

The report uses Jepsen's words: *lost* (sent and never settled), *unexpected* (came from nowhere), *duplicated* (in the
log twice), *recovered* (the outcome of the send was unknown, and it is there).
"""

from __future__ import annotations

from typing import Any

import msgspec

from bucketmq.errors import BucketMQError, NotFound
from bucketmq.log import segment as lines
from bucketmq.log.documents import Dedup, Later, Trim, decode, decode_head, decode_settings
from bucketmq.log.layout import base_of
from bucketmq.queue.claiming import LOST_WORKER
from bucketmq.queue.head import Head, Target
from bucketmq.queue.message import Message
from bucketmq.queue.settings import DEAD_SUFFIX, Settings
from bucketmq.testing.simulation import population
from bucketmq.testing.simulation.ledger import Ledger, Place, Send, body_of, token_of
from bucketmq.testing.simulation.plan import LATECOMER, QUEUE, Plan
from bucketmq.testing.simulation.world import World

DEAD = QUEUE + DEAD_SUFFIX


class State(msgspec.Struct, frozen=True):
    """How one offset stands in one head."""

    name: str
    attempts: int
    failed: tuple[str, ...]
    lease: int = 0
    target: Target | None = None


class ShardWatch:
    """The log of one shard as it grew."""

    def __init__(self) -> None:
        self.messages: dict[int, Message] = {}
        self.bases: dict[int, int] = {}
        """The base of the segment each offset lies in."""
        self.end = 0
        self.mark = 0


class HeadWatch:
    """One head as it changed."""

    def __init__(self, queue: str, subscription: str, shard: int) -> None:
        self.queue = queue
        self.subscription = subscription
        self.shard = shard
        self.head = Head(0, 0)
        self.written = False
        self.states: dict[int, State] = {}
        self.claims: dict[int, int] = {}
        """For each offset how often it was claimed, releases taken off."""

    def place(self, offset: int, lease: int) -> Place:
        return self.queue, self.subscription, self.shard, offset, lease

    def is_over(self, offset: int) -> bool:
        """Whether the offset is settled, or on its way to the dead letters."""
        state = self.states.get(offset)
        return offset < self.head.next if state is None else state.name == "moving"


class Auditor(population.Auditor):
    """A `store.Witness` that keeps score."""

    def __init__(self, plan: Plan, world: World, ledger: Ledger) -> None:
        super().__init__(world)
        self.plan = plan
        self.ledger = ledger
        self.settings = Settings()
        self.logs: dict[tuple[str, int], ShardWatch] = {}
        self.heads: dict[tuple[str, str, int], HeadWatch] = {}
        self.where: dict[str, tuple[int, int]] = {}
        """For each token the shard and offset where it was first sent to."""
        self.redriven = 0
        self.expiries = 0
        self.ended: dict[Place, str] = {}
        """How each lease of a message ended, as the head tells it."""
        self.register = Later()
        self.duplicated = 0
        self.unexpected = 0
        self._who = ""
        self._aimed_by: dict[str, str] = {}
        """For each move who wrote its target down."""
        self._purging: set[tuple[str, str]] = set()
        """Process and subscription of each purge that is under way, or whose outcome is unknown."""
        self._purged: set[tuple[str, int, int]] = set()
        """Subscription, shard and offset of what a purge passed: perhaps right behind a claim, in the same commit."""
        self._parts: dict[str, list[Message]] = {}

    def log(self, queue: str, shard: int) -> ShardWatch:
        found = self.logs.get((queue, shard))
        if found is None:
            found = self.logs[queue, shard] = ShardWatch()
        return found

    def landed(self, who: str, key: str, body: bytes | None) -> None:
        """Something changed in the store."""
        self._who = who
        _, queue, kind, *rest = key.split("/")
        try:
            if body is None:
                if kind == "log":
                    self._deleted(queue, int(rest[0]), base_of(key))
            elif kind == "log":
                self._appended(queue, int(rest[0]), base_of(key), body)
            elif kind == "heads":
                self._committed(queue, rest[0], int(rest[1].removesuffix(".json")), body)
            elif kind == "trim":
                self._trimmed(queue, int(rest[0].removesuffix(".json")), msgspec.json.decode(body, type=Trim).low)
            elif kind == "queue.json" and queue == QUEUE:
                self._settings_changed(decode_settings(body, key))
            elif kind == "parts":
                self._parts["/".join((kind, *rest))] = lines.decode_lines(body, key)
            elif kind == "later.json":
                self._register_changed(msgspec.json.decode(body, type=Later))
            elif kind == "dedup":
                register = decode(Dedup, body, key)
                self.world.covered["dedup split" if register.split is True else "dedup entry"] += 1
        except BucketMQError as error:
            self.problem(f"{key} was written so that it cannot be read: {error}")

    # Segments

    def _appended(self, queue: str, shard: int, base: int, body: bytes) -> None:
        log = self.log(queue, shard)
        segment = lines.Segment(base, body)
        if base < log.mark:
            self.world.covered["dead name created"] += 1
            return
        if base != log.end:
            self.problem(f"segment {queue}/{shard}/{base} lands, but the log ends at {log.end}")
        if segment.parts:
            messages = [message for part in segment.parts for message in self._parts[part.key]]
            self.world.covered["segment of parts"] += 1
        else:
            messages = segment.messages(base, segment.end)
        if len({token_of(message).partition("-")[0] for message in messages}) > 1 and messages[0].move is None:
            self.world.covered["lane shared"] += 1
        if messages[0].move is not None and self._aimed_by.get(messages[0].move) != self._who:
            self.world.covered["move taken over" if queue == DEAD else "later group or redrive taken over"] += 1
        for place, message in enumerate(messages):
            log.messages[base + place] = message
            log.bases[base + place] = base
            self._arrived(queue, shard, base + place, message)
        log.end = segment.end

    def _arrived(self, queue: str, shard: int, offset: int, message: Message) -> None:
        if message.fence is not None:
            self.world.covered["fence"] += 1
            return
        token = token_of(message)
        if token not in self.ledger.sends:
            self.unexpected += 1
            self.problem(f"unexpected: {queue}/{shard}/{offset} holds {message.id}, which nobody sent")
        elif queue == DEAD:
            self._check_letter(offset, message)
        elif message.to is not None:
            self.redriven += 1
            self.world.covered["redriven"] += 1
        elif token in self.where and self.ledger.sends[token].slept:
            self.world.covered["sent twice by a sleeper"] += 1
        elif token in self.where:
            self.duplicated += 1
            self.problem(f"duplicated: {token} lies at {self.where[token]} and at {(shard, offset)}")
        else:
            self.where[token] = shard, offset

    def _check_letter(self, offset: int, message: Message) -> None:
        died = message.died
        if died is None or len(died.failures) < died.attempts:
            self.problem(f"dead letter {offset} ({message.id}) does not tell every failure: {died}")
            return
        last = died.failures[-died.attempts :]  # those before are of an earlier life, from before a redrive
        if any(failure.error == "the record of this failure is gone" for failure in died.failures):
            self.problem(f"dead letter {offset} ({message.id}) misses a failure's record")
        for number, failure in enumerate(last, start=1):
            if failure.attempt != number:
                self.problem(f"dead letter {offset} ({message.id}): failure {number} is of attempt {failure.attempt}")

    def _deleted(self, queue: str, shard: int, base: int) -> None:
        self.world.covered["segment trimmed"] += 1
        if base >= self.log(queue, shard).mark:
            self.problem(f"segment {queue}/{shard}/{base} is deleted before the mark has passed it")

    def _trimmed(self, queue: str, shard: int, mark: int) -> None:
        log = self.log(queue, shard)
        if mark < log.mark:
            self.problem(f"the trim mark of {queue}/{shard} goes back from {log.mark} to {mark}")
        log.mark = mark
        if queue != QUEUE or self.settings.expire_seconds:
            return
        for subscription in self.plan.subscriptions:
            watch = self.heads.get((queue, subscription, shard))
            low = min(watch.states, default=watch.head.next) if watch is not None else 0
            if low < mark:
                self.problem(f"{queue}/{shard} is trimmed to {mark}, but {subscription} has not settled {low}")

    # Heads

    def _committed(self, queue: str, subscription: str, shard: int, body: bytes) -> None:
        watch = self.heads.get((queue, subscription, shard))
        if watch is None:
            watch = self.heads[queue, subscription, shard] = HeadWatch(queue, subscription, shard)
        head, before = decode_head(body, f"head {queue}/{subscription}/{shard}"), watch.head
        self._check_counters(watch, head)
        states = _states(head)
        watch.head, watch.written, old = head, True, watch.states
        watch.states = states
        for offset, state in states.items():
            was = old.get(offset)
            if was is None and offset < before.next:
                self.problem(f"{subscription}/{shard}: offset {offset} was settled and is {state.name} again")
            elif was is not state and was != state:
                self._moved(watch, offset, was, state)
        for offset, was in old.items():
            if offset not in states:
                self._left(watch, offset, was)
        for offset in range(before.next, head.next):
            if offset not in states:
                self._skipped(watch, offset)

    def _check_counters(self, watch: HeadWatch, head: Head) -> None:
        before, name = watch.head, f"{watch.queue}/{watch.subscription}/{watch.shard}"
        if head.version != before.version + 1 and watch.written:
            self.problem(f"head {name} goes from version {before.version} to {head.version}")
        if head.next < before.next or head.lease < before.lease:
            self.problem(f"head {name} goes back: next {before.next} to {head.next}, lease {before.lease}")
        live = {lease.number: lease for lease in before.leases}
        for lease in head.leases:
            was = live.get(lease.number)
            if was is None and lease.number <= before.lease:
                self.problem(f"head {name}: lease {lease.number} is used again")
            if was is not None and (lease.holder != was.holder or lease.until < was.until):
                self.problem(f"head {name}: lease {lease.number} changed hands or got shorter")
            if was is not None and lease.until > was.until:
                self.world.covered["extended"] += 1

    def _moved(self, watch: HeadWatch, offset: int, was: State | None, now: State) -> None:
        """One message goes from one state to another."""
        covered = self.world.covered
        name = f"{watch.queue}/{watch.subscription}/{watch.shard}/{offset}"
        if was is not None and was.name == "held" and not (now.name == "held" and now.lease == was.lease):
            was = self._unhand(watch, offset, was, now)
        if now.name == "held" and (was is None or was.name == "waiting"):
            covered["fresh to held" if was is None else "waiting to held"] += 1
            self._claimed(watch, offset, was, now)
        elif was is None and now.name == "waiting" and self.settings.ordered and now.attempts == 0:
            covered["fresh to waiting"] += 1
        elif was is not None and was.name == "moving" and now.name == "moving":
            covered["aimed" if was.target is None else "aimed again"] += 1
            self._aimed_by[now.target.move if now.target is not None else ""] = self._who
        elif was is not None and was.name == "left" and now.name in ("waiting", "moving"):
            pass
        else:
            self.problem(f"{name} goes from {was} to {now}")

    def _unhand(self, watch: HeadWatch, offset: int, was: State, now: State) -> State:
        """A lease lost a message: by which command? Returns the state in between, if it was claimed again at once."""
        lost = len(now.failed) > len(was.failed) and now.failed[len(was.failed)].startswith(LOST_WORKER)
        attempts = now.attempts - 1 if now.name == "held" else now.attempts
        if lost:
            kind = "expired"
            self.expiries += 1
        elif now.name == "moving" and watch.queue == DEAD:
            kind = "redrive"
        elif now.name == "moving":
            kind = "bury" if "bury" in self._decided(watch, offset, was) else "retry"
        else:
            kind = "release" if attempts == was.attempts - 1 else "retry"
        if kind == "release":
            watch.claims[offset] -= 1
        if now.name == "moving" and kind in ("expired", "retry") and was.attempts < self.settings.attempts_max:
            self.problem(f"{watch.subscription}/{watch.shard}/{offset} dies after {was.attempts} attempts")
        self._end(watch, offset, was, kind, "moving" if now.name == "moving" else "waiting")
        middle = "left" if now.name != "held" else "waiting"
        return State(middle, attempts, now.failed)

    def _end(self, watch: HeadWatch, offset: int, was: State, kind: str, then: str) -> None:
        self.world.covered[f"held to {then} by {kind}"] += 1
        place = watch.place(offset, was.lease)
        self.ended[place] = kind
        if kind == "release" and (place not in self.ledger.delivered or place in self.ledger.fetched):
            return  # claimed in stock and given back unseen, or fetched by a worker and not begun
        if (
            kind not in ("expired", "redrive")
            and watch.queue == QUEUE
            and kind not in self._decided(watch, offset, was)
        ):
            self.problem(f"{place}: the head says {kind}, but its holder did not")

    def _decided(self, watch: HeadWatch, offset: int, was: State) -> list[str]:
        return self.ledger.decisions.get(watch.place(offset, was.lease), [])

    def _claimed(self, watch: HeadWatch, offset: int, was: State | None, now: State) -> None:
        claims = watch.claims[offset] = watch.claims.get(offset, 0) + 1
        name = f"{watch.queue}/{watch.subscription}/{watch.shard}/{offset}"
        if now.attempts != claims or len(now.failed) != claims - 1:
            self.problem(f"{name} is claimed for the {claims}. time as attempt {now.attempts} with {now.failed}")
        if watch.queue == QUEUE and claims > self.settings.attempts_max:
            self.problem(f"{name} is handed out {claims} times, {self.settings.attempts_max} are allowed")
        if self.settings.ordered and watch.queue == QUEUE:
            self._check_order(watch, offset, claims)

    def _check_order(self, watch: HeadWatch, offset: int, claims: int) -> None:
        message = self.log(watch.queue, watch.shard).messages[offset]
        if message.key is None:
            return
        for other in self.heads.values():
            if (other.queue, other.subscription) != (watch.queue, watch.subscription):
                continue
            log = self.log(other.queue, other.shard)
            for place, state in other.states.items():
                same = other is watch and place == offset
                if state.name == "held" and not same and log.messages[place].key == message.key:
                    self.problem(f"key {message.key}: {other.shard}/{place} and {watch.shard}/{offset} are both held")
        token = token_of(message)
        if claims > 1 or message.to is not None or token not in self.ledger.sends:
            return
        send = self.ledger.sends[token]
        if not send.job.delay_seconds:
            self._check_turn(watch, token, send)

    def _check_turn(self, watch: HeadWatch, token: str, send: Send) -> None:
        for other, earlier in self.ledger.sends.items():
            if earlier.key != send.key or earlier.job.delay_seconds or not earlier.precedes(send):
                continue
            shard, offset = self.where.get(other, (0, -1))
            there = self.heads.get((QUEUE, watch.subscription, shard))
            if offset >= 0 and offset >= self.log(QUEUE, shard).mark and (there is None or not there.is_over(offset)):
                self.problem(
                    f"{token} is handed out to {watch.subscription} while {other}, sent before it, is not over"
                )

    def _left(self, watch: HeadWatch, offset: int, was: State) -> None:
        """One message is settled."""
        if was.name == "held":
            if "ack" in self._decided(watch, offset, was) or watch.queue == DEAD:
                self._end(watch, offset, was, "ack", "settled")
                return
        elif was.name == "moving" and was.target is not None and self._has_arrived(watch, offset, was.target):
            self.world.covered["moving to gone"] += 1
            return
        if offset < self.log(watch.queue, watch.shard).mark:
            self.world.covered["jump"] += 1
        elif (self._who, watch.subscription) in self._purging:
            self.world.covered[f"{was.name} to purged"] += 1
            # A purge travels with the claims and settlements of its process, behind them: they counted, though nothing
            # is left of them.
            self._purged.add((watch.subscription, watch.shard, offset))
            if was.name == "held" and (decided := self._decided(watch, offset, was)):
                self.ended[watch.place(offset, was.lease)] = decided[-1]
        else:
            self.problem(f"{watch.queue}/{watch.subscription}/{watch.shard}/{offset} was {was} and is forgotten")

    def _has_arrived(self, watch: HeadWatch, offset: int, target: Target) -> bool:
        there = self.log(DEAD if watch.queue == QUEUE else QUEUE, target.shard)
        left = self.log(watch.queue, watch.shard).messages[offset]
        to = left.died.subscription if left.died is not None and watch.queue == DEAD else None
        found = [each for each in there.messages.values() if each.move == target.move and each.id == left.id]
        return sum(each.to == to for each in found) == 1

    def _skipped(self, watch: HeadWatch, offset: int) -> None:
        """A head went past a message without handing it out."""
        log = self.log(watch.queue, watch.shard)
        message = log.messages.get(offset)
        if message is not None and message.fence is not None:
            self.world.covered["fence crossed"] += 1
        elif message is not None and message.to not in (None, watch.subscription):
            self.world.covered["skipped"] += 1
        elif offset < log.mark and not watch.claims.get(offset):
            self.world.covered["jump"] += 1
        elif (self._who, watch.subscription) in self._purging:
            self.world.covered["fresh to purged"] += 1
            self._purged.add((watch.subscription, watch.shard, offset))
        else:
            self.problem(f"{watch.queue}/{watch.subscription}/{watch.shard}/{offset} was never handed out")

    def begin_purge(self, who: str, subscription: str) -> list[int]:
        """From now on this process may forget what the subscription has not settled. Where each shard's log ends."""
        self._purging.add((who, subscription))
        return [self.log(QUEUE, shard).end for shard in range(self.settings.shards)]

    def end_purge(self, who: str, subscription: str, ends: list[int]) -> None:
        """A purge said that it is done: nothing that was there when it began is left."""
        self._purging.discard((who, subscription))
        for shard, end in enumerate(ends):
            watch = self.heads.get((QUEUE, subscription, shard))
            left = [offset for offset in (watch.states if watch else ()) if offset < end]
            if left or (end > (watch.head.next if watch else 0)):
                self.problem(f"{subscription}/{shard} was purged up to {end}, but {left or 'its head'} stayed behind")

    # Registers

    def _settings_changed(self, settings: Settings) -> None:
        if self.settings.shards < settings.shards == self.plan.raise_to:
            self.world.covered["shards raised"] += 1
        self.settings = settings

    def _register_changed(self, register: Later) -> None:
        for target in (target for group in register.groups for target in group.targets):
            self._aimed_by.setdefault(target.move, self._who)
        if register.groups and not self.register.groups:
            self.world.covered["later group"] += 1
        elif register.groups and self.register.groups and register.groups != self.register.groups:
            self.world.covered["later group aimed again"] += 1
        self.register = register

    # What the workload was told

    def delivered(self, place: Place, attempt: int, message: Message, body: Any) -> None:
        """A receiver has a message in hands."""
        queue, subscription, shard, offset, lease = place
        watch = self.heads[queue, subscription, shard]
        if place in self.ledger.delivered:
            self.problem(f"{place} is delivered twice under one lease")
        self.ledger.delivered[place] = attempt
        claimed = offset in watch.claims or (subscription, shard, offset) in self._purged
        if lease > watch.head.lease or not claimed:
            self.problem(f"{place} is delivered under a lease that the head never had")
        if message.id != self.log(queue, shard).messages[offset].id:
            self.problem(f"{place} is delivered as {message.id}, which is not what the log holds there")
        late = place in self.ended or subscription == LATECOMER or offset < self.log(queue, shard).mark
        if not (isinstance(body, NotFound) and late):  # whoever comes so late finds the body trimmed
            self._check_body(message, body)

    def _check_body(self, message: Message, body: Any) -> None:
        token = token_of(message)
        send = self.ledger.sends.get(token)
        if send is None or send.began_at is None:
            self.unexpected += 1
            self.problem(f"unexpected: {message.id} is delivered, nobody sent it")
        elif send.slept and isinstance(body, NotFound):
            self.world.covered["sent twice by a sleeper"] += 1  # and the body went with the first one
        elif body != body_of(token, send.job):
            self.problem(f"{token} is delivered as {body!r}")

    def confirmed(self, place: Place, kind: str) -> None:
        """A receiver was told that its settlement counted."""
        ended = self.ended.get(place)
        if ended != kind and not (kind == "ack" and ended is None and place[3] < self.log(QUEUE, place[2]).mark):
            self.problem(f"{place}: {kind} was confirmed, but the head says {ended}")

    # The end

    def is_drained(self) -> bool:
        """Whether nothing is left to do for anybody."""
        if self.ledger.calls_open or self.register.groups:
            return False
        for subscription in self.plan.subscriptions:
            for shard in range(self.settings.shards):
                watch = self.heads.get((QUEUE, subscription, shard))
                if self.log(QUEUE, shard).end > (watch.head.next if watch else 0) or (watch and watch.states):
                    return False
        return True

    def what_is_left(self) -> str:
        """For the message that says that a run did not end."""
        left = [f"{self.ledger.calls_open} calls open"] if self.ledger.calls_open else []
        left += ["delayed messages on their way"] if self.register.groups else []
        for (queue, name, shard), watch in self.heads.items():
            if queue == QUEUE and name != LATECOMER and (watch.states or self.log(queue, shard).end > watch.head.next):
                left.append(
                    f"{name}/{shard}: next {watch.head.next} of {self.log(queue, shard).end}, "
                    + ", ".join(f"{offset} {state.name}" for offset, state in watch.states.items())
                )
        return "; ".join(left)

    def lost(self) -> list[str]:
        """Tokens whose send was answered and that are nowhere."""
        return [
            token for token, send in self.ledger.sends.items() if send.ok_at is not None and token not in self.where
        ]

    def recovered(self) -> int:
        """How many sends ended unknown and are there."""
        return sum(send.ok_at is None and token in self.where for token, send in self.ledger.sends.items())

    def close(self) -> None:
        """Balance the books."""
        for token in self.lost():
            self.problem(f"lost: {token} was sent and is nowhere")
        self._close_receipts()
        self._close_dead_letters()
        if self.plan.calm and self.expiries:
            self.problem(f"{self.expiries} leases expired though nothing was slow, frozen or killed")

    def _close_receipts(self) -> None:
        for token, send in self.ledger.sends.items():
            if not send.ids:
                continue
            if len(send.ids) > 1:
                self.problem(f"{token} was answered with different ids: {sorted(send.ids)}")
            if token in self.where:
                shard, offset = self.where[token]
                found = self.log(QUEUE, shard).messages[offset].id
                if found not in send.ids and not send.slept:
                    self.problem(f"{token} was answered with {send.ids}, but is {found} in the log")
        for role in self.plan.roles:
            for job in role.jobs:
                if self.settings.fences:
                    continue  # part of a send may be placed before a raise, and part behind it
                sends = [token for token in job.tokens if not self.ledger.sends[token].slept]
                places = [self.where[token] for token in sends if token in self.where]
                for shard in {shard for shard, _ in places}:
                    bases = {self.log(QUEUE, shard).bases[offset] for there, offset in places if there == shard}
                    if len(bases) > 1:
                        self.problem(f"the messages {job.tokens} of one send to shard {shard} were torn apart: {bases}")

    def _close_dead_letters(self) -> None:
        seen: set[tuple[str, int, int]] = set()
        for (queue, _), log in self.logs.items():
            for message in log.messages.values() if queue == DEAD else ():
                if message.died is not None:
                    origin = message.died.subscription, message.died.shard, message.died.offset
                    if origin in seen:
                        self.duplicated += 1
                        self.problem(f"duplicated: dead letter of {origin} ({message.id})")
                    seen.add(origin)


def _states(head: Head) -> dict[int, State]:
    """Every listed offset of a head."""
    states: dict[int, State] = {}
    for lease in head.leases:
        for held in lease.held:
            state = State("held", held.attempt, held.failed, lease.number)
            for offset in range(held.span.start, held.span.stop):
                states[offset] = state
    for waiting in head.waiting:
        state = State("waiting", waiting.attempts, waiting.failed)
        for offset in range(waiting.span.start, waiting.span.stop):
            states[offset] = state
    for moving in head.moving:
        state = State("moving", moving.attempts, moving.failed, 0, moving.target)
        for offset in range(moving.span.start, moving.span.stop):
            states[offset] = state
    return states
