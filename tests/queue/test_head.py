"""The rules that every head keeps, and what a head says about itself."""

from __future__ import annotations

import math

import pytest
from hypothesis import given

from bucketmq.errors import Corrupt
from bucketmq.queue.commands import Extend, Retry
from bucketmq.queue.head import Head, Held, Lease, Moving, Span, Waiting, check
from bucketmq.queue.machine import apply
from bucketmq.queue.policy import Policy
from bucketmq.testing import strategies

ANY = Policy(attempts_max=3, in_flight_max=100, ordered=False)


def held(*spans: Span, number: int = 1) -> Lease:
    return Lease(number, "w", 60.0, tuple(Held(span) for span in spans))


@given(strategies.heads())
def test_a_head_that_keeps_the_rules_passes(head):
    assert check(head) is head


@pytest.mark.parametrize(
    "head",
    [
        Head(-1, -1),
        Head(3, 4),
        Head(3, -1),
        Head(3, 0, version=-1),
        Head(3, 0, lease=-1),
        Head(3, 0, lease=1, leases=(held(Span(0, 0, 1), number=2),)),
        Head(3, 0, lease=1, leases=(held(Span(0, 0, 1), number=0),)),
        Head(3, 0, lease=1, leases=(held(Span(0, 0, 1)), held(Span(0, 1, 2)))),
        Head(3, 0, lease=1, leases=(held(Span(0, 0, 2), Span(0, 1, 3)),)),
        Head(3, 0, waiting=(Waiting(Span(0, 0, 4)),)),
        Head(3, 0, waiting=(Waiting(Span(0, 2, 2)),)),
        Head(3, 0, waiting=(Waiting(Span(0, 2, 1)),)),
        Head(3, 0, waiting=(Waiting(Span(-1, -1, 1)),)),
        Head(3, 0, waiting=(Waiting(Span(2, 1, 3)),)),
        Head(3, 0, waiting=(Waiting(Span(0, 0, 2)),), moving=(Moving(Span(0, 1, 3), 1, 0.0),)),
        Head(3, 0, lease=1, leases=(held(Span(0, 0, 2)),), waiting=(Waiting(Span(0, 1, 3)),)),
    ],
    ids=[
        "negative", "segment above next", "negative segment", "negative version", "negative lease",
        "number not given out yet", "number zero", "number twice", "overlap in a lease",
        "above next", "empty span", "backward span", "negative span", "before its base",
        "waiting and moving", "held and waiting",
    ],
)  # fmt: skip
def test_a_head_that_breaks_a_rule_is_corrupt(head):
    with pytest.raises(Corrupt):
        check(head)


@pytest.mark.parametrize(
    "spans",
    [
        (Span(0, 0, 3), Span(2, 3, 4)),  # the second segment begins inside the first one's span
        (Span(0, 2, 3), Span(3, 5, 6), Span(4, 6, 7)),
        (Span(0, 0, 7),),  # reaches into the segment that holds `next`
        (Span(7, 7, 8),),  # a segment behind the one that holds `next`
    ],
)
def test_a_span_that_cannot_lie_inside_the_segment_it_names_is_corrupt(spans):
    with pytest.raises(Corrupt):
        check(Head(8, 6, waiting=tuple(Waiting(span) for span in spans)))


def test_a_head_of_another_format_is_refused_and_says_to_upgrade():
    with pytest.raises(Corrupt, match=r"format 2.*upgrade"):
        check(Head(0, 0, format=2))


def test_done_below_is_the_first_offset_that_is_not_settled(shard):
    shard.append(6)
    assert shard.head.done_below == 0
    lease = shard.claim(6)
    shard.bury(lease, 1)
    shard.retry(lease, 2)

    assert shard.head.done_below == 0
    shard.ack(lease, 0)
    assert shard.head.done_below == 1
    shard.ack(lease, 3, 4, 5)
    assert shard.head.done_below == 1


def test_without_open_messages_done_below_is_next(shard):
    shard.append(3)
    shard.ack(shard.claim(2))

    assert shard.head.done_below == 2


def test_needs_from_is_the_oldest_segment_that_is_still_read(shard):
    shard.append(2)
    shard.append(2)
    shard.append(2)
    lease = shard.claim(5)

    assert shard.head.needs_from == 0
    shard.ack(lease, 0, 1, 2)
    assert shard.head.needs_from == 2
    shard.ack(lease, 3)
    assert shard.head.needs_from == 4
    shard.ack(lease, 4)
    assert shard.head.needs_from == 4


def test_a_head_counts_what_is_held_waiting_and_moving(shard):
    shard.append(10)
    lease = shard.claim(9)
    shard.retry(lease, 0, 1, 2)
    shard.bury(lease, 3, 4)

    head = shard.head
    assert (head.held_count, head.waiting_count, head.moving_count) == (4, 3, 2)


@pytest.mark.parametrize("seconds", [math.inf, -math.inf, math.nan])
def test_a_time_that_json_cannot_hold_never_gets_into_a_head(seconds):
    # JSON has no such number: it would be written as null, and the head could never be read again.
    head = Head(1, 1, lease=1, leases=(held(Span(0, 0, 1)),))

    with pytest.raises(Corrupt, match="time"):
        apply(head, [Retry(1, (Span(0, 0, 1),), seconds, "f")], 0.0, ANY)
    with pytest.raises(Corrupt, match="time"):
        apply(head, [Extend(1, math.inf)], 0.0, ANY)
