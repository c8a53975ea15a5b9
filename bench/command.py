"""The command: which scenarios, at which size, and where the results go."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from bench import contention, depth, matching, plot, reception, sizes, suite, sweeping, throughput, upkeep, webhooks
from bench.results import Measurement
from bench.sizes import Sizes

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


def run(args: list[str]) -> int:
    """Run what `args` name; the exit code is 0 unless a scenario broke."""
    options = _parser().parse_args(args)
    return suite.run(options, SCENARIOS, _amounts(options), picture=plot.save)


def _amounts(options: argparse.Namespace) -> Sizes:
    amounts = suite.amounts_of(options, sizes.ALL)
    if options.keys is not None:
        amounts = msgspec.structs.replace(amounts, sweep_keys=tuple(options.keys))
    if options.keys_remote is not None:
        amounts = msgspec.structs.replace(amounts, sweep_keys_remote=tuple(options.keys_remote))
    return amounts


def _parser() -> argparse.ArgumentParser:
    made = suite.parser(
        "python -m bench",
        "Measure speed, requests and bytes, beside a single-JSON queue in the same run.",
        {name: text for name, (_, text) in SCENARIOS.items()},
        sizes.ALL,
        note=": put it on a real disk, not on tmpfs.",
        quick="about a minute",
    )
    made.add_argument("--keys", nargs="*", type=int, metavar="N", help="sweep so many keys in a folder instead")
    made.add_argument("--keys-remote", nargs="*", type=int, metavar="N", help="the same on SeaweedFS; none: not there")
    made.add_argument("--plot", type=Path, metavar="FILE.png", help="a picture of the comparison by depth")
    return made
