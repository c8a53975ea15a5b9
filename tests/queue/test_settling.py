"""Ack, Retry, Bury, Release, Redrive, Extend: what becomes of messages in somebody's hands."""

from __future__ import annotations

import pytest

from bucketmq.queue.commands import Ack, Bury, Extend, Extended, Lost, Nothing, Redrive, Release, Retry, Settled
from bucketmq.queue.head import Head, Held, Lease, Moving, Span, Waiting


def every_settlement(lease: int, *spans: Span) -> list:
    return [Ack(lease, spans), Retry(lease, spans, 5, "f"), Bury(lease, spans, "f"), Release(lease, spans),
            Redrive(lease, spans)]  # fmt: skip


def test_an_acked_message_is_gone_for_good(shard):
    shard.append(2)
    lease = shard.claim(lease_seconds=60)

    assert shard.ack(lease) == Settled(2)

    assert shard.head == Head(2, 2, lease=1)
    shard.now += 1000
    assert shard.ask() == Nothing(2, 2, None)


def test_part_of_a_lease_can_be_acked_and_the_rest_stays_held(shard):
    shard.append(5)
    lease = shard.claim(5, lease_seconds=60)

    assert shard.ack(lease, 1, 3) == Settled(2)

    rest = (Held(Span(0, 0, 1)), Held(Span(0, 2, 3)), Held(Span(0, 4, 5)))
    assert shard.head.leases == (Lease(1, "w", 1060.0, rest),)
    assert shard.states() == "H-H-H"


def test_the_last_settlement_of_a_lease_ends_it(shard):
    shard.append(2)
    lease = shard.claim()

    shard.ack(lease, 0)
    assert len(shard.head.leases) == 1
    shard.ack(lease, 1)
    assert shard.head.leases == ()


def test_spans_may_be_shown_in_any_order_overlapping_and_twice(shard):
    shard.append(6)
    lease = shard.claim(6)

    outcome = shard.do(Ack(lease.number, (Span(0, 3, 5), Span(0, 0, 2), Span(0, 1, 4), Span(0, 0, 2))))

    assert outcome == Settled(5)
    assert shard.states() == "-----H"


def test_one_span_shown_may_cover_several_held_ones(shard):
    shard.append(6)
    lease = shard.claim(6)
    shard.ack(lease, 2)

    assert shard.do(Ack(lease.number, (Span(0, 1, 5),))) == Settled(3, (Span(0, 2, 3),))
    assert shard.states() == "H----H"


@pytest.mark.parametrize("kind", range(5))
def test_a_stale_receipt_settles_nothing_and_says_so(shard, kind):
    # Given a message whose first holder was too slow and whose second has it now
    shard.append(1)
    stale = shard.claim(holder="slow", lease_seconds=10)
    shard.now += 10
    shard.claim(holder="fast")
    before = shard.head

    # When the first one settles after all
    outcome = shard.do(every_settlement(stale.number, Span(0, 0, 1))[kind])

    # Then nothing has changed and it is told what it has lost
    assert outcome == Settled(0, (Span(0, 0, 1),))
    assert shard.head == before


@pytest.mark.parametrize("kind", range(5))
def test_a_receipt_works_once(shard, kind):
    shard.append(2)
    lease = shard.claim(2)
    command = every_settlement(lease.number, Span(0, 0, 1))[kind]

    assert shard.do(command) == Settled(1)
    once = shard.head
    assert shard.do(command) == Settled(0, (Span(0, 0, 1),))
    assert shard.head == once


@pytest.mark.parametrize("kind", range(5))
def test_a_receipt_that_has_lost_a_part_settles_the_other_part_and_names_the_lost_one(shard, kind):
    shard.append(5)
    lease = shard.claim(5)
    shard.ack(lease, 1, 2)

    outcome = shard.do(every_settlement(lease.number, Span(0, 0, 5))[kind])

    assert outcome == Settled(3, (Span(0, 1, 3),))
    assert shard.head.held_count == 0


def test_a_receipt_cannot_settle_what_another_lease_holds(shard):
    shard.append(4)
    mine = shard.claim(2, holder="a")
    shard.claim(2, holder="b")

    assert shard.do(Ack(mine.number, (Span(0, 0, 4),))) == Settled(2, (Span(0, 2, 4),))
    assert shard.states() == "--HH"


def test_an_unknown_lease_number_settles_nothing(shard):
    shard.append(1)
    shard.claim()

    assert shard.do(Ack(7, (Span(0, 0, 1),))) == Settled(0, (Span(0, 0, 1),))
    assert shard.states() == "H"


def test_a_lease_that_is_over_but_that_nobody_took_can_still_be_settled(shard):
    shard.append(2)
    lease = shard.claim(lease_seconds=10)

    shard.now += 1_000_000

    assert shard.ack(lease) == Settled(2)
    assert shard.states() == "--"


