"""What may not grow: memory and file handles of processes, directories and objects of buckets."""

from __future__ import annotations

import contextlib
import os
import statistics
from collections.abc import Iterable
from pathlib import Path

from bucketmq.bucket.port import Store

FLAT_SECONDS = 600.0
"""A shorter soak is not asked to be flat: trimming leaves everything alone that is younger than two minutes."""

GROWTH_MAX = 1.3
SLACK = {"rss_mb": 20.0, "handles": 10.0, "directories": 100.0, "objects": 500.0}
"""What a quarter of the run may have more than an earlier one, beside the factor."""

CEILINGS = {"rss_mb watcher": 350.0}
"""What is not level within an hour but bounded. A watcher remembers the last 100,000 events, to recognise duplicates,
and up to 64 MB of segments."""


class Samples:
    """A series for each thing that is measured."""

    def __init__(self) -> None:
        self.series: dict[str, list[float]] = {}

    def add(self, name: str, value: float) -> None:
        self.series.setdefault(name, []).append(value)

    def processes(self, role: str, pids: Iterable[int]) -> None:
        """The largest of each kind, among the living."""
        found = [each for each in map(_process, pids) if each is not None]
        if found:
            self.add(f"rss_mb {role}", max(rss for rss, _ in found))
            self.add(f"handles {role}", max(handles for _, handles in found))

    def bucket(self, store: Store, prefix: str, folder: Path | None) -> None:
        after, count = "", 0
        while True:
            page = store.list(prefix, after=after, limit=1_000)
            count += len(page.entries)
            if not page.more:
                break
            after = max(entry.key for entry in page.entries)
        self.add("objects", count)
        if folder is not None:
            self.add("directories", sum(len(directories) for _, directories, _ in os.walk(folder)))

    def growing(self) -> list[str]:
        """What is larger in the last quarter than in the second, or above its ceiling."""
        found = [
            f"{name} grows beyond {ceiling:.0f}: {max(self.series[name]):.0f}"
            for name, ceiling in CEILINGS.items()
            if max(self.series.get(name, [0])) > ceiling
        ]
        for name, values in self.series.items():
            if name in CEILINGS:
                continue
            quarter = len(values) // 4
            if quarter:
                early, late = statistics.median(values[quarter : 2 * quarter]), statistics.median(values[-quarter:])
                if late > early * GROWTH_MAX + SLACK[name.split()[0]]:
                    found.append(f"{name} grows: {early:.0f} in the second quarter, {late:.0f} in the last")
        return found

    def summary(self) -> dict[str, str]:
        return {
            name: f"first {values[0]:.0f}, median {statistics.median(values):.0f}, most {max(values):.0f}, "
            f"last {values[-1]:.0f}"
            for name, values in sorted(self.series.items())
        }


def _process(pid: int) -> tuple[float, int] | None:
    """Resident memory in MB and open handles; None for one that has just ended, or where there is no /proc."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        if pages:
            return pages * os.sysconf("SC_PAGE_SIZE") / 1e6, sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())
    return None
