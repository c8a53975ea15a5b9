"""One bucket of the soak and the processes on it: disturbed for a while, then left alone until everything is done."""

from __future__ import annotations

import os
import random
import sys
import time
from pathlib import Path
from typing import Any

import bucketmq
from bench.soak.audit import audit
from bench.soak.player import LEASE_SECONDS, QUEUE
from bench.soak.samples import FLAT_SECONDS, Samples
from bucketmq.bucket.urls import open_store
from bucketmq.errors import Unavailable
from bucketmq.testing.proxy import FaultyProxy
from bucketmq.testing.tormented import Player, Stage

CAST = {"producer": 2, "worker": 3, "writer": 2, "watcher": 2}
PACED = {"producer": "sent ", "writer": "put "}
"""Who has a schedule, and the word in its ledger for what is done of it."""

TRIM_SECONDS = 15.0
DRAIN_SECONDS = 180.0
SCHEDULE_MIN = 0.97
"""How much of what was asked for must have been sent, at least: the rest are unknown sends, and the last seconds."""


class Site:
    """`url` is the bucket, `through` the way its players take, perhaps a proxy. `folder` if it is one."""

    def __init__(self, name: str, url: str, ledgers: Path, *, seed: int, through: str = "", folder: Path | None = None):
        self.name = name
        self.url = url
        self.folder = folder
        self.ledgers = ledgers
        self._asked: dict[str, int] = {}
        self.samples = Samples()
        self.proxy: FaultyProxy | None = None
        self.stage = Stage(ledgers, seed, self._command)
        self._store = open_store(url)
        self._through = through or url
        self._rates: dict[str, float] = {}
        self._done: dict[str, int] = {}
        """For a player that took over from others: how much they had done."""
        self._began = 0.0
        self._dice = random.Random(seed)
        self._strike_at = self._trim_at = self._sample_at = 0.0

    def begin(self, messages: int, changes: int, seconds: float) -> None:
        """Make the queues and start everybody."""
        self.ledgers.mkdir(parents=True)
        self._seconds = seconds
        self._asked = {"sent": messages, "changes": changes}
        self.bucket = bucketmq.connect(self.url, probe=False)
        # Kept no longer than trimming's guard of two minutes, so that it is level soon. The journal of rules, which
        # nobody reads here, is kept for a week otherwise.
        self.queue = self.bucket.queue(
            QUEUE, shards=2, attempts_max=1_000, lease_seconds=LEASE_SECONDS, keep_seconds=0, dedup_seconds=0
        )
        self.events = self.bucket.queue("events", keep_seconds=0, dedup_seconds=0)
        self._journal = self.bucket.queue("deliveries", keep_seconds=0, dedup_seconds=0, expire_seconds=60)
        for queue in (self.queue, self.events, self._journal):
            queue.settings()
        self._rates = {
            "producer": messages / seconds / CAST["producer"],
            "writer": changes / seconds / CAST["writer"],
        }
        self._began = time.monotonic()
        for role, count in CAST.items():
            for number in range(count):
                self.stage.start(role, spared=number == 0)

    def _command(self, role: str, name: str, after: Player | None) -> list[str]:
        rate, done = self._rates.get(role, 0.0), 0
        if after is not None:
            done = self._done[name] = self._done.get(after.name, 0) + self._did(after)
        behind = max(0.0, (time.monotonic() - self._began) * rate - done)
        ledger, schedule = str(self._ledger(name)), (f"{rate:f}", f"{behind:f}")
        return [sys.executable, "-m", "bench.soak", "play", role, self._through, ledger, *schedule]

    def _ledger(self, name: str) -> Path:
        return self.ledgers / f"{name}.ledger"

    def _did(self, player: Player) -> int:
        """How many messages or changes the player sent, by its ledger."""
        path, word = self._ledger(player.name), PACED.get(player.role)
        if word is None or not path.exists():
            return 0
        with path.open() as lines:
            return sum(line.count(",") + 1 for line in lines if line.startswith(word))

    def tick(self, *, pause_seconds: tuple[float, float]) -> None:
        """Disturb, trim and sample, each when it is time."""
        now = time.monotonic()
        if now >= self._strike_at:
            if self._strike_at:
                self.stage.strike()
            self._strike_at = now + self._dice.uniform(*pause_seconds)
        self._keep_up(now)

    def _keep_up(self, now: float) -> None:
        self.stage.wake(now)
        if now >= self._trim_at:
            self._trim_at = now + TRIM_SECONDS
            self._trim()
        if now >= self._sample_at:
            self._sample_at = now + max(5.0, self._seconds / 120)
            for role in CAST:
                self.samples.processes(role, [each.process.pid for each in self.stage.alive(role)])
            self.samples.processes("director", [os.getpid()])
            self.samples.bucket(*self._store, self.folder)

    def _trim(self) -> None:
        """A player that is frozen while it holds a lock of the folder keeps it, and only this loop wakes players: then
        the rest waits for the next time."""
        try:
            for queue in (self.queue, self.events, self._journal):
                queue.trim()
        except Unavailable:
            self.stage.did["trim held up"] += 1

    def progress(self) -> str:
        """One line. A few requests."""
        queue, events = self.queue.stats(), self.events.stats()
        killed = sum(count for what, count in self.stage.did.items() if what.startswith("killed"))
        return (
            f"{self.name}: {queue.sent:,} sent, {queue.depth:,} not settled, {queue.dead:,} dead; {events.sent:,} "
            f"changes, {events.depth:,} not seen; {killed} killed, {self.stage.did['froze']} frozen"
        )

    def finish(self) -> tuple[list[str], dict[str, Any]]:
        """Let everything end, and audit. What was broken, and the figures."""
        if self.proxy is not None:
            self.proxy.calm()
        self.stage.wake()
        for role in ("producer", "writer"):
            for player in self.stage.alive(role):
                player.process.terminate()
        began = time.monotonic()
        problems = []
        while not self._is_drained():
            if time.monotonic() - began > DRAIN_SECONDS:
                problems.append(
                    f"not drained within {DRAIN_SECONDS:.0f} s: {self.queue.stats()}, {self.events.stats()}"
                )
                break
            self._keep_up(time.monotonic())
            time.sleep(0.5)
        drained = time.monotonic() - began
        self.stage.stop()
        dead = [letter.body for letter in self.queue.dead_letters.peek(1_000_000)]
        broken, figures = audit(self.ledgers, dead)
        problems += broken
        if self._seconds >= FLAT_SECONDS:
            problems += self.samples.growing()
            problems += [
                f"too slow: {figures[what]:,} {what} of {count:,}"
                for what, count in self._asked.items()
                if figures[what] < SCHEDULE_MIN * count
            ]
        if complaints := self.stage.complaints():
            problems.append(f"a player printed: {complaints}")
        self.bucket.close()
        return problems, {
            **figures,
            "drain_seconds": round(drained, 1),
            "disturbed": dict(self.stage.did),
            "connections": dict(self.proxy.faults) if self.proxy is not None else {},
            "samples": self.samples.summary(),
        }

    def _is_drained(self) -> bool:
        if self.stage.alive("producer") or self.stage.alive("writer"):
            return False
        queue, events = self.queue.stats(), self.events.stats()
        return not (queue.depth or queue.delayed or events.depth)