def test_a_lease_that_is_over_but_that_nobody_took_can_still_be_extended(shard):
    shard.append(1)
    lease = shard.claim(lease_seconds=10)

    shard.now += 100

    assert shard.do(Extend(lease.number, 30)) == Extended(shard.now + 30)
    assert shard.ask() == Nothing(1, 1, shard.now + 30)


def test_a_retried_message_waits_for_its_delay_and_keeps_its_history(shard):
    shard.append(2)

    assert shard.retry(shard.claim(), delay_seconds=30, failed="first") == Settled(2)
    assert shard.head.waiting == (Waiting(Span(0, 0, 2), 1, 1030.0, ("first",)),)

    shard.now += 30
    shard.retry(shard.claim(), delay_seconds=60, failed="second")
    assert shard.head.waiting == (Waiting(Span(0, 0, 2), 2, 1090.0, ("first", "second")),)


def test_a_message_that_is_retried_out_of_attempts_is_moved_with_its_whole_history(make_shard):
    shard = make_shard(attempts_max=2)
    shard.append(1)
    shard.retry(shard.claim(), failed="first")

    assert shard.retry(shard.claim(), failed="last") == Settled(1)

    assert shard.head.moving == (Moving(Span(0, 0, 1), 2, shard.now, ("first", "last")),)
    assert shard.head.waiting == ()


def test_with_one_attempt_the_first_failure_is_the_last(make_shard):
    shard = make_shard(attempts_max=1)
    shard.append(2)

    shard.retry(shard.claim(), 0, delay_seconds=1000)

    assert shard.states() == "MH"


def test_attempts_are_counted_for_each_message_of_a_lease_by_itself(make_shard):
    # Given a lease that holds a message at its last attempt beside a fresh one
    shard = make_shard(attempts_max=2)
    shard.append(2)
    shard.retry(shard.claim(1))
    lease = shard.claim(2)
    assert shard.attempts(lease) == {0: 2, 1: 1}

    # When both fail
    shard.retry(lease)

    # Then only the first is out of attempts
    assert shard.states() == "MW"


def test_a_buried_message_is_moved_at_once_whatever_its_attempts(make_shard):
    shard = make_shard(attempts_max=1000)
    shard.append(1)

    assert shard.bury(shard.claim(), failed="hopeless") == Settled(1)

    assert shard.head.moving == (Moving(Span(0, 0, 1), 1, shard.now, ("hopeless",)),)


def test_a_redriven_message_is_moved_with_its_history_and_no_new_failure(shard):
    shard.append(1)
    shard.retry(shard.claim(), failed="first")

    assert shard.redrive(shard.claim()) == Settled(1)

    assert shard.head.moving == (Moving(Span(0, 0, 1), 2, shard.now, ("first",)),)


def test_a_released_message_is_claimable_at_once_and_burns_no_attempt(make_shard):
    shard = make_shard(attempts_max=1)
    shard.append(1)

    for _ in range(10):
        assert shard.release(shard.claim()) == Settled(1)

    assert shard.head.waiting == (Waiting(Span(0, 0, 1)),)
    assert shard.attempts(shard.claim()) == {0: 1}


def test_a_release_keeps_the_attempts_that_were_made_before(shard):
    shard.append(1)
    shard.retry(shard.claim(), failed="first")

    shard.release(shard.claim())

    assert shard.head.waiting == (Waiting(Span(0, 0, 1), 1, 0.0, ("first",)),)
    assert shard.attempts(shard.claim()) == {0: 2}


def test_an_extension_counts_from_now(shard):
    shard.append(1)
    lease = shard.claim(lease_seconds=60)
    shard.now += 50

    assert shard.do(Extend(lease.number, 60)) == Extended(1110.0)

    shard.now = 1109.9
    assert shard.ask() == Nothing(1, 1, 1110.0)
    shard.now = 1110.0
    assert shard.attempts(shard.claim()) == {0: 2}


def test_an_extension_never_shortens_a_lease(shard):
    shard.append(1)
    lease = shard.claim(lease_seconds=60)

    assert shard.do(Extend(lease.number, 1)) == Extended(1060.0)
    assert shard.head.leases[0].until == 1060.0


def test_an_extension_touches_no_other_lease(shard):
    shard.append(2)
    mine = shard.claim(1, holder="a", lease_seconds=60)
    shard.claim(1, holder="b", lease_seconds=60)

    shard.do(Extend(mine.number, 600))

    assert [lease.until for lease in shard.head.leases] == [1600.0, 1060.0]


def test_a_lease_that_was_taken_over_cannot_be_extended(shard):
    shard.append(1)
    stale = shard.claim(lease_seconds=10)
    shard.now += 10
    shard.claim()
    before = shard.head

    assert shard.do(Extend(stale.number, 60)) == Lost(stale.number)
    assert shard.head == before


def test_a_lease_that_is_settled_cannot_be_extended(shard):
    shard.append(1)
    lease = shard.claim()
    shard.ack(lease)

    assert shard.do(Extend(lease.number, 60)) == Lost(lease.number)
