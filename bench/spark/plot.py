"""A picture of a run: reading and writing by format, the fixed cost of a batch, tiny segments, whichever were measured.
Needs matplotlib."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

from bench.results import Measurement, Report

PANELS = (
    ("read", "rows/s", "Reading (higher is better)"),
    ("write", "rows/s", "Writing (higher is better)"),
    ("fixed", "ms", "A micro-batch of one row (lower is better)"),
    ("segments", "s", "Tiny and large segments (lower is better)"),
)


def save(report: Report, path: Path) -> None:
    module: Any = importlib.import_module("matplotlib.figure")  # not by name: the types are not there without the extra
    panels = [(title, unit, found) for scenario, unit, title in PANELS if (found := _of(report, scenario, unit))]
    rows = max(1, -(-len(panels) // 2))
    figure = module.Figure(figsize=(13, 4.5 * rows), layout="constrained")
    axes = figure.subplots(rows, 2, squeeze=False).flat
    for axis in axes[len(panels) :]:
        axis.set_visible(False)
    for axis, (title, unit, found) in zip(axes, panels, strict=False):
        _bars(axis, found)
        axis.set_title(title, fontsize=11)
        axis.set_xlabel(unit)
    machine = report.machine
    loads = [each.load for each in report.measurements if each.load is not None]
    figure.suptitle(
        f"bucketmq {machine.bucketmq} and PySpark, {machine.cores} cores, {machine.python}; medians and ranges of "
        f"{max((len(each.runs) for each in report.measurements), default=0)} rounds; load average "
        f"{min(loads, default=0):.1f} to {max(loads, default=0):.1f}",
        fontsize=12,
    )
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=110)


def _of(report: Report, scenario: str, unit: str) -> list[Measurement]:
    return [each for each in report.measurements if (each.scenario, each.unit) == (scenario, unit)]


def _bars(axis: Any, found: list[Measurement]) -> None:
    colours = {"bucketmq": "tab:blue", "Spark's JSON": "tab:orange", "Spark's Parquet": "tab:green"}
    for place, each in enumerate(reversed(found)):
        low, high = each.value - min(each.runs), max(each.runs) - each.value
        axis.barh(place, each.value, xerr=[[low], [high]], color=colours.get(each.subject, "tab:gray"))
    axis.set_yticks(range(len(found)), [_label(each) for each in reversed(found)], fontsize=8)
    axis.grid(visible=True, axis="x", alpha=0.3)


def _label(each: Measurement) -> str:
    rows = f", {each.depth / 1e6:g}M" if each.depth and each.unit == "rows/s" else ""
    return f"{each.what}{rows}: {each.subject}" if each.unit == "rows/s" else each.what
