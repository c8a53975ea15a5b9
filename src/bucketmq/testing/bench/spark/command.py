"""The command: which scenarios, at which size, and where the results go."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from bucketmq.errors import BucketMQError
from bucketmq.spark.session import session
from bucketmq.testing.bench import plot as plots
from bucketmq.testing.bench.command import OUTPUT, default_file, measure_of, save_json
from bucketmq.testing.bench.results import Measurement
from bucketmq.testing.bench.spark import fixed, plot, reading, requests, segments, sizes, writing
from bucketmq.testing.bench.spark.sizes import Sizes
from bucketmq.testing.bench.table import progress, show

Scenario = Callable[[Any, Sizes], Iterator[Measurement]]

SCENARIOS: dict[str, tuple[Scenario, str]] = {
    "read": (reading.against_files, "our source beside Spark's JSON and Parquet streams, on the same rows"),
    "write": (writing.against_files, "our sink beside Spark's JSON and Parquet sinks, of the same rows"),
    "fixed": (fixed.of_a_batch, "a micro-batch of one row"),
    "segments": (segments.tiny_and_large, "many tiny segments beside a few large ones"),
    "requests": (requests.for_a_million, "requests to the store for a million rows"),
}


def run(args: list[str], spark: Any = None) -> int:
    """Run what `args` name, in this session or one of its own; the exit code is 0 unless a scenario broke."""
    options = _parser().parse_args(args)
    amounts = sizes.ALL["quick" if options.quick else options.size]
    if options.rows:
        amounts = msgspec.structs.replace(amounts, rows=tuple(options.rows))
    chosen = options.only or list(SCENARIOS)
    try:
        if options.plot is not None:
            plots.check()
        made = spark or session(f"local[{os.cpu_count() or 2},4]", name="bench")
        scenarios = {name: (partial(scenario, made), text) for name, (scenario, text) in SCENARIOS.items()}
        report = measure_of(scenarios, chosen, amounts)
        if spark is None:
            made.stop()
        save_json(report, options.json or default_file(report, "spark"))
        if options.plot is not None:
            plot.save(report, options.plot)
            progress(f"plot: {options.plot}")
    except BucketMQError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    show(report, sys.stdout)
    return 1 if report.broken else 0


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:10} {text}" for name, (_, text) in SCENARIOS.items())
    parser = argparse.ArgumentParser(
        prog="python -m bucketmq.testing.bench.spark",
        description="Measure the Spark connector beside Spark's own file streams, in the same run.",
        epilog=f"scenarios:\n{listed}\n\nFolders are made where TMPDIR says; the full size needs some 5 GB there.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="some minutes, for a first impression")
    parser.add_argument("--size", choices=list(sizes.ALL), default="full", help=argparse.SUPPRESS)
    parser.add_argument(
        "--only", action="append", choices=list(SCENARIOS), metavar="NAME", help="this scenario; may be repeated"
    )
    parser.add_argument("--rows", nargs="+", type=int, metavar="N", help="read and write so many rows instead")
    parser.add_argument("--json", type=Path, metavar="FILE", help=f"results as JSON (default: a new file in {OUTPUT}/)")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="a picture of the results")
    return parser
