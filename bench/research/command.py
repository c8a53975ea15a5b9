"""The command: trials through workers and a folder, and the same trials in a bare pool."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bench import suite
from bench.machine import load_now
from bench.research import burn
from bench.results import BARE, Measurement, Target
from bucketmq import aio
from bucketmq.apps.research import study
from bucketmq.apps.research.local import carry_out
from bucketmq.apps.research.plan import Plan, read_plan

SLOTS = 2
SECONDS = 0.010
WHAT = "trials of 10 ms on two cores"


class Sizes(msgspec.Struct, frozen=True):
    name: str
    trials: int


ALL = {each.name: each for each in (Sizes("tiny", 20), Sizes("quick", 400), Sizes("full", 1_000))}


def plan_of(trials: int) -> Plan:
    return read_plan(
        {
            "study": "bench",
            "simulator": "bench.research.burn:simulate",
            "version": burn.VERSION,
            "parameters": [{"name": "x", "values": list(range(trials // 10))}],
            "fixed": {"seconds": SECONDS},
            "metrics": [{"name": "n"}],
            "seeds": 10,
            "budget": trials,
        }
    )


def compared(sizes: Sizes) -> Iterator[Measurement]:
    """From the start of the study to its report, then the same trials in a pool of `multiprocessing`."""
    count = plan_of(sizes.trials).budget
    with tempfile.TemporaryDirectory(prefix="bucketmq-bench-") as folder:
        seconds, cpu, requests = asyncio.run(_study(folder, plan_of(sizes.trials)))
    target = Target(at_most=15.0) if sizes.name == "full" else None
    reached = target.reached(seconds) if target else None
    load = load_now()
    yield Measurement("trials", WHAT, seconds, "s", runs=(seconds,), target=target, reached=reached, load=load)
    yield Measurement("trials", "processor time beyond the trials, each", 1000 * (cpu - count * SECONDS) / count, "ms")
    yield Measurement("trials", "requests of a trial", requests / count, "requests")
    bare = _bare(count)
    yield Measurement("trials", WHAT, bare, "s", subject=BARE, runs=(bare,), load=load_now())


async def _study(folder: str, plan: Plan) -> tuple[float, float, float]:
    """Seconds, seconds on the processor, and requests."""
    root = str(Path(__file__).parents[2])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
    async with aio.connect(f"{folder}/bucket") as bucket:
        before, cpu, began = bucket.requests, _cpu(), time.monotonic()
        await bucket.run(study.start(bucket.api, plan))
        await carry_out(bucket, plan.study, slots=SLOTS, allowed=(plan.simulator,))
        seconds, spent = time.monotonic() - began, bucket.requests - before
    made = spent.get + spent.create + spent.replace + spent.list + spent.look
    return seconds, _cpu() - cpu, made


def _cpu() -> float:
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def _bare(count: int) -> float:
    jobs = [({"seconds": SECONDS}, number) for number in range(count)]
    began = time.monotonic()
    with multiprocessing.get_context("spawn").Pool(SLOTS) as pool:
        pool.starmap(burn.simulate, jobs, chunksize=8)
    return time.monotonic() - began


SCENARIOS = {"trials": (compared, "a study of short trials, beside a bare pool of processes")}


def run(args: list[str]) -> int:
    """Run what `args` name; the exit code is 0 unless a scenario broke."""
    options = suite.parser(
        "python -m bench.research",
        "Measure what a study costs beyond its trials.",
        {name: text for name, (_, text) in SCENARIOS.items()},
        ALL,
        note=": put it on a real disk, not on tmpfs.",
        quick="half a minute",
    ).parse_args(args)
    return suite.run(options, SCENARIOS, suite.amounts_of(options, ALL), "research")
