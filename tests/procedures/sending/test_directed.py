"""Messages for one subscription alone: no other is given them, whatever they share a segment with."""

from __future__ import annotations

from typing import Any

import pytest

from bucketmq.log import segment
from bucketmq.procedures.sending.directed import send_to
from bucketmq.procedures.sending.send import send_messages
from bucketmq.queue.message import Message
from procedures.world import World, drain

AT = "2026-11-15T12:00:00.000Z"
MIXED = [
    Message("m0", AT, body="all"),
    Message("m1", AT, body="audit", to="audit"),
    Message("m2", AT, body={"to": "all"}),
    Message("m3", AT, body="other", to="other"),
]


@pytest.mark.parametrize("first", range(len(MIXED)))
def test_a_line_for_one_subscription_is_given_to_that_one_alone_wherever_it_lies_in_its_segment(
    world: World, queue: Any, first: int
) -> None:
    """Older releases wrote such segments too, without a move's number."""
    lines = MIXED[first:] + MIXED[:first]
    queue.settings()
    world.store.create(world.segment(), segment.encode(lines))
    audit = queue.subscription("audit")
    assert drain(queue) == [line.body for line in lines if line.to is None]
    assert drain(audit) == [line.body for line in lines if line.to in (None, "audit")]


def test_messages_of_one_send_may_be_for_different_subscriptions(blocking: World) -> None:
    bucket = blocking.connect()
    queue = bucket.queue("jobs")
    bucket.run(send_messages(bucket.run(bucket.api.queue("jobs").open()), MIXED))
    assert len(blocking.keys("log/")) == 1
    assert drain(queue) == ["all", {"to": "all"}]
    assert drain(queue.subscription("other")) == ["all", {"to": "all"}, "other"]


def test_what_is_sent_to_one_subscription_is_not_given_to_others(blocking: World) -> None:
    bucket = blocking.connect()
    queue = bucket.queue("jobs", shards=3)
    messages = [Message(f"m{n}", AT, key=str(n), body=n) for n in range(20)]
    for _ in range(2):  # the same ids again, as when something is replayed twice
        bucket.run(send_to(bucket.run(bucket.api.queue("jobs").open()), "audit", messages))
    assert drain(queue) == []
    assert sorted(drain(queue.subscription("audit"))) == sorted([*range(20), *range(20)])
