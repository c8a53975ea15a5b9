"""Parts of an application as processes that are killed. What looks after them is what `apps run` has, so one that ended
for whatever reason is started again: Spark ends a query when one of its Pythons has not started within ten seconds.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Mapping
from pathlib import Path

from bucketmq.apps.supervisor import Part, Supervisor
from processes.below import below


def supervised(
    app: str, parts: Mapping[str, tuple[str, ...]], folder: Path, environment: Mapping[str, str]
) -> Supervisor:
    """Each part by a name of its own, with the words behind `--only`."""
    commands = {name: ("--json", "apps", "run", app, "--only", *words) for name, words in parts.items()}
    environment = {**environment, "XDG_STATE_HOME": str(folder / "state")}  # checkpoints of this test alone
    return Supervisor(commands, folder=folder, environment=environment, tell=lambda *_: None, pauses_seconds=(0.0,))


def last_words(running: Supervisor) -> dict[str, str]:
    return {name: f"start {part.starts}: {part.member.last_words()}" for name, part in running.parts.items()}


def kill(part: Part, executor: bytes | None = None) -> None:
    """SIGKILL for the processes below it that have the mark; for the part itself where there are none."""
    workers = [] if executor is None else below(part.member.process.pid, executor)
    for pid in workers:  # all of them: the driver starts others
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    if not workers:
        part.member.kill()
