"""The sink beside Spark's JSON and Parquet file sinks. The rows come from Parquet files, Spark's quickest source."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from bench.places import folder
from bench.results import OURS, Measurement, Target, measured
from bench.spark import bare
from bench.spark.queries import Took, in_turn, ratios, run
from bench.spark.reading import JSON, PARQUET
from bench.spark.rows import Rows, make
from bench.spark.sizes import Sizes

SCENARIO = "write"


def against_files(spark: Any, sizes: Sizes) -> Iterator[Measurement]:
    for count in sizes.rows:
        with folder() as path:
            rows = make(spark, count, path)
            spark.dataSource.register(bare.BareSource)
            text = rows.files("parquet").select("key", "body")
            for what, stream in (("bodies of JSON text", text), ("bodies of structs", rows.structs())):
                subjects = {
                    OURS: partial(_into_queue, rows, stream),
                    JSON: partial(run, stream, "json", path),
                    PARQUET: partial(run, stream, "parquet", path),
                    bare.NAME: partial(run, stream, bare.FORMAT, path),
                    "nowhere": partial(run, stream, "noop", path),
                }
                found = in_turn(subjects, sizes, count)
                for name, runs in found.items():
                    speeds = [each.rows_per_second for each in runs]
                    yield measured(SCENARIO, what, speeds, "rows/s", subject=name, depth=count)
                for peer, goal in ((JSON, Target(at_least=2)), (PARQUET, None), (bare.NAME, None)):
                    times = ratios(found[OURS], found[peer])
                    yield measured(SCENARIO, f"{what}: times {peer}", times, "×", depth=count, target=goal)


def _into_queue(rows: Rows, stream: Any) -> Took:
    with folder() as path:
        return run(stream, "bucketmq", rows.folder, path=path.as_uri(), queue="copy")
