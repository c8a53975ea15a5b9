"""Measurements as tables for a terminal: by rich where it is installed, plainly where not."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import groupby
from typing import TextIO

from bench.results import PEERS, Measurement, Report, Target

HEADINGS = ("what", "store", "depth", "queue", "value", "unit", "× peer", "target", "", "load")

WIDTH = 160
"""Of a table that goes into a file."""

WIDE = frozenset({"depth", "depth-s3"})
WIDE_HEADINGS = ("what", "depth", "queue", "messages/s", "× peer", "requests", "bytes", "× fewer", "load")
"""Where the same thing is measured in several units, they stand beside one another."""

NUMBERS = frozenset({"depth", "value", "× peer", "target", "load", "messages/s", "requests", "bytes", "× fewer"})


def show(report: Report, out: TextIO) -> None:
    machine = report.machine
    print(
        f"{machine.cores} cores ({machine.processor}), {machine.memory_bytes / (1 << 30):.0f} GiB, {machine.system}, "
        f"{machine.python}, bucketmq {machine.bucketmq}, load average {', '.join(map(str, machine.load))} at the start",
        file=out,
    )
    for scenario, group in groupby(report.measurements, key=lambda each: each.scenario):
        _show_one(scenario, list(group), out)
    for scenario, why in report.broken.items():
        print(f"\n{scenario}: not measured: {why}", file=out)
    judged = [each for each in report.measurements if each.reached is not None]
    reached = sum(1 for each in judged if each.reached)
    print(f"\n{reached} of {len(judged)} targets reached, sizes {report.sizes}, {report.seconds:.0f} s", file=out)


def _show_one(scenario: str, found: Sequence[Measurement], out: TextIO) -> None:
    headings, rows = (WIDE_HEADINGS, _wide(found)) if scenario in WIDE else (HEADINGS, [_row(each) for each in found])
    if not _rich(scenario, headings, rows, out):
        _plain(scenario, headings, rows, out)
    for note in dict.fromkeys(f"{each.what}: {each.note}" for each in found if each.note and each.subject not in PEERS):
        print(f"  {note}", file=out)


def _row(each: Measurement) -> tuple[str, ...]:
    return (
        each.what,
        each.store,
        f"{each.depth:,}" if each.depth is not None else "",
        each.subject,
        _number(each.value),
        each.unit,
        _times(each),
        _target(each.target) if each.target is not None else "",
        "" if each.reached is None else "reached" if each.reached else "not reached",
        f"{each.load:.1f}" if each.load is not None else "",
    )


def _wide(found: Sequence[Measurement]) -> list[tuple[str, ...]]:
    rows: dict[tuple[str, int | None, str], dict[str, Measurement]] = {}
    for each in found:
        rows.setdefault((each.what, each.depth, each.subject), {})[each.unit] = each
    cells: list[tuple[str, ...]] = []
    for (what, depth, subject), units in sorted(rows.items(), key=lambda row: (row[0][0], row[0][1] or 0)):
        speed, requests, size = (units.get(unit) for unit in ("messages/s", "requests", "bytes"))
        cells.append(
            (
                what,
                f"{depth:,}",
                subject,
                _number(speed.value) if speed else "",
                _times(speed),
                _number(requests.value) if requests else "",
                _number(size.value) if size else "",
                _times(size),
                f"{speed.load:.1f}" if speed and speed.load is not None else "",
            )
        )
    return cells


def _times(each: Measurement | None) -> str:
    return f"{_number(each.ratio)}×" if each is not None and each.ratio is not None else ""


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def _target(target: Target) -> str:
    return f">= {target.at_least:,.6g}" if target.at_least is not None else f"<= {target.at_most:,.6g}"


def _rich(title: str, headings: Sequence[str], rows: Sequence[tuple[str, ...]], out: TextIO) -> bool:
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        return False
    table = Table(title=title, title_justify="left")
    for heading in headings:
        table.add_column(heading, justify="right" if heading in NUMBERS else "left")
    for row in rows:
        table.add_row(*row, style="red" if "not reached" in row else None)
    print(file=out)
    Console(file=out, width=None if out.isatty() else WIDTH).print(table)
    return True


def _plain(title: str, headings: Sequence[str], rows: Sequence[tuple[str, ...]], out: TextIO) -> None:
    widths = [max(len(row[place]) for row in (headings, *rows)) for place in range(len(headings))]
    print(f"\n{title}", file=out)
    for row in (headings, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip(), file=out)


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
