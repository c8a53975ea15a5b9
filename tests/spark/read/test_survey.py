"""Where a log ends, for those who go through all of it: in a folder, where the end is walked to otherwise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("pyspark")

from chores.test_archive import send

from bucketmq.chores.audit import bounds
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.segments.tail import listed_tail
from bucketmq.spark.history.view import shares
from bucketmq.spark.opened import Opened
from bucketmq.spark.options import place_of
from bucketmq.spark.read.survey import position, tails
from spark.conftest import Inbox


def test_who_begins_anew_looks_behind_the_hole_that_a_lost_segment_left(plain_inbox: Inbox) -> None:
    jobs = plain_inbox.bucket.queue("jobs")
    send(jobs, 40)
    plain_inbox.file(f"queues/jobs/log/0/{20:020}.ndjson").unlink()
    place = place_of(plain_inbox.url, "jobs", {})

    def asked(ask: Callable[[OpenQueue], Procedure[Any]]) -> Any:
        here = Opened(place, create=False)
        return here.run(ask(here.queue))

    assert asked(lambda queue: bounds(queue, None)).ends == {0: 40}
    assert asked(tails) == {0: 40}
    assert asked(lambda queue: position(queue, "latest", "endingOffsets", strict=True)).offset(0) == 40
    [share] = asked(shares)
    assert [(piece.start, piece.end) for piece in share.pieces] == [(0, 10), (10, 30), (30, 40)]


def test_a_fence_that_a_listing_passes_is_not_overlooked(plain_inbox: Inbox) -> None:
    jobs = plain_inbox.bucket.queue("jobs", ordered=True)
    send(jobs, 10)
    here = Opened(place_of(plain_inbox.url, "jobs", {}), create=False)
    assert here.run(listed_tail(here.queue, here.queue.log(0))) == 10
    before = here.queue.doubts
    jobs.raise_shards(2)
    send(jobs, 10)
    here.run(listed_tail(here.queue, here.queue.log(0)))
    assert here.queue.doubts > before  # or it would go on sending by the old count
