"""A few processes on one simulated store, and what they sent and were handed: for scenes with a script of their own.

The swarm (`run`) audits every commit against the machine's table. Scenes that damage a bucket or set a clock break that
table on purpose, so here only tokens are counted: what was sent and acknowledged, what was delivered to whom.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec

from bucketmq.api.bucket import BucketApi
from bucketmq.api.queue import QueueApi
from bucketmq.api.subscription import SubscriptionApi
from bucketmq.deliveries import settle_now
from bucketmq.engines.clock import StoreClock
from bucketmq.errors import BucketMQError, Corrupt
from bucketmq.log.documents import decode_head
from bucketmq.log.layout import QueueKeys, base_of, head_of
from bucketmq.log.segment import Segment
from bucketmq.procedures.requests import Pause, Procedure
from bucketmq.procedures.sending.send import letters
from bucketmq.queue.head import Head
from bucketmq.queue.message import Message
from bucketmq.queue.settings import DEAD_SUFFIX
from bucketmq.testing.simulation.engine import Process, run_alone
from bucketmq.testing.simulation.plan import QUEUE
from bucketmq.testing.simulation.store import SimStore
from bucketmq.testing.simulation.world import World

KEYS = QueueKeys("", QUEUE)


class SceneReport(msgspec.Struct):
    """What one seed of a scene did, and whether anything was wrong."""

    seed: int
    scene: str
    problems: list[str]
    covered: dict[str, int]
    trace: list[str] | None = None


class Crew:
    """The store, the processes, and the books."""

    def __init__(self, seed: str, settings: dict[str, Any], subscriptions: tuple[str, ...], **store: Any) -> None:
        self.world = World(seed, traced=bool(store.pop("traced", False)))
        self.store = SimStore(self.world, whole_seconds=False, content_versions=False, **store)
        self.subscriptions = subscriptions
        self.covered: Counter[str] = Counter()
        self.problems: list[str] = []
        self.sent: set[str] = set()
        """Tokens whose send returned."""
        self.refused: set[str] = set()
        """Tokens whose send raised `Corrupt`."""
        self.got: dict[str, set[str]] = {name: set() for name in subscriptions}
        """What each subscription was handed since `forget_deliveries`."""
        self.loud: dict[str, str] = {}
        """For each subscription the last `Corrupt` that a receiver was answered with."""
        self.processes: list[Process] = []
        self.clock: Callable[[], StoreClock | None] = lambda: None
        """Makes the clock of a process; None for that of the world."""
        self.sending = 0
        """Senders that are not done."""
        self._births = 0
        run_alone(self.world, self.store, self._found(settings))

    def _found(self, settings: dict[str, Any]) -> Procedure[None]:
        queue = self.queue(settings)
        yield from queue.open()
        for name in self.subscriptions:
            yield from queue.subscription(name)

    def queue(self, settings: dict[str, Any] | None = None) -> QueueApi[Any]:
        """The queue as a process that has just started has it."""
        return QueueApi(BucketApi.on(self.store, "", probe=False), QUEUE, settings or {})

    def process(self, name: str) -> Process:
        self._births += 1
        process = Process(self.world, self.store, f"{name}.{self._births}")
        process.clock = self.clock()
        self.processes.append(process)
        return process

    def kill(self) -> None:
        """End every process, and let what is in flight land."""
        for process in self.processes:
            process.kill()
        self.processes.clear()
        self.sending = 0
        self.run(0.1)

    def run(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        return self.world.run(until, self.world.now + seconds)

    # What processes do

    def start_sender(
        self,
        tokens: list[str],
        queue: QueueApi[Any] | None = None,
        *,
        gap_seconds: float = 0.5,
        delay_seconds: float | None = None,
    ) -> Process:
        """A process that sends these: a new one, unless it is given a queue that it knows."""

        def ended(_: Any, error: BaseException | None) -> None:
            self.sending -= 1
            if error is not None:
                self.problems.append(f"a sender ended with {error!r}")

        self.sending += 1
        process = self.process("sender")
        process.start(self._sends(queue or self.queue(), tokens, gap_seconds, delay_seconds), "send", ended)
        return process

    def start_receiver(self, name: str, *, acks: float = 1.0) -> Process:
        """A new process that receives for ever and acknowledges this part of it; the rest it forgets."""
        process = self.process("receiver")
        process.start(self._receives(self.queue(), name, acks), name)
        return process

    def _sends(
        self, queue: QueueApi[Any], tokens: list[str], gap_seconds: float, delay_seconds: float | None
    ) -> Procedure[None]:
        """Send one after the other; what is refused is not tried again."""
        for token in tokens:
            yield from Pause(self.world.chance() * gap_seconds)
            try:
                yield from queue.post(letters([{"token": token}], None, {"token": token}), delay_seconds, None)
            except Corrupt:
                self.refused.add(token)
                self.covered["send refused"] += 1
            except BucketMQError:
                self.covered["send unknown"] += 1
            else:
                self.sent.add(token)
                self.covered["sent"] += 1

    def _receives(self, queue: QueueApi[Any], name: str, acks: float) -> Procedure[None]:
        sub: SubscriptionApi[Any] = SubscriptionApi(queue.queue, name)
        while True:
            try:
                received = yield from sub.claim(3, 5.0, None, keep_alive=False, fill=False)
                for lot in received.lots:
                    for message, (offset, _) in zip(lot.messages, lot.places(), strict=True):
                        self.got[name].add(token_of(message))
                        if self.world.chance() < acks:
                            lot.ack(offset)
                    yield from settle_now(lot)
            except Corrupt as error:
                self.loud[name] = str(error)
                self.covered["receive refused"] += 1
                yield from Pause(5.0)
            except BucketMQError:
                yield from Pause(1.0)

    def forget_deliveries(self) -> None:
        for name in self.subscriptions:
            self.got[name] = set()
        self.loud.clear()

    # What lies in the store

    def segments(self, root: str = KEYS.root) -> dict[tuple[int, int], Segment]:
        """By shard and base."""
        found = {}
        for key in self.store.keys(f"{root}/log/"):
            shard, base = int(key.split("/")[3]), base_of(key)
            found[shard, base] = Segment(base, self.store.objects[key].body, key)
        return found

    def messages(self) -> dict[tuple[int, int], str]:
        """Tokens by shard and offset."""
        return {
            (shard, base + place): token_of(message)
            for (shard, base), segment in self.segments().items()
            for place, message in enumerate(segment.check())
            if message.fence is None
        }

    def dead(self) -> set[str]:
        """Tokens of dead letters."""
        segments = self.segments(KEYS.root + DEAD_SUFFIX).values()
        return {token_of(message) for segment in segments for message in segment.check()}

    def ends(self) -> dict[int, int]:
        """For each shard where its last segment ends."""
        ends: dict[int, int] = {}
        for (shard, _), segment in self.segments().items():
            ends[shard] = max(ends.get(shard, 0), segment.end)
        return ends

    def head(self, name: str, shard: int) -> Head:
        """A head that is missing has read nothing."""
        for key in self.store.keys(KEYS.heads):
            if head_of(key) == (name, shard):
                return decode_head(self.store.objects[key].body, key)
        return Head(0, 0)

    def unsettled(self, name: str) -> set[str]:
        """Tokens that can be read and that the subscription has not settled."""
        found = set()
        for (shard, offset), token in self.messages().items():
            head = self.head(name, shard)
            if offset >= head.next or any(span.start <= offset < span.stop for span in head.spans()):
                found.add(token)
        return found

    def is_drained(self) -> bool:
        """Whether every head has settled everything up to the end of its log."""
        heads = [(self.head(name, shard), end) for shard, end in self.ends().items() for name in self.subscriptions]
        return all(head.next >= end and not any(True for _ in head.spans()) for head, end in heads)

    def problem(self, text: str) -> None:
        self.world.note("AUDIT", text)
        self.problems.append(text)

    def report(self, seed: int, scene: str) -> SceneReport:
        broken = [f"{process.name}: {process.broken!r}" for process in self.processes if process.broken is not None]
        return SceneReport(seed, scene, self.problems + broken, dict(self.covered), self.world.lines)


def token_of(message: Message) -> str:
    return (message.headers or {}).get("token", "")
