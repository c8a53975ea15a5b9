"""Running the parts of an application on one machine: a process each, started again when it dies, ended in order.

A part says that it is ready with a line of JSON, `{"part": ..., "url": ...}`. Everything else that it prints is passed
on with its name before it. What a part does is not known here.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

import msgspec

from bucketmq.crew import Crew, Member
from bucketmq.errors import BucketMQError, Invalid

LOOK_SECONDS = 0.2
PROGRESS_SECONDS = 5.0
"""How often is said that a part is still starting."""
PAUSES_SECONDS = (1.0, 2.0, 5.0, 15.0, 30.0)
"""How long a part that died is left alone before it is started again, the more often it did so in a row."""
STEADY_SECONDS = 60.0
"""A part that has run for so long and then dies has not failed in a row."""
STARTS_MAX = 3
"""A part that was never ready is started so often; then all ends, with its error."""
LOG_BYTES_MAX = 8 << 20
USAGE = 2
"""The exit code of a command that is wrong as written: starting it again would not help."""


class _Ready(msgspec.Struct):
    part: str
    url: str = ""


class Part:
    """One process, and how it stands."""

    def __init__(self, member: Member) -> None:
        self.member = member
        self.ready = False
        """Whether this start of it is ready."""
        self.was_ready = False
        self.url = ""
        self.starts = 1
        self.failures = 0
        self.started_at = self.told_at = time.monotonic()
        self.start_at: float | None = None
        """When it is to be started again."""
        self._position = 0
        self._rest = b""

    def lines(self) -> list[str]:
        """What it has printed since the last time, in whole lines."""
        with self.member.log.open("rb") as log:
            log.seek(self._position)
            read = log.read()
        self._position += len(read)
        if self._position > LOG_BYTES_MAX:
            with self.member.log.open("r+b") as log:  # it is written at its end, wherever that is
                log.truncate(0)
            self._position = 0
        *whole, self._rest = (self._rest + read).split(b"\n")
        return [line.decode(errors="replace") for line in whole]


Tell = Callable[[str, str], None]
"""Told what happens: which part ("" for all of them), and what."""


class Supervisor:
    """The parts: what each is called, and the words of its command. Leaving the `with` block ends them all."""

    def __init__(
        self,
        commands: Mapping[str, Sequence[str]],
        *,
        folder: Path,
        environment: Mapping[str, str],
        tell: Tell,
        module: str = "bucketmq.cli",
        pauses_seconds: Sequence[float] = PAUSES_SECONDS,
    ) -> None:
        self.parts: dict[str, Part] = {}
        self._commands = commands
        self._tell = tell
        self._crew = Crew(folder, environment, module)
        self._pauses = pauses_seconds

    def __enter__(self) -> Self:
        try:
            for name, words in self._commands.items():
                self.parts[name] = Part(self._crew.start(name, *words))
        except BaseException:
            self._crew.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._crew.__exit__()
        for name, part in self.parts.items():
            self._pass_on(name, part)

    @property
    def ready(self) -> bool:
        return all(part.ready for part in self.parts.values())

    def stay(self, is_over: Callable[[], bool]) -> None:
        """Look after them until it is over."""
        while not is_over():
            self.look()
            time.sleep(LOOK_SECONDS)

    def look(self) -> None:
        """Pass on what was said, notice which are ready, start again what died. Raises if one cannot be started."""
        for name, part in self.parts.items():
            self._pass_on(name, part)
            if part.start_at is not None:
                if time.monotonic() >= part.start_at:
                    self._start(name, part)
            elif not part.member.running:
                self._pass_on(name, part)
                self._fell(name, part)
            elif not part.ready and time.monotonic() >= part.told_at + PROGRESS_SECONDS:
                part.told_at = time.monotonic()
                self._tell(name, f"is starting, {part.told_at - part.started_at:.0f} s")

    def _pass_on(self, name: str, part: Part) -> None:
        for line in part.lines():
            try:
                told = msgspec.json.decode(line, type=_Ready)
            except msgspec.MsgspecError:
                self._tell(name, line)
                continue
            part.ready = part.was_ready = True
            part.url = told.url
            self._tell(name, f"ready at {told.url}" if told.url else "ready")

    def _start(self, name: str, part: Part) -> None:
        part.member.restart()
        part.start_at = None
        part.started_at = part.told_at = time.monotonic()
        part.starts += 1
        self._tell(name, "started again")

    def _fell(self, name: str, part: Part) -> None:
        code = part.member.process.returncode
        words = part.member.last_words()
        if code == USAGE:
            raise Invalid(f"{name} cannot run: {words}")
        part.ready = False
        part.failures = 1 if time.monotonic() - part.started_at > STEADY_SECONDS else part.failures + 1
        if not part.was_ready and part.failures >= STARTS_MAX:
            raise BucketMQError(f"{name} ended {part.failures} times before it was ready, last with {code}: {words}")
        pause = self._pauses[min(part.failures, len(self._pauses)) - 1]
        part.start_at = time.monotonic() + pause
        self._tell(name, f"ended by itself ({_cause(code)}); is started again in {pause:g} s")


def _cause(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
