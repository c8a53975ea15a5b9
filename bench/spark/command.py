"""The command: which scenarios, at which size, and where the results go."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from bench import suite
from bench.results import Measurement
from bench.spark import fixed, plot, reading, requests, segments, sizes, writing
from bench.spark.sizes import Sizes
from bucketmq.spark.setup.session import session

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
    amounts = suite.amounts_of(options, sizes.ALL)
    if options.rows:
        amounts = msgspec.structs.replace(amounts, rows=tuple(options.rows))
    conf = dict(each.partition("=")[::2] for each in options.conf)
    made = spark or session(f"local[{os.cpu_count() or 2},4]", conf, name="bench")
    try:
        scenarios = {name: (partial(scenario, made), text) for name, (scenario, text) in SCENARIOS.items()}
        return suite.run(options, scenarios, amounts, "spark", picture=plot.save)
    finally:
        if spark is None:
            made.stop()


def _parser() -> argparse.ArgumentParser:
    made = suite.parser(
        "python -m bench.spark",
        "Measure the Spark connector beside Spark's own file streams, in the same run.",
        {name: text for name, (_, text) in SCENARIOS.items()},
        sizes.ALL,
        note="; the full size needs some 5 GB there.",
        quick="some minutes",
    )
    made.add_argument("--rows", nargs="+", type=int, metavar="N", help="read and write so many rows instead")
    made.add_argument(
        "--conf", action="append", default=[], metavar="NAME=VALUE", help="a setting of Spark's; may be repeated"
    )
    made.add_argument("--plot", type=Path, metavar="FILE.png", help="a picture of the results")
    return made
