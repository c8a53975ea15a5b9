"""A picture of the comparison by depth. Needs matplotlib, from the extra `bench`."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from bench.results import Report
from bucketmq.errors import Unsupported

PANELS = (
    ("send", "messages/s"),
    ("receive and ack", "messages/s"),
    ("end to end", "messages/s"),
    ("receive and ack", "bytes"),
)


def check() -> None:
    """Raise `Unsupported` now rather than after a quarter of an hour."""
    try:
        importlib.import_module("matplotlib")
    except ImportError as error:
        raise Unsupported("plots need matplotlib; run: pip install 'bucketmq[bench]'") from error


def save(report: Report, path: Path) -> None:
    """Write one panel for each of `PANELS`, both axes logarithmic."""
    module: Any = importlib.import_module("matplotlib.figure")  # not by name: the types are not there without the extra
    figure = module.Figure(figsize=(11, 8), layout="constrained")
    axes: Any = figure.subplots(2, 2)
    for axis, (what, unit) in zip(axes.flat, PANELS, strict=True):
        lines: dict[str, list[tuple[int, float]]] = {}
        for each in report.measurements:
            if (each.scenario, each.what, each.unit) == ("depth", what, unit) and each.depth is not None:
                lines.setdefault(each.subject, []).append((max(each.depth, 1), each.value))
        for subject, points in lines.items():
            axis.plot(*zip(*sorted(points), strict=True), marker="o", label=subject)
        axis.set(title=what, xlabel="depth (messages)", ylabel=unit, xscale="log", yscale="log")
        axis.grid(visible=True, alpha=0.3)
        if lines:
            axis.legend()
    machine = report.machine
    figure.suptitle(f"bucketmq {machine.bucketmq}, folder with fsync, {machine.cores} cores, {machine.python}")
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=120)
