"""Processes of a queue, somebody who kills and freezes them, and the audit of what they say they did."""

from __future__ import annotations

import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

import bucketmq
from bucketmq.testing import tormented
from processes.player import checked

PLAYER = Path(__file__).with_name("player.py")


class Stage(tormented.Stage):
    """Producers and workers of one queue."""

    def __init__(self, url: str, folder: Path, seed: int, count: int) -> None:
        super().__init__(folder, seed, self._command)
        self.url = url
        self.count = count

    def _command(self, role: str, name: str, after: tormented.Player | None) -> list[str]:
        more = [str(self.count)] if role == "producer" else []
        if role == "producer" and after is not None:
            more.append(str(self.folder / f"{after.name}.ledger"))
        return [sys.executable, str(PLAYER), role, self.url, name, str(self.folder), *more]

    def wait_until_drained(self, queue: Any, seconds: float) -> None:
        """Until every producer is done and nothing is left to do; that it ends at all is part of the promise."""
        deadline = time.monotonic() + seconds
        while True:
            stats = queue.stats()
            if not self.alive("producer") and not stats.depth and not stats.delayed:
                return
            assert time.monotonic() < deadline, f"not drained within {seconds} s: {stats}\n{self.complaints()}"
            time.sleep(0.1)


class Audit:
    """What the ledgers say against what is in the bucket."""

    def __init__(self, stage: Stage, queue: Any) -> None:
        self.notes: dict[str, list[str]] = {}
        for path in stage.folder.glob("*.ledger"):
            for line in path.read_text().splitlines():
                word, id_, *_ = line.split()
                self.notes.setdefault(word, []).append(id_)
        self.log = Counter(body["id"] for body in self._bodies(queue))
        self.dead = Counter(letter.body["id"] for letter in queue.dead_letters.peek(100_000))
        self.stats = queue.stats()

    def _bodies(self, queue: Any) -> list[Any]:
        positions: dict[int, int] = {}
        bodies = []
        while seen := queue.tail(positions):
            bodies += [message.body for message in seen]
        assert all(body == checked(body["id"]) for body in bodies), "a body is not what was sent"
        return bodies

    def of(self, word: str) -> set[str]:
        return set(self.notes.get(word, ()))

    def check(self) -> None:
        tried, sent, log = self.of("try"), self.of("sent"), set(self.log)
        assert not sent - log, f"LOST: sends that returned and are nowhere: {sorted(sent - log)[:5]}"
        assert not log - tried, f"PHANTOM: {sorted(log - tried)[:5]}"
        assert not self.of("got") - tried, "PHANTOM: delivered and never sent"
        twice = {id_: count for id_, count in self.log.items() if count > 1}
        assert not twice, f"DOUBLE: one send, several messages: {twice}"
        # Every message in the log has come to an end.
        assert (self.stats.depth, self.stats.in_flight, self.stats.delayed) == (0, 0, 0)
        acks = Counter(self.notes.get("ack-ok", ()))
        assert max(acks.values(), default=0) <= 1, f"ACKED TWICE: {[i for i, n in acks.items() if n > 1][:5]}"
        assert max(self.dead.values(), default=0) <= 1, "DEAD TWICE"
        assert not set(acks) & set(self.dead), "acked and dead"
        # An end that nobody saw confirmed was at least begun by somebody.
        unseen = log - set(acks) - set(self.dead)
        assert not unseen - self.of("ack"), f"VANISHED: {sorted(unseen - self.of('ack'))[:5]}"

    def summary(self) -> str:
        words = ("try", "sent", "got", "ack-ok", "retry-ok", "release-ok", "bury-ok", "lost", "failed")
        return " ".join(f"{word}={len(self.notes.get(word, ()))}" for word in words)


def lines(folder: Path, word: str) -> list[str]:
    found = []
    for path in folder.glob("*.ledger"):
        found += [line for line in path.read_text().splitlines() if line.split()[0] == word]
    return found


def connect(url: str) -> bucketmq.Bucket:
    return bucketmq.connect(url, probe=False)
