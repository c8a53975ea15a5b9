"""The command: which scenarios, at which size, and where the results go."""

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

from bucketmq.errors import BucketMQError
from bucketmq.testing.bench import (
    contention,
    depth,
    matching,
    plot,
    reception,
    sizes,
    sweeping,
    throughput,
    upkeep,
    webhooks,
)
from bucketmq.testing.bench.machine import this_machine
from bucketmq.testing.bench.results import Measurement, Report, with_ratios
from bucketmq.testing.bench.sizes import Sizes
from bucketmq.testing.bench.table import progress, show

Scenario = Callable[[Sizes], Iterator[Measurement]]

SCENARIOS: dict[str, tuple[Scenario, str]] = {
    "folder": (
        throughput.on_folder,
        "one sender, one receiver on a folder with fsync: end to end, drain, single sends",
    ),
    "seaweedfs": (throughput.on_seaweedfs, "the same on a real S3 server on loopback"),
    "depth": (depth.on_folder, "ours and the single-JSON queue at growing depth: speed, requests, bytes"),
    "depth-s3": (depth.at_latency, "the same at S3-like latency"),
    "sends": (contention.concurrent_sends, "many concurrent single sends from one process at S3-like latency"),
    "workers": (contention.workers, "more worker processes than shards at S3-like latency"),
    "tail": (upkeep.cold_tail, "a cold first send and stats on very many one-message segments"),
    "memory": (upkeep.memory, "a worker's memory by depth"),
    "idle": (upkeep.idle, "requests of a waiting worker"),
    "receiver": (reception.received, "notifications received and persisted, many callers at a time"),
    "webhooks": (webhooks.to_an_endpoint, "events delivered to an endpoint, beside the HTTP client alone"),
    "sweep": (sweeping.on_both, "the sweep beside the bare listing, on a folder and on SeaweedFS"),
    "rules": (matching.many_rules, "a hundred rules: deciding, and passing over what they do not want"),
}

OUTPUT = Path("bench-results")


def run(args: list[str]) -> int:
    options = _parser().parse_args(args)
    chosen = options.only or list(SCENARIOS)
    try:
        if options.plot is not None:
            plot.check()
        report = measure(chosen, _amounts(options))
        save_json(report, options.json or default_file(report))
        if options.plot is not None:
            plot.save(report, options.plot)
            progress(f"plot: {options.plot}")
    except BucketMQError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    show(report, sys.stdout)
    return 1 if report.broken else 0


def _amounts(options: argparse.Namespace) -> Sizes:
    amounts = sizes.ALL["quick" if options.quick else options.size]
    if options.keys is not None:
        amounts = msgspec.structs.replace(amounts, sweep_keys=tuple(options.keys))
    if options.keys_remote is not None:
        amounts = msgspec.structs.replace(amounts, sweep_keys_remote=tuple(options.keys_remote))
    return amounts


def measure(chosen: list[str], amounts: Sizes) -> Report:
    """Run these of `SCENARIOS`."""
    return measure_of(SCENARIOS, chosen, amounts)


class Named(Protocol):
    """Amounts of some kind, as a report names them."""

    @property
    def name(self) -> str: ...


Amounts = TypeVar("Amounts", bound=Named)


def measure_of(
    scenarios: Mapping[str, tuple[Callable[[Amounts], Iterator[Measurement]], str]],
    chosen: list[str],
    amounts: Amounts,
) -> Report:
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


def default_file(report: Report, *kind: str) -> Path:
    stamp = report.started_at.replace(":", "").replace("+0000", "Z")
    return OUTPUT / f"{'-'.join([stamp, *kind, report.sizes])}.json"


def save_json(report: Report, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")
    progress(f"results: {path}")


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:10} {text}" for name, (_, text) in SCENARIOS.items())
    parser = argparse.ArgumentParser(
        prog="bucketmq bench",
        description="Measure speed, requests and bytes, beside a single-JSON queue in the same run.",
        epilog=f"scenarios:\n{listed}\n\nFolders are made where TMPDIR says: put it on a real disk, not on tmpfs.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="about a minute, for a first impression")
    parser.add_argument("--size", choices=list(sizes.ALL), default="full", help=argparse.SUPPRESS)
    parser.add_argument(
        "--only", action="append", choices=list(SCENARIOS), metavar="NAME", help="this scenario; may be repeated"
    )
    parser.add_argument("--keys", nargs="*", type=int, metavar="N", help="sweep so many keys in a folder instead")
    parser.add_argument(
        "--keys-remote", nargs="*", type=int, metavar="N", help="the same on SeaweedFS; none: not there"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help=f"results as JSON (default: a new file in {OUTPUT}/)")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="a picture of the comparison by depth")
    return parser
