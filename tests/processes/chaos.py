"""Processes of a queue, somebody who kills and freezes them, and the audit of what they say they did."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import bucketmq

from .player import checked

PLAYER = Path(__file__).with_name("player.py")


@dataclass
class Player:
    """One process."""

    role: str
    name: str
    process: subprocess.Popen[bytes]
    frozen_until: float = 0.0


@dataclass
class Stage:
    """All processes of one run. Only processes started here are ever signalled, each by its own id."""

    url: str
    folder: Path
    seed: int
    count: int
    players: list[Player] = field(default_factory=list)
    did: Counter[str] = field(default_factory=Counter)
    _number: int = 0

    def start(self, role: str, *, after: Player | None = None) -> Player:
        self._number += 1
        name = f"{role}{self._number}"
        more = [str(self.count)] if role == "producer" else []
        if role == "producer" and after is not None:
            more.append(str(self.folder / f"{after.name}.ledger"))
        errors = (self.folder / f"{name}.stderr").open("wb")
        process = subprocess.Popen(
            [sys.executable, str(PLAYER), role, self.url, name, str(self.folder), *more],
            stdin=subprocess.DEVNULL,
            stdout=errors,
            stderr=errors,
        )
        errors.close()
        player = Player(role, name, process)
        self.players.append(player)
        return player

    def torment(self, seconds: float, *, pause_seconds: tuple[float, float] = (0.1, 0.5)) -> None:
        """Kill and freeze at random; a killed one is replaced. Frozen ones sleep for less or more than a lease."""
        rng = random.Random(self.seed)
        end = time.monotonic() + seconds
        time.sleep(rng.uniform(*pause_seconds))
        for role in ("producer", "worker"):  # one of each in any case: a quick producer is done before chance finds it
            victim = next((each for each in self.players if each.role == role and each.process.poll() is None), None)
            if victim is not None:
                self.kill(victim)
                self.start(role, after=victim)
        while time.monotonic() < end:
            time.sleep(rng.uniform(*pause_seconds))
            self._wake(time.monotonic())
            awake = [player for player in self.players if player.process.poll() is None and not player.frozen_until]
            if not awake:
                continue
            victim = rng.choice(awake)
            if rng.random() < 0.5:
                self.kill(victim)
                self.start(victim.role, after=victim)
            else:
                victim.process.send_signal(signal.SIGSTOP)
                victim.frozen_until = time.monotonic() + rng.uniform(0.1, 4.0)
                self.did["froze"] += 1
        self._wake(float("inf"))

    def _wake(self, now: float) -> None:
        for player in self.players:
            if 0 < player.frozen_until <= now:
                player.process.send_signal(signal.SIGCONT)
                player.frozen_until = 0.0

    def kill(self, player: Player) -> None:
        player.process.kill()
        player.process.wait()
        self.did[f"killed {player.role}"] += 1

    def wait_until_drained(self, queue: Any, seconds: float) -> None:
        """Until every producer is done and nothing is left to do; that it ends at all is part of the promise."""
        deadline = time.monotonic() + seconds
        while True:
            producing = any(player.role == "producer" and player.process.poll() is None for player in self.players)
            stats = queue.stats()
            if not producing and not stats.depth and not stats.delayed:
                return
            assert time.monotonic() < deadline, f"not drained within {seconds} s: {stats}\n{self.complaints()}"
            time.sleep(0.1)

    def stop(self) -> None:
        """Ask workers to end; end what does not. Every process here was started here."""
        self._wake(float("inf"))
        for player in self.players:
            if player.process.poll() is None:
                player.process.terminate()
        for player in self.players:
            try:
                player.process.wait(20)
            except subprocess.TimeoutExpired:
                player.process.kill()
                player.process.wait()

    def complaints(self) -> str:
        texts = {path.name: path.read_text(errors="replace")[-2000:] for path in self.folder.glob("*.stderr")}
        return "\n".join(f"{name}: {text}" for name, text in texts.items() if text)


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
        assert (self.stats.depth, self.stats.in_flight, self.stats.waiting) == (0, 0, 0)
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
