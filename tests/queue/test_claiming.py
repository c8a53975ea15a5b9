"""Claim: which messages are handed out, to whom, and as which attempt."""

from __future__ import annotations

import pytest

from bucketmq.queue.claiming import LOST_WORKER
from bucketmq.queue.commands import Ack, Claim, Claimed, Full, Nothing
from bucketmq.queue.head import Head, Held, Lease, Moving, Span, Waiting
from bucketmq.queue.machine import apply
from bucketmq.queue.policy import Policy


def test_fresh_messages_are_handed_out_in_offset_order_under_one_lease(shard):
    shard.append(5)

    outcome = shard.ask(3, holder="w", lease_seconds=60)

    lease = Lease(1, "w", 1060.0, (Held(Span(0, 0, 3), attempt=1),))
    assert outcome == Claimed(lease)
    assert shard.head == Head(3, 0, lease=1, leases=(lease,))


def test_two_claims_never_share_a_message(shard):
    shard.append(5)

    first, second = shard.claim(2, holder="a"), shard.claim(2, holder="b")

    assert shard.attempts(first) == {0: 1, 1: 1}
    assert shard.attempts(second) == {2: 1, 3: 1}
    assert (first.number, second.number) == (1, 2)


def test_an_empty_shard_has_nothing_and_says_where_it_looked(shard):
    assert shard.ask() == Nothing(0, 0, None)
    assert shard.head == Head(0, 0)


def test_a_claim_of_zero_messages_gets_nothing(shard):
    shard.append(2)

    assert shard.ask(0) == Nothing(0, 0, None)
    assert shard.states() == "FF"


def test_a_claim_takes_from_several_known_segments_and_every_span_names_its_own(shard):
    shard.append(2)
    shard.append(3)
    shard.append(4)

    lease = shard.claim(6)

    assert [held.span for held in lease.held] == [Span(0, 0, 2), Span(2, 2, 5), Span(5, 5, 6)]
    assert (shard.head.next, shard.head.segment) == (6, 5)


def test_a_segment_handed_out_whole_moves_the_head_to_the_next_segment(shard):
    shard.append(2)

    shard.claim(2)

    assert (shard.head.next, shard.head.segment) == (2, 2)


def test_a_claim_that_knows_only_other_segments_gets_nothing_and_names_the_one_to_read(shard):
    first, second = shard.append(2), shard.append(2)
    shard.claim(2)

    assert shard.ask(known=[first]) == Nothing(2, 2, 1060.0)
    assert shard.ask(known=[]) == Nothing(2, 2, 1060.0)
    assert isinstance(shard.ask(known=[second]), Claimed)


def test_segments_behind_a_gap_in_what_is_known_are_left_alone(shard):
    first, _, third = shard.append(2), shard.append(2), shard.append(2)

    outcome = shard.ask(6, known=[first, third])

    assert isinstance(outcome, Claimed)
    assert shard.attempts(outcome.lease) == {0: 1, 1: 1}
    assert shard.head.segment == 2


@pytest.mark.parametrize("ordered", [False, True])
def test_skipped_offsets_are_settled_without_being_handed_out(make_shard, ordered):
    shard = make_shard(ordered=ordered)
    shard.append(6, skip=(0, 2, 3, 5))

    lease = shard.claim(10)

    assert shard.attempts(lease) == {1: 1, 4: 1}
    assert (shard.head.next, shard.head.segment) == (6, 6)
    assert shard.states() == "-H--H-"


@pytest.mark.parametrize("ordered", [False, True])
def test_skipped_offsets_do_not_count_against_the_limit(make_shard, ordered):
    shard = make_shard(ordered=ordered)
    shard.append(6, skip=(1, 2))

    assert shard.attempts(shard.claim(3)) == {0: 1, 3: 1, 4: 1}
    assert shard.attempts(shard.claim(3)) == {5: 1}


@pytest.mark.parametrize("ordered", [False, True])
def test_a_segment_of_skipped_offsets_only_is_passed_and_the_next_is_handed_out(make_shard, ordered):
    shard = make_shard(ordered=ordered)
    shard.append(3, skip=(0, 1, 2))

    assert shard.ask() == Nothing(3, 3, None)

    shard.append(1)
    assert shard.attempts(shard.claim()) == {3: 1}


def test_skipped_offsets_behind_the_last_message_handed_out_are_passed_with_it(shard):
    shard.append(4, skip=(2, 3))

    shard.claim(2)

    assert (shard.head.next, shard.head.segment) == (4, 4)


def test_what_is_due_again_goes_before_fresh_messages(shard):
    shard.append(5)
    shard.retry(shard.claim(2))

    assert shard.attempts(shard.claim(3)) == {0: 2, 1: 2, 2: 1}


def test_a_due_run_is_cut_to_the_limit_and_the_rest_stays_first_in_line(shard):
    shard.append(5)
    shard.retry(shard.claim(4))

    assert shard.attempts(shard.claim(3)) == {0: 2, 1: 2, 2: 2}
    assert shard.attempts(shard.claim(3)) == {3: 2, 4: 1}


