"""What a queue's settings cost: workers that receive, work and die, on virtual time, with the production code.

A simulator for studies (`bucketmq research`): a function of parameters and a seed that returns figures. It answers how
many messages a worker should take at a time, and for how long, for work that takes so long on a store that answers so
fast. It audits nothing; that is the swarm's (`run`).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from bucketmq.api.bucket import BucketApi
from bucketmq.api.queue import QueueApi
from bucketmq.deliveries import settle_now
from bucketmq.errors import BucketMQError, Invalid, LeaseLost
from bucketmq.procedures.requests import Pause, Procedure
from bucketmq.procedures.sending.send import letters
from bucketmq.testing.simulation.engine import Process, run_alone
from bucketmq.testing.simulation.plan import QUEUE
from bucketmq.testing.simulation.store import SimStore
from bucketmq.testing.simulation.world import EPOCH, World

VERSION = "1"

SECONDS_MAX = 600.0
"""Of virtual time; work that is not done by then is a failed trial."""


def simulate(parameters: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Parameters: `batch` (messages received at a time), `lease_seconds`, `workers`, `messages`, `work_seconds` (for
    one message), `deaths` (how likely a worker dies at one message; another one takes its place).

    Metrics: `seconds` until every message is settled, `requests` of the workers for each message, and `repeated`, the
    share of the work that was done again because a lease was over or a worker had died.
    """
    return _Scene(parameters, seed).run()


class _Scene:
    def __init__(self, parameters: Mapping[str, Any], seed: int) -> None:
        self.batch, self.workers = int(parameters.get("batch", 10)), int(parameters.get("workers", 4))
        self.messages = int(parameters.get("messages", 200))
        self.lease_seconds = float(parameters.get("lease_seconds", 30.0))
        self.work_seconds = float(parameters.get("work_seconds", 0.2))
        self.deaths = float(parameters.get("deaths", 0.005))
        counts = self.batch >= 1 and self.workers >= 1 and self.messages >= 1
        if not (counts and self.work_seconds >= 0 and 0 <= self.deaths < 0.5):
            raise Invalid("batch, workers and messages are 1 or more, work_seconds 0 or more, deaths below 0.5")
        self.world = World(f"tuning {seed}")
        self.store = SimStore(
            self.world, lists_in_order=True, answer_stamps=True, content_versions=True, whole_seconds=False
        )
        self.chance = random.Random(f"deaths {seed}")
        self.done: set[str] = set()
        self.worked = 0
        self.births = 0

    def run(self) -> dict[str, float]:
        run_alone(self.world, self.store, self._send())
        requests, began = self.store.requests, self.world.now
        for _ in range(self.workers):
            self._hire()
        if not self.world.run(lambda: len(self.done) == self.messages, EPOCH + SECONDS_MAX):
            raise TimeoutError(f"{self.messages - len(self.done)} messages were not settled in {SECONDS_MAX:.0f} s")
        return {
            "seconds": self.world.now - began,
            "requests": (self.store.requests - requests) / self.messages,
            "repeated": self.worked / self.messages - 1,
        }

    def _queue(self) -> QueueApi[Any]:
        return QueueApi(BucketApi.on(self.store, "", probe=False), QUEUE, {"attempts_max": 100})

    def _send(self) -> Procedure[None]:
        queue = self._queue()
        for first in range(0, self.messages, 100):
            bodies = [{"n": number} for number in range(first, min(self.messages, first + 100))]
            yield from queue.post(letters(bodies, None, None), None, None)

    def _hire(self) -> None:
        self.births += 1
        process = Process(self.world, self.store, f"worker.{self.births}")
        process.start(self._work(process), "work")

    def _work(self, process: Process) -> Procedure[None]:
        yield from Pause(self.world.chance())
        queue = self._queue()
        while True:
            try:
                received = yield from queue.claim(self.batch, 5.0, self.lease_seconds)
                for lot in received.lots:
                    for offset, _ in lot.places():
                        yield from Pause(self.work_seconds)
                        self.worked += 1
                        if self.chance.random() < self.deaths:
                            self.world.after(0.0, process.kill)
                            self.world.after(1.0, self._hire)
                            yield from Pause(SECONDS_MAX)
                        lot.ack(offset)
                    yield from settle_now(lot)
                    self.done |= {message.id for message in lot.messages}
            except LeaseLost:
                continue  # somebody else has them
            except BucketMQError:
                yield from Pause(1.0)
