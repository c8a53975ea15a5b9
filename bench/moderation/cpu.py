"""Whose CPU seconds they were: a crew's processes and all below them, by what they do. Reads /proc, so Linux alone."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from pathlib import Path

import msgspec

JVM = "Spark's JVM"
WORKERS = "Python workers"
CLIENTS = "clients"
"""This process: submits, takes the notices, and looks whether everything is done."""


class _Process(msgspec.Struct, frozen=True):
    parent: int
    own: int
    """Ticks of its own."""
    gone: int
    """Ticks of children that ended and that it has waited for."""
    program: str


def spent(members: Mapping[str, int]) -> dict[str, float]:
    """CPU seconds so far, by part: the members (name -> pid) themselves, the JVM and the workers below them, and this
    process."""
    processes = _processes()
    names = {pid: name for name, pid in members.items()}
    ticks = dict.fromkeys(members, 0)
    for pid, process in processes.items():
        if _is_below(pid, names, processes):
            part = names.get(pid) or (JVM if process.program.endswith("java") else WORKERS)
            ticks[part] = ticks.get(part, 0) + process.own
            # What the JVM has waited for are Python's workers.
            below = WORKERS if part == JVM else part
            ticks[below] = ticks.get(below, 0) + process.gone
    second = os.sysconf("SC_CLK_TCK")
    return {name: count / second for name, count in ticks.items()} | {CLIENTS: time.process_time()}


def between(before: Mapping[str, float], after: Mapping[str, float]) -> dict[str, float]:
    return {name: seconds - before.get(name, 0.0) for name, seconds in after.items()}


def _processes() -> dict[int, _Process]:
    found = {}
    for path in Path("/proc").glob("[0-9]*"):
        try:
            fields = (path / "stat").read_text().rpartition(")")[2].split()
            program = (path / "cmdline").read_bytes().partition(b"\0")[0].decode(errors="replace")
        except OSError:
            continue  # it has ended
        parent, (own_user, own_system, gone_user, gone_system) = int(fields[1]), map(int, fields[11:15])
        found[int(path.name)] = _Process(parent, own_user + own_system, gone_user + gone_system, program)
    return found


def _is_below(pid: int, names: Mapping[int, str], processes: Mapping[int, _Process]) -> bool:
    while pid not in names and pid in processes:
        pid = processes[pid].parent
    return pid in names
