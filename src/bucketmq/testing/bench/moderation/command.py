"""The command: which scenarios, at which size, and where the results go."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from bucketmq.errors import BucketMQError
from bucketmq.testing.bench.command import OUTPUT, default_file, measure_of, save_json
from bucketmq.testing.bench.moderation import classifier, sizes, whole
from bucketmq.testing.bench.moderation.sizes import Sizes
from bucketmq.testing.bench.results import Measurement
from bucketmq.testing.bench.table import show

Scenario = Callable[[Sizes], Iterator[Measurement]]

SCENARIOS: dict[str, tuple[Scenario, str]] = {
    "classifier": (classifier.by_itself, "the embedded model alone"),
    "whole": (whole.compared, "posts from submission to notice, by classifier and by cores"),
}


def run(args: list[str]) -> int:
    """Run what `args` name; the exit code is 0 unless a scenario broke."""
    options = _parser().parse_args(args)
    try:
        report = measure_of(SCENARIOS, options.only or list(SCENARIOS), _amounts(options))
        save_json(report, options.json or default_file(report, "moderation"))
    except BucketMQError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    show(report, sys.stdout)
    return 1 if report.broken else 0


def _amounts(options: argparse.Namespace) -> Sizes:
    amounts = sizes.ALL["quick" if options.quick else options.size]
    if options.classifier:
        amounts = msgspec.structs.replace(amounts, classifiers=tuple(options.classifier))
    if options.cores:
        amounts = msgspec.structs.replace(amounts, cores=tuple(options.cores))
    if options.partitions:
        amounts = msgspec.structs.replace(amounts, partitions=options.partitions)
    return amounts


def _parser() -> argparse.ArgumentParser:
    listed = "\n".join(f"  {name:10} {text}" for name, (_, text) in SCENARIOS.items())
    parser = argparse.ArgumentParser(
        prog="python -m bucketmq.testing.bench.moderation",
        description="Measure the moderation pipeline as a whole, and where its time goes.",
        epilog=f"scenarios:\n{listed}\n\nFolders are made where TMPDIR says: put it on a real disk, not on tmpfs.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="some minutes, for a first impression")
    parser.add_argument("--size", choices=list(sizes.ALL), default="full", help=argparse.SUPPRESS)
    parser.add_argument(
        "--only", action="append", choices=list(SCENARIOS), metavar="NAME", help="this scenario; may be repeated"
    )
    parser.add_argument("--classifier", nargs="+", choices=["none", "embedded"], help="these alone")
    parser.add_argument("--cores", nargs="+", type=int, metavar="N", help="on so many cores instead of 1 and 2")
    parser.add_argument("--partitions", type=int, metavar="N", help="have Spark cut each batch into N tasks at least")
    parser.add_argument("--json", type=Path, metavar="FILE", help=f"results as JSON (default: a new file in {OUTPUT}/)")
    return parser
