"""Processes that are killed and frozen at random, and replaced: for tests and soaks on real stores.

What the processes do is the caller's: `Stage` is given a function that makes the command of a role. Only processes that
were started here are ever signalled, each by its own id.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

FROZEN_SECONDS = 0.1, 4.0
STOP_SECONDS = 20.0


@dataclass
class Player:
    """One process."""

    role: str
    name: str
    process: subprocess.Popen[bytes]
    frozen_until: float = 0.0
    spared: bool = False
    """Frozen, but never killed by `Stage.strike`: what grows with time shows in a process that lives long."""

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None


class Ledger:
    """Notes of one process, a short line each: what was written survives SIGKILL."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


Command = Callable[[str, str, Player | None], list[str]]
"""From role, name and the killed one that it takes over from, if any, to a command."""


@dataclass
class Stage:
    """All processes of one run; `folder` is where each leaves what it prints."""

    folder: Path
    seed: int
    command: Command
    players: list[Player] = field(default_factory=list)
    did: Counter[str] = field(default_factory=Counter)
    _number: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)

    def start(self, role: str, *, after: Player | None = None, spared: bool = False) -> Player:
        self._number += 1
        name = f"{role}{self._number}"
        with (self.folder / f"{name}.stderr").open("wb") as errors:
            process = subprocess.Popen(
                self.command(role, name, after), stdin=subprocess.DEVNULL, stdout=errors, stderr=errors
            )
        player = Player(role, name, process, spared=spared)
        self.players.append(player)
        return player

    def alive(self, role: str) -> list[Player]:
        return [player for player in self.players if player.role == role and player.is_alive]

    def strike(self) -> None:
        """Kill one that is awake and replace it, or freeze it for less or more than a lease. Wakes those who slept."""
        self.wake(time.monotonic())
        awake = [player for player in self.players if player.is_alive and not player.frozen_until]
        if not awake:
            return
        victim = self._random.choice(awake)
        if self._random.random() < 0.5 and not victim.spared:
            self.replace(victim)
        else:
            victim.process.send_signal(signal.SIGSTOP)
            victim.frozen_until = time.monotonic() + self._random.uniform(*FROZEN_SECONDS)
            self.did["froze"] += 1

    def replace(self, victim: Player) -> None:
        victim.process.kill()
        victim.process.wait()
        self.did[f"killed {victim.role}"] += 1
        self.start(victim.role, after=victim)

    def torment(self, seconds: float, *, pause_seconds: tuple[float, float] = (0.1, 0.5)) -> None:
        """Strike again and again, and one of each role in any case: a quick one is done before chance finds it."""
        end = time.monotonic() + seconds
        time.sleep(self._random.uniform(*pause_seconds))
        for role in sorted({player.role for player in self.players}):
            for victim in self.alive(role)[:1]:
                self.replace(victim)
        while time.monotonic() < end:
            time.sleep(self._random.uniform(*pause_seconds))
            self.strike()
        self.wake()

    def wake(self, now: float = float("inf")) -> None:
        for player in self.players:
            if 0 < player.frozen_until <= now:
                player.process.send_signal(signal.SIGCONT)
                player.frozen_until = 0.0

    def stop(self) -> None:
        """Ask all to end, and end those that do not."""
        self.wake()
        for player in self.players:
            if player.is_alive:
                player.process.terminate()
        for player in self.players:
            try:
                player.process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                player.process.kill()
                player.process.wait()

    def complaints(self) -> str:
        texts = {path.name: path.read_text(errors="replace")[-2000:] for path in self.folder.glob("*.stderr")}
        return "\n".join(f"{name}: {text}" for name, text in texts.items() if text)
