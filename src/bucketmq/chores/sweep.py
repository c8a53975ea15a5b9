"""The chore `sweep`: the inventory comparison of `bucketmq sweep`, for buckets whose listing alone takes hours.

The executors list and compare ranges of keys and report what differs; the driver replaces the manifest after each
round. Same manifest, same events, same result as the sweep of one process, and either goes on where the other died.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec

from bucketmq.errors import Invalid
from bucketmq.procedures.objects.sweep import KEYS_MAX, Compared, Share, Swept, Work, begin, compare, finish, take
from bucketmq.procedures.objects.sweep_split import shares, split
from bucketmq.procedures.queues import EVENTS
from bucketmq.spark.opened import opened
from bucketmq.spark.options import Place, place_of
from bucketmq.spark.running.tasks import on_executors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


TASKS = 32


def run(
    spark: SparkSession,
    bucket_url: str,
    *,
    prefix: str = "",
    name: str | None = None,
    baseline: bool = False,
    options: Mapping[str, str] | None = None,
    tasks: int = TASKS,
    keys_max: int = KEYS_MAX,
    range_keys: int | None = None,
) -> Swept:
    """Report every change under `prefix` since the last sweep of this name; the first reports all, or with `baseline`
    only notes it.

    In rounds of up to about `tasks` ranges. A range of more than `keys_max` keys comes back and is cut again, so that
    one prefix with nearly all keys keeps everybody busy. Costs what a sweep costs, and one replace of the manifest for
    each round instead of one for each range.
    """
    if tasks < 1 or keys_max < 1 or (range_keys is not None and range_keys < 1):
        raise Invalid("tasks, keys_max and range_keys must be 1 or more")
    place = place_of(bucket_url, EVENTS, options or {})
    here = opened(place, create=True)
    bucket = here.queue.bucket
    work = here.run(begin(bucket, prefix=prefix, name=name, baseline=baseline))
    done = Swept()
    while work.todo:
        work = here.run(split(bucket, work, tasks))
        look = functools.partial(_look, place, _small(work), keys_max, range_keys)
        compared = on_executors(spark, look, shares(work, tasks))
        work = here.run(take(bucket, work, compared))
        for each in compared:
            done.add(each.swept)
    here.run(finish(bucket, work))
    return done


def _small(work: Work) -> Work:
    """What an executor needs to know: not the whole list of chunks."""
    return Work(work.name, msgspec.structs.replace(work.manifest, chunks=()), frozenset())


def _look(place: Place, work: Work, keys_max: int, range_keys: int | None, share: Share) -> Compared:
    here = opened(place, create=True)
    return here.run(compare(here.queue.bucket, work, share, keys_max=keys_max, range_keys=range_keys))
