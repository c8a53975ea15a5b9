"""Subscriptions that begin while a trim is under way: whatever they are handed stays until they settle it.

Everything in the log is settled by `main` and old enough to go. Trims and newcomers start at the same time, and slow
requests put any two of them in any order. What must hold: a segment of which a newcomer has messages in its hands is
there and is not deleted, and what is sent afterwards reaches every newcomer.
"""

from __future__ import annotations

import random
from typing import Any

from bucketmq.api.queue import QueueApi
from bucketmq.api.subscription import SubscriptionApi
from bucketmq.deliveries import settle_now
from bucketmq.errors import BucketMQError
from bucketmq.log.layout import base_of
from bucketmq.procedures.claiming.claim import Lot
from bucketmq.procedures.requests import Pause, Procedure
from bucketmq.queue.settings import MAIN
from bucketmq.testing.simulation.crew import KEYS, Crew, SceneReport, token_of
from bucketmq.testing.simulation.faults import NONE, Faults
from bucketmq.testing.simulation.run import quiet

OLD_SECONDS = 400.0
"""Older than this, a settled segment may go."""

START_SECONDS = 0.6
HOLD_SECONDS = 2.0
SLOW = Faults(slow=1.0)


def run_newcomers(seed: int, *, traced: bool = False) -> SceneReport:
    """One seed of the scene. The same seed gives the same history."""
    with quiet():
        return Newcomers(seed, traced=traced).report()


class Newcomers:
    """One queue that can be trimmed to its last segment, and those that begin to read it."""

    def __init__(self, seed: int, *, traced: bool) -> None:
        self.seed = seed
        self.dice = random.Random(f"newcomers {seed}")
        self.names = tuple(f"new-{n}" for n in range(self.dice.choice((1, 2, 3))))
        settings = {
            "keep_seconds": 0.0,
            "dedup_seconds": 30.0,
            "lease_seconds": 30.0,
            "shards": self.dice.choice((1, 2)),
        }
        self.crew = Crew(
            f"newcomers run {seed}", settings, (MAIN,), lists_in_order=True, answer_stamps=True, traced=traced
        )
        self.crew.store.witness = self
        self.in_hands: list[tuple[str, Lot]] = []

    def landed(self, who: str, key: str, body: bytes | None) -> None:
        """Nothing goes of which somebody has messages in its hands."""
        if body is None and key.startswith(f"{KEYS.root}/log/"):
            self.crew.covered["segment deleted"] += 1
            for name, lot in self.in_hands:
                if key in segments_of(lot):
                    self.crew.problem(f"{who} deletes {base_of(key)}, which {name} has in its hands")

    def report(self) -> SceneReport:
        crew = self.crew
        crew.start_sender([f"old-{n}" for n in range(10)], gap_seconds=0.1)
        crew.start_receiver(MAIN)
        crew.run(60.0, lambda: not crew.sending and crew.is_drained())
        crew.run(OLD_SECONDS)
        crew.kill()
        self._all_at_once()
        crew.run(30.0)
        crew.store.faults = NONE
        crew.start_sender(["after-0", "after-1"])
        after = {"after-0", "after-1"}
        crew.run(60.0, lambda: all(after <= crew.got[name] for name in self.names))
        for name in self.names:
            if after - crew.got[name]:
                self.crew.problem(f"{name} was not handed {sorted(after - crew.got[name])}")
            crew.covered["began with what is kept"] += any(token.startswith("old") for token in crew.got[name])
        return crew.report(self.seed, "newcomers")

    def _all_at_once(self) -> None:
        crew = self.crew
        crew.store.faults = SLOW
        workers = [(crew.process("trim"), self._trims(crew.queue()))]
        for name in self.names:
            crew.got[name] = set()
            workers.append((crew.process(name), self._receives(crew.queue(), name)))
        for process, work in workers:
            process.start(work, process.name)

    def _trims(self, queue: QueueApi[Any]) -> Procedure[None]:
        yield from queue.open()
        for _ in range(3):
            yield from Pause(self.dice.uniform(0.0, START_SECONDS))
            self.crew.covered["trimmed"] += (yield from queue.trim()).segments

    def _receives(self, queue: QueueApi[Any], name: str) -> Procedure[None]:
        """Receive for ever; hold what is handed out for a while, then acknowledge it."""
        yield from queue.open()
        yield from Pause(self.dice.uniform(0.0, START_SECONDS))
        sub: SubscriptionApi[Any] = SubscriptionApi(queue.queue, name)
        while True:
            try:
                received = yield from sub.claim(3, 30.0, None, keep_alive=False, fill=False)
            except BucketMQError as error:
                self.crew.problem(f"{name} cannot receive: {error}")
                return
            for lot in received.lots:
                yield from self._hold(name, lot)

    def _hold(self, name: str, lot: Lot) -> Procedure[None]:
        for key in segments_of(lot) - set(self.crew.store.keys(f"{KEYS.root}/log/")):
            self.crew.problem(f"{name} is handed messages of {base_of(key)}, which is gone")
        self.in_hands.append((name, lot))
        yield from Pause(self.dice.uniform(0.0, HOLD_SECONDS))
        self.in_hands.remove((name, lot))
        for message, (offset, _) in zip(lot.messages, lot.places(), strict=True):
            self.crew.got[name].add(token_of(message))
            lot.ack(offset)
        yield from settle_now(lot)


def segments_of(lot: Lot) -> set[str]:
    """The keys of the segments in which the messages of a lot lie."""
    return {lot.desk.log.key(held.span.base) for held in lot.held}
