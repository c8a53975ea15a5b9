"""Promise 7: a send, a claim and a settle cost the same requests and about the same bytes however deep the queue is."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.backlog import fill, write_hint, write_segments
from bench.latency import NONE, Counts, LatentStore, counted
from bench.payload import batch, body
from bench.places import over
from bucketmq.bucket.folder import FolderStore
from bucketmq.bucket.memory import MemoryStore
from bucketmq.procedures.segments.hint import HINT_EVERY, HINT_EVERY_WALKED

SHALLOW, DEEP = 10, 100_000
BATCH = 10
WARM_ROUNDS = HINT_EVERY + 1  # the first time costs more: opening, looking for what is delayed, the first hint
ROUNDS = 2 * HINT_EVERY  # so that both depths see the hint written equally often
BYTES_SLACK = 0.05  # offsets have more digits in a deep queue
SEGMENTS = 5_000


def costs_at(depth: int) -> tuple[Counts, Counts]:
    """What sending a batch and what receiving and acking one cost in steady state, while the depth stays the same."""
    store = counted(MemoryStore())
    sending, receiving = Counts(), Counts()
    with over(store) as producer:
        fill(producer.queue("jobs"), depth, per_segment=BATCH)
    with over(store) as bucket:  # opened now, so that no setting grows old while it is measured
        queue = bucket.queue("jobs")
        for turn in range(WARM_ROUNDS + ROUNDS):
            if turn == WARM_ROUNDS:
                sending, receiving = Counts(), Counts()
            before = store.counts.copy()
            queue.send_many(batch(0, BATCH))
            between = store.counts.copy()
            deliveries = queue.receive(BATCH)
            for delivery in deliveries:
                delivery.ack()
            sending = sending.plus(between.since(before))
            receiving = receiving.plus(store.counts.since(between))
            assert len(deliveries) == BATCH
    return sending, receiving


def test_requests_and_bytes_for_an_operation_are_flat_from_depth_10_to_100_000() -> None:
    shallow, deep = costs_at(SHALLOW), costs_at(DEEP)

    for few, many in zip(shallow, deep, strict=True):
        assert (few.reads, few.writes, few.lists) == (many.reads, many.writes, many.lists)
        assert many.bytes == pytest.approx(few.bytes, rel=BYTES_SLACK)
    sending, receiving = deep
    assert sending.requests <= ROUNDS + 2 * (ROUNDS // HINT_EVERY)  # one PUT each, and the hint
    assert (receiving.reads, receiving.writes) == (ROUNDS, ROUNDS)  # one GET and one PUT each


@pytest.mark.parametrize(("lists", "hint_every"), [(False, HINT_EVERY_WALKED), (True, HINT_EVERY)])
def test_a_cold_send_and_stats_cost_the_same_on_10_and_on_thousands_of_segments(
    tmp_path: Path, lists: bool, hint_every: int
) -> None:
    found = {}
    for segments in (hint_every, SEGMENTS):
        write_segments(tmp_path / str(segments), "jobs", segments)
        for what in ("stats", "send"):
            write_hint(tmp_path / str(segments), "jobs", segments - hint_every + 1)
            store = LatentStore(FolderStore(tmp_path / str(segments)), NONE, local=True, lists_in_order=lists)
            with over(store) as bucket:
                queue = bucket.queue("jobs")
                if what == "send":
                    assert queue.send(body(0)).offset == segments
                else:
                    assert queue.stats().depth == segments
            found[segments, what] = store.counts.requests

    for what in ("stats", "send"):
        assert found[SEGMENTS, what] == found[hint_every, what]
