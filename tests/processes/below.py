"""The processes that others have started, found in /proc: what to kill of a driver."""

from __future__ import annotations

from pathlib import Path

PYTHON_WORKER = b"\0pyspark.worker\0"
"""In one process with the driver, an executor is what runs stages: Python's side of it. Others plan, on the driver."""
EXECUTOR = b"CoarseGrainedExecutorBackend"


def below(ancestor: int, mark: bytes) -> list[int]:
    """The processes below this one that have the mark in their command line."""
    parents: dict[int, int] = {}
    marked = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if mark in (path / "cmdline").read_bytes():
                marked.append(int(path.name))
        except (OSError, ValueError):
            continue

    def is_below(pid: int) -> bool:
        while pid in parents:
            if pid == ancestor:
                return True
            pid = parents[pid]
        return False

    return [pid for pid in marked if is_below(pid)]
