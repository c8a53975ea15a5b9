"""The chores that come with BucketMQ, by name. A list: nothing is imported until one of them is wanted.

A chore is a function `run(spark, bucket_url, *, ...)` that does its work and returns a summary.
"""

from __future__ import annotations

import msgspec


class Chore(msgspec.Struct, frozen=True):
    """One that comes with the package. `where` is module:attribute."""

    name: str
    where: str
    about: str


CHORES = {
    each.name: each
    for each in (
        Chore("archive", "bucketmq.chores.archive:run", "Settled messages of a queue to Parquet, by day."),
        Chore("audit", "bucketmq.chores.audit:run", "Account for every message: settled, dead or waiting."),
        Chore("replay", "bucketmq.chores.replay:run", "Send messages of the log and the archive again."),
        Chore("sweep", "bucketmq.chores.sweep:run", "Report the changes of a large bucket's objects."),
    )
}