def test_what_is_not_due_yet_is_passed_over(shard):
    shard.append(3)
    shard.retry(shard.claim(2), delay_seconds=30)

    shard.now += 29.9
    assert shard.attempts(shard.claim(3)) == {2: 1}
    shard.now += 0.1
    assert shard.attempts(shard.claim(3)) == {0: 2, 1: 2}


def test_an_expired_lease_is_claimable_as_the_next_attempt(shard):
    shard.append(2)
    shard.claim(2, holder="dead", lease_seconds=60)

    shard.now += 60
    lease = shard.claim(2, holder="alive")

    assert lease == Lease(2, "alive", shard.now + 60, (Held(Span(0, 0, 2), 2, (LOST_WORKER + "dead",)),))
    assert shard.head.leases == (lease,)


def test_a_lease_is_kept_until_its_very_end(shard):
    shard.append(1)
    shard.claim(lease_seconds=60)

    shard.now += 59.999
    assert shard.ask() == Nothing(1, 1, 1060.0)


def test_only_what_is_left_of_an_expired_lease_is_handed_out_again(shard):
    shard.append(4)
    lease = shard.claim(4, lease_seconds=60)
    shard.ack(lease, 1, 2)

    shard.now += 60

    assert shard.attempts(shard.claim()) == {0: 2, 3: 2}


def test_an_attempt_counts_when_it_is_claimed_so_a_message_that_kills_its_worker_runs_out(make_shard):
    shard = make_shard(attempts_max=3)
    shard.append(1)
    for attempt in (1, 2, 3):
        assert shard.attempts(shard.claim(holder=f"w{attempt}", lease_seconds=10)) == {0: attempt}
        shard.now += 10

    assert shard.ask() == Nothing(1, 1, None)
    lost = (LOST_WORKER + "w1", LOST_WORKER + "w2", LOST_WORKER + "w3")
    assert shard.head.moving == (Moving(Span(0, 0, 1), 3, shard.now, lost),)


def test_expiry_is_lazy_and_only_a_claim_sees_it(shard):
    shard.append(1)
    shard.claim(lease_seconds=10)
    before = shard.head

    shard.now += 1000
    shard.do(Ack(99, (Span(0, 0, 1),)))

    assert shard.head == before


def test_leases_of_several_holders_expire_each_in_its_own_time(shard):
    shard.append(3)
    shard.claim(1, holder="a", lease_seconds=10)
    shard.claim(1, holder="b", lease_seconds=30)
    shard.claim(1, holder="c", lease_seconds=20)

    shard.now += 20

    assert shard.attempts(shard.claim(holder="d")) == {0: 2, 2: 2}
    assert [lease.holder for lease in shard.head.leases] == ["b", "d"]


@pytest.mark.parametrize(("delay_seconds", "lease_seconds", "due"), [(30, 60, 1030.0), (90, 60, 1060.0)])
def test_nothing_says_when_something_may_be_claimable(shard, delay_seconds, lease_seconds, due):
    shard.append(2)
    shard.retry(shard.claim(1), delay_seconds=delay_seconds)
    shard.claim(1, lease_seconds=lease_seconds)

    assert shard.ask() == Nothing(2, 2, due)


def test_what_is_on_the_move_is_never_due(shard):
    shard.append(1)
    shard.bury(shard.claim())

    assert shard.ask() == Nothing(1, 1, None)


def test_lease_numbers_only_grow_even_when_no_lease_is_left(shard):
    shard.append(3)
    numbers = []
    for _ in range(3):
        lease = shard.claim(1)
        numbers.append(lease.number)
        shard.ack(lease)

    assert numbers == [1, 2, 3]


def test_commands_take_effect_in_their_order_so_an_ack_and_the_next_claim_travel_together(make_shard):
    # Given one message in flight and room for no more
    shard = make_shard(in_flight_max=1)
    known = shard.append(2)
    lease = shard.claim(1)
    ack, claim = Ack(lease.number, (Span(0, 0, 1),)), Claim("w", 1, 60, (known,))

    # When the ack goes first the claim finds room; when it goes last it does not
    _, ack_first = apply(shard.head, [ack, claim], shard.now, shard.policy)
    _, ack_last = apply(shard.head, [claim, ack], shard.now, shard.policy)

    assert isinstance(ack_first[1], Claimed)
    assert isinstance(ack_last[0], Full)


def test_applying_changes_no_value_that_was_given():
    head = Head(2, 2, lease=1, waiting=(Waiting(Span(0, 0, 2), 1),))
    copy = Head(2, 2, lease=1, waiting=(Waiting(Span(0, 0, 2), 1),))

    after, _ = apply(head, [Claim("w", 1, 60, ())], 0.0, Policy(3, 10, False))

    assert head == copy != after


def test_a_limit_of_attempts_that_was_lowered_ends_a_message_at_its_next_failure(make_shard):
    shard = make_shard(attempts_max=5)
    shard.append(1)
    for _ in range(3):
        shard.retry(shard.claim())

    shard.policy = Policy(2, 10, False)
    shard.retry(shard.claim())

    assert shard.states() == "M"
    assert shard.head.moving[0].attempts == 4
