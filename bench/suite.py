"""What the bench commands share: their arguments, running the scenarios asked for, and keeping the results."""

from __future__ import annotations

import argparse
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol, TypeVar

import msgspec

from bench import plot
from bench.machine import this_machine
from bench.results import Measurement, Report, with_ratios
from bench.table import progress, show
from bucketmq.errors import BucketMQError

OUTPUT = Path("bench-results")


class Named(Protocol):
    """Amounts of some kind, as a report names them."""

    @property
    def name(self) -> str: ...


Amounts = TypeVar("Amounts", bound=Named)
Scenarios = Mapping[str, tuple[Callable[[Amounts], Iterator[Measurement]], str]]
"""By name: what measures, and what it says of itself."""


def parser(
    prog: str, description: str, listed: Mapping[str, str], sizes: Mapping[str, Named], *, note: str, quick: str
) -> argparse.ArgumentParser:
    """The arguments that every bench takes. `listed` are its scenarios."""
    lines = "\n".join(f"  {name:10} {text}" for name, text in listed.items())
    made = argparse.ArgumentParser(
        prog=prog,
        description=description,
        epilog=f"scenarios:\n{lines}\n\nFolders are made where TMPDIR says{note}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    made.add_argument("--quick", action="store_true", help=f"{quick}, for a first impression")
    made.add_argument("--size", choices=list(sizes), default="full", help=argparse.SUPPRESS)
    made.add_argument("--only", action="append", choices=list(listed), metavar="NAME", help="this one; may be repeated")
    made.add_argument("--json", type=Path, metavar="FILE", help=f"results as JSON (default: a new file in {OUTPUT}/)")
    return made


def amounts_of(options: argparse.Namespace, sizes: Mapping[str, Amounts]) -> Amounts:
    """The amounts that were asked for."""
    return sizes["quick" if options.quick else options.size]


def run(
    options: argparse.Namespace,
    scenarios: Scenarios[Amounts],
    amounts: Amounts,
    *kind: str,
    picture: Callable[[Report, Path], None] | None = None,
) -> int:
    """Measure, keep the results and show them; the exit code is 0 unless a scenario broke."""
    drawn: Path | None = options.plot if picture else None
    try:
        if drawn is not None:
            plot.check()
        report = measure(scenarios, options.only or list(scenarios), amounts)
        _save(report, options.json or _default_file(report, *kind))
        if picture is not None and drawn is not None:
            picture(report, drawn)
            progress(f"plot: {drawn}")
    except BucketMQError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    show(report, sys.stdout)
    return 1 if report.broken else 0


def measure(scenarios: Scenarios[Amounts], chosen: list[str], amounts: Amounts) -> Report:
    """Run the scenarios one after the other. One that cannot be run is reported and the rest goes on."""
    machine, began, started = this_machine(), time.monotonic(), datetime.now(UTC)
    found: list[Measurement] = []
    broken: dict[str, str] = {}
    for name in chosen:
        progress(f"{name}: {scenarios[name][1]} ...")
        try:
            for measurement in scenarios[name][0](amounts):
                found.append(measurement)
                progress(f"  {measurement.subject}: {measurement.what}: {measurement.value:,.1f} {measurement.unit}")
        except Exception as error:
            progress(traceback.format_exc())
            broken[name] = f"{type(error).__name__}: {error}".strip().splitlines()[-1]
    return Report(
        machine=machine,
        sizes=amounts.name,
        started_at=started.isoformat(timespec="seconds"),
        seconds=round(time.monotonic() - began, 1),
        measurements=with_ratios(found),
        broken=broken,
    )


def _default_file(report: Report, *kind: str) -> Path:
    stamp = report.started_at.replace(":", "").replace("+0000", "Z")
    return OUTPUT / f"{'-'.join([stamp, *kind, report.sizes])}.json"


def _save(report: Report, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    progress(f"results: {path}")
