"""The command: which scenarios, at which size, and where the results go."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator

import msgspec

from bench import suite
from bench.moderation import classifier, lengths, routed, sizes, whole
from bench.moderation.sizes import Sizes
from bench.results import Measurement

Scenario = Callable[[Sizes], Iterator[Measurement]]

SCENARIOS: dict[str, tuple[Scenario, str]] = {
    "classifier": (classifier.by_itself, "the embedded model alone"),
    "lengths": (lengths.compared, "the embedded model by length, beside encoding everything"),
    "router": (routed.by_itself, "the router alone, by how many posts come at a time"),
    "whole": (whole.compared, "posts from submission to notice, by classifier and by cores"),
}


def run(args: list[str]) -> int:
    """Run what `args` name; the exit code is 0 unless a scenario broke."""
    options = _parser().parse_args(args)
    return suite.run(options, SCENARIOS, _amounts(options), "moderation")


def _amounts(options: argparse.Namespace) -> Sizes:
    amounts = suite.amounts_of(options, sizes.ALL)
    if options.classifier:
        amounts = msgspec.structs.replace(amounts, classifiers=tuple(options.classifier))
    if options.cores:
        amounts = msgspec.structs.replace(amounts, cores=tuple(options.cores))
    if options.partitions:
        amounts = msgspec.structs.replace(amounts, partitions=options.partitions)
    return amounts


def _parser() -> argparse.ArgumentParser:
    made = suite.parser(
        "python -m bench.moderation",
        "Measure the moderation pipeline as a whole, and where its time goes.",
        {name: text for name, (_, text) in SCENARIOS.items()},
        sizes.ALL,
        note=": put it on a real disk, not on tmpfs.",
        quick="some minutes",
    )
    made.add_argument("--classifier", nargs="+", choices=["none", "embedded"], help="these alone")
    made.add_argument("--cores", nargs="+", type=int, metavar="N", help="on so many cores instead of 1 and 2")
    made.add_argument("--partitions", type=int, metavar="N", help="have Spark cut each batch into N tasks at least")
    return made
