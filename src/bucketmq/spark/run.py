"""Running a pipeline on Spark: source, all stages as one `mapInArrow`, target. One query.

The session is the caller's. Nothing here waits: what `start` returns is Spark's own query.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from bucketmq.spark.pipeline import Pipeline


def start(
    pipeline: Pipeline,
    url: str,
    spark: SparkSession,
    *,
    checkpoint: str,
    once: bool = False,
    trigger_seconds: float = 1.0,
    options: Mapping[str, str] | None = None,
) -> StreamingQuery:
    """Start the pipeline as a streaming query named like it, on the bucket at `url`.

    `once` reads what there is now and ends; otherwise a batch begins every `trigger_seconds` if there is anything new.
    `options` are those of the source (`maxRowsPerTrigger`, `startingOffsets`, ...) and of the store (`endpoint`, ...).
    """
    from bucketmq.spark.query import begin

    return begin(
        pipeline,
        url,
        spark,
        checkpoint=checkpoint,
        once=once,
        trigger_seconds=trigger_seconds,
        options=dict(options or {}),
    )
