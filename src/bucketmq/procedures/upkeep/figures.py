"""Keeping figures over time in the bucket: a sample each minute, rolled up each hour, in two rings (`log.figures`).

Any number of programs may write: a sample is added to a document with a condition, and of two for the same minute the
first counts. Nothing depends on them but charts.
"""

from __future__ import annotations

from bucketmq.errors import Corrupt
from bucketmq.log.figures import HOURS, MINUTES, Ring, Samples, Stretch, added, fresh, rolled
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.verbs import get_document, update_document


def note(bucket: OpenBucket, ring: Ring, at: float, samples: Samples) -> Procedure[Stretch]:
    """Add a sample. One GET and one PUT; no PUT if another program was faster."""
    key = ring.key(bucket.prefix, at)
    return (yield from update_document(Stretch, key, fresh(ring, at), lambda before: added(before, ring, at, samples)))


def roll_up(bucket: OpenBucket, at: float) -> Procedure[int]:
    """Make samples of the hour of all hours before this one that have none yet; returns how many. One GET, and two more
    for each hour without one, of at most a day."""
    made = 0
    for back in range(1, MINUTES.count - 1):
        hour = at - back * MINUTES.stretch
        days = yield from read(bucket, HOURS, hour)
        if days is not None and HOURS.slot(hour) in days.samples:
            break  # its writer looked further back
        minutes = yield from read(bucket, MINUTES, hour)
        if minutes is not None and minutes.samples:
            yield from note(bucket, HOURS, hour, rolled(minutes))
            made += 1
    return made


def read(bucket: OpenBucket, ring: Ring, at: float) -> Procedure[Stretch | None]:
    """The stretch that a time is in; None if nothing was noted then, or it cannot be read: a chart has a gap there."""
    try:
        found = yield from get_document(Stretch, ring.key(bucket.prefix, at))
    except Corrupt:
        return None
    return found[0] if found is not None and found[0].start == ring.start(at) else None
