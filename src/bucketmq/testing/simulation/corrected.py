"""A clock that is corrected: the store's was a day ahead, and is set right while everything is in use.

On a machine of its own (`local`, a folder) the store goes by the wall clock, as processes do. Elsewhere processes learn
the store's clock from its stamps (`engines.clock`). What must hold: nothing is lost; what is sent after the correction
is delivered as soon as ever, a delay included; a lease that is given after it lasts as long as it should, so that a
worker that dies costs seconds and not a day. Leases and delays from before it end when the clock gets there.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

from bucketmq.engines.clock import StoreClock
from bucketmq.log.documents import decode_head
from bucketmq.queue.settings import MAIN
from bucketmq.testing.simulation.crew import KEYS, Crew, SceneReport
from bucketmq.testing.simulation.run import quiet
from bucketmq.testing.simulation.store import SimStore
from bucketmq.testing.simulation.world import World

DAY_SECONDS = 86_400.0
LEASE_SECONDS = 5.0
SOON_SECONDS = 40.0
"""Within this, what was sent after the correction is delivered, though a worker died with it in its hands."""

UNDER_WAY_SECONDS = 1.0


class SimClock(StoreClock):
    """The production code's clock, carried by virtual time: the wall clock of a store's machine, or a monotonic one."""

    def __init__(self, world: World, store: SimStore, *, local: bool) -> None:
        self._world, self._store = world, store
        super().__init__(precision_seconds=0.001, local=local)
        wall = world.now + store.ahead_seconds - self.tick()
        self._low, self._high = wall, wall

    def tick(self) -> float:
        return self._world.now + (self._store.ahead_seconds if self._local else 0.0)


def run_corrected(seed: int, *, traced: bool = False) -> SceneReport:
    """One seed of the scene. The same seed gives the same history."""
    with quiet():
        return Corrected(seed, traced=traced).report()


class Corrected:
    """One queue, and the moment when its store's clock is set right."""

    def __init__(self, seed: int, *, traced: bool) -> None:
        self.seed = seed
        self.dice = random.Random(f"corrected {seed}")
        self.local = self.dice.random() < 0.7
        settings = {"lease_seconds": LEASE_SECONDS, "attempts_max": 50, "shards": self.dice.choice((1, 2))}
        self.crew = Crew(
            f"corrected run {seed}",
            settings,
            (MAIN,),
            lists_in_order=True,
            answer_stamps=True,
            local=self.local,
            traced=traced,
        )
        self.crew.clock = partial(SimClock, self.crew.world, self.crew.store, local=self.local)
        self.crew.store.witness = self
        self.corrected_at: float | None = None
        self.leases: dict[str, int] = {}
        self.warned: set[str] = set()

    def landed(self, who: str, key: str, body: bytes | None) -> None:
        """Leases that are given after the correction are as long as they should be."""
        if not key.startswith(KEYS.heads) or body is None:
            return
        head = decode_head(body, key)
        before, self.leases[key] = self.leases.get(key, 0), head.lease
        for lease in head.leases:
            seconds = lease.until - self.crew.world.now
            right = LEASE_SECONDS / 2 < seconds < LEASE_SECONDS * 2
            if self.corrected_at is not None and lease.number > before and not right:
                # It may have been under way. And a process elsewhere learns of the correction by its first write.
                under_way = self.crew.world.now < self.corrected_at + UNDER_WAY_SECONDS
                if who in self.warned or (self.local and not under_way):
                    self.crew.problems.append(f"{who} is given lease {lease.number} for {seconds:.0f} s")
                self.warned.add(who)

    def report(self) -> SceneReport:
        crew, store = self.crew, self.crew.store
        store.ahead_seconds = DAY_SECONDS
        crew.start_sender([f"before-{n}" for n in range(8)])
        crew.start_sender(["before-delayed"], delay_seconds=2.0)
        crew.start_receiver(MAIN, acks=self.dice.choice((0.5, 1.0)))
        survivor = crew.queue()
        crew.start_sender(["survivor-before"], survivor)
        crew.run(self.dice.uniform(1.0, 5.0))
        if self.dice.random() < 0.5:
            crew.run(1.0, lambda: bool(store.writes_in_flight))  # so that the clock is set while one is under way
        store.ahead_seconds = 0.0
        self.corrected_at = crew.world.now
        crew.world.note("outside", "the clock is set right")
        after = self._after(survivor)
        crew.run(SOON_SECONDS, lambda: not after - crew.got[MAIN])
        if self.local and after - crew.got[MAIN]:
            self.crew.problem(f"{sorted(after - crew.got[MAIN])} were sent after the correction and wait for ever")
        crew.covered["late elsewhere"] += not self.local and bool(after - crew.got[MAIN])
        crew.kill()
        crew.run(DAY_SECONDS)  # nobody is there, so it takes no time
        crew.start_receiver(MAIN)
        crew.run(2 * SOON_SECONDS, lambda: crew.sent <= crew.got[MAIN] and crew.is_drained())
        if (crew.sent - crew.got[MAIN]) or not crew.is_drained():
            self.crew.problem(f"a day later {sorted(crew.sent - crew.got[MAIN])} were not delivered")
        crew.covered["local" if self.local else "elsewhere"] += 1
        return crew.report(self.seed, "the clock is corrected")

    def _after(self, survivor: Any) -> set[str]:
        """Send, with and without a delay; a receiver takes something and dies. What must be delivered soon."""
        crew = self.crew
        crew.start_sender(["survivor-after"], survivor)
        crew.start_sender(["after-0", "after-1", "after-2"])
        crew.start_sender(["after-delayed"], delay_seconds=3.0)
        victim = crew.start_receiver(MAIN, acks=0.0)
        crew.world.after(self.dice.uniform(0.5, 3.0), victim.kill)
        crew.start_receiver(MAIN)
        crew.run(8.0, lambda: not crew.sending)
        return {"survivor-after", "after-0", "after-1", "after-2", "after-delayed"} & crew.sent
