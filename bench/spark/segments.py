"""Many tiny segments, as many single sends leave them, beside a few large ones with the same rows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any

from bench.places import folder
from bench.results import Measurement, measured
from bench.spark.queries import in_turn, run
from bench.spark.rows import write_log
from bench.spark.sizes import Sizes

SCENARIO = "segments"


def tiny_and_large(spark: Any, sizes: Sizes) -> Iterator[Measurement]:
    count = sizes.segments * sizes.per_segment
    with folder() as path:
        names = {"tiny": f"{sizes.segments:,} tiny", "large": f"{sizes.segments // 1000} large"}
        write_log(path, "tiny", sizes.segments, sizes.per_segment)
        write_log(path, "large", sizes.segments // 1000, 1000 * sizes.per_segment)
        subjects = {}
        for queue, name in names.items():
            stream = spark.readStream.format("bucketmq").option("path", path.as_uri()).option("queue", queue).load()
            subjects[name] = partial(run, stream, "noop", path)
        found = in_turn(subjects, sizes, count)
        for name, runs in found.items():
            yield measured(SCENARIO, f"{name} segments", [each.trigger_seconds for each in runs], "s", depth=count)
        tiny, large = found.values()
        more = [many.trigger_seconds - few.trigger_seconds for many, few in zip(tiny, large, strict=True)]
        each = [seconds / sizes.segments * 1e6 for seconds in more]
        yield measured(SCENARIO, "a tiny segment more", each, "µs")
