"""Removing the orphans of a queue by hand. Trimming does it by itself: see `bucketmq.procedures.bulk.orphans`."""

from __future__ import annotations

from collections.abc import Mapping

from bucketmq.procedures.bulk.orphans import remove_orphans
from bucketmq.spark.opened import opened
from bucketmq.spark.options import place_of


def remove(url: str, queue: str, *, options: Mapping[str, str] | None = None) -> int:
    """Delete the orphans of the queue at `url`; returns how many. `options` are the store's, as for `connect`."""
    found = opened(place_of(url, queue, options or {}))
    return found.run(remove_orphans(found.queue))
