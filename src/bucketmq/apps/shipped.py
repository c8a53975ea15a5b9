"""The pipelines that come with BucketMQ, by name. A list: nothing is imported until one of them is wanted.

An entry leads to a `bucketmq.pipeline.pipeline.Pipeline`, to a function that makes one (its keyword arguments are the
pipeline's options), or to a chore: a function `run(spark, bucket_url, *, ...)` that does its work and returns a
summary.
"""

from __future__ import annotations

import msgspec


class Shipped(msgspec.Struct, frozen=True):
    """One that comes with the package. `where` is module:attribute."""

    name: str
    where: str
    about: str


SHIPPED = {
    each.name: each
    for each in (
        Shipped("archive", "bucketmq.chores.archive:run", "Settled messages of a queue to Parquet, by day."),
        Shipped("audit", "bucketmq.chores.audit:run", "Account for every message: settled, dead or waiting."),
        Shipped(
            "moderation",
            "bucketmq.apps.moderation.pipeline:pipeline",
            "Judge submitted posts and write them below pending/ with the verdict.",
        ),
        Shipped("replay", "bucketmq.chores.replay:run", "Send messages of the log and the archive again."),
        Shipped("sweep", "bucketmq.chores.sweep:run", "Report the changes of a large bucket's objects."),
    )
}
