"""The source beside Spark's JSON and Parquet file streams, on the same rows, into nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from bench.places import folder
from bench.results import OURS, Measurement, Target, measured
from bench.spark import bare
from bench.spark.queries import in_turn, ratios, run
from bench.spark.rows import BODY_SCHEMA, make
from bench.spark.sizes import Sizes

SCENARIO = "read"
JSON, PARQUET = "Spark's JSON", "Spark's Parquet"


def against_files(spark: Any, sizes: Sizes) -> Iterator[Measurement]:
    for count in sizes.rows:
        with folder() as path:
            rows = make(spark, count, path)
            whole = {
                OURS: partial(run, rows.queue(), "noop", path),
                JSON: partial(run, rows.files("json"), "noop", path),
                PARQUET: partial(run, rows.files("parquet"), "noop", path),
                bare.NAME: partial(run, rows.batches(), "noop", path),
            }
            yield from _compared("whole rows", whole, sizes, count, Target(at_least=2))
            parsed = {
                OURS: partial(run, rows.queue(bodySchema=BODY_SCHEMA, columns="id,key,body,sent_at"), "noop", path),
                JSON: partial(run, rows.lines(), "noop", path),
            }
            yield from _compared("bodies parsed", parsed, sizes, count, None)


def _compared(
    what: str, subjects: dict[str, Any], sizes: Sizes, count: int, target: Target | None
) -> Iterator[Measurement]:
    found = in_turn(subjects, sizes, count)
    for name, runs in found.items():
        speeds = [each.rows_per_second for each in runs]
        details = {"seconds with the start": [round(each.seconds, 2) for each in runs]}
        yield measured(SCENARIO, what, speeds, "rows/s", subject=name, depth=count, details=details)
    for peer in (JSON, PARQUET, bare.NAME):
        if peer in found:
            times = ratios(found[OURS], found[peer])
            goal = target if peer == JSON else None
            yield measured(SCENARIO, f"{what}: times {peer}", times, "×", depth=count, target=goal)
