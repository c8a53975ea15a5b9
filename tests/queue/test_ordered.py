"""Ordered queues: for each key one message in flight, in the order sent; nobody else waits for it."""

from __future__ import annotations

from bucketmq.queue.commands import Claimed, Nothing
from bucketmq.queue.head import Held, Span, Waiting


def test_a_key_has_one_message_in_flight(ordered):
    ordered.append("aaa")

    lease = ordered.claim()

    assert lease.held == (Held(Span(0, 0, 1), key="a"),)
    assert isinstance(ordered.ask(), Nothing)
    assert ordered.states() == "HWW"


def test_the_next_message_of_a_key_follows_when_the_one_before_is_settled(ordered):
    ordered.append("aaa")

    for offset in range(3):
        lease = ordered.claim()
        assert ordered.attempts(lease) == {offset: 1}
        ordered.ack(lease)

    assert ordered.states() == "---"


def test_messages_of_other_keys_pass_a_key_that_is_busy(ordered):
    ordered.append("aabacb")

    assert ordered.attempts(ordered.claim()) == {0: 1, 2: 1, 4: 1}
    assert ordered.states() == "HWHWHW"


def test_a_key_that_is_busy_in_another_holders_hands_is_passed_over(ordered):
    ordered.append("abab")
    ordered.claim(1, holder="one")

    assert ordered.attempts(ordered.claim(holder="two")) == {1: 1}
    assert isinstance(ordered.ask(holder="three"), Nothing)


def test_unkeyed_messages_are_never_held_back(ordered):
    ordered.append("a.a..")

    assert ordered.attempts(ordered.claim()) == {0: 1, 1: 1, 3: 1, 4: 1}


def test_order_is_kept_while_a_failed_message_waits_for_its_delay(ordered):
    # Given two messages of one key of which the first failed
    ordered.append("aab")
    ordered.retry(ordered.claim(1), delay_seconds=30)

    # Then the second waits with it, and only the other key goes on
    assert ordered.attempts(ordered.claim()) == {2: 1}
    ordered.now += 30
    lease = ordered.claim()
    assert ordered.attempts(lease) == {0: 2}
    ordered.ack(lease)
    assert ordered.attempts(ordered.claim()) == {1: 1}


def test_order_is_kept_when_a_worker_is_lost(ordered):
    ordered.append("aa")
    ordered.claim(lease_seconds=10)

    ordered.now += 10

    assert ordered.attempts(ordered.claim()) == {0: 2}
    assert isinstance(ordered.ask(), Nothing)


def test_a_released_message_goes_before_the_next_of_its_key(ordered):
    ordered.append("aaa")
    ordered.release(ordered.claim())

    assert ordered.attempts(ordered.claim()) == {0: 1}


def test_a_message_given_up_no_longer_blocks_its_key(make_shard):
    shard = make_shard(ordered=True, attempts_max=1)
    shard.append("aaa")
    shard.retry(shard.claim())
    assert shard.attempts(shard.claim()) == {1: 1}
    shard.bury(shard.head.leases[0])

    assert shard.attempts(shard.claim()) == {2: 1}
    assert shard.states() == "MMH"


def test_order_holds_across_segments(ordered):
    ordered.append("ab")
    ordered.append("ba")

    lease = ordered.claim()
    assert ordered.attempts(lease) == {0: 1, 1: 1}
    ordered.ack(lease, 1)

    lease = ordered.claim()
    assert lease.held == (Held(Span(2, 2, 3), key="b"),)
    assert ordered.head.waiting == (Waiting(Span(2, 3, 4), key="a"),)


def test_the_limit_counts_messages_handed_out_not_those_passed_over(ordered):
    ordered.append("aaaabcd")

    assert ordered.attempts(ordered.claim(3)) == {0: 1, 4: 1, 5: 1}
    assert ordered.states() == "HWWWHHF"


def test_a_run_of_one_key_is_handed_out_one_at_a_time_from_its_front(ordered):
    ordered.append("aaab")
    ordered.release(ordered.claim(1))
    ordered.claim(10)
    assert ordered.states() == "HWWH"
    assert ordered.head.waiting == (Waiting(Span(0, 1, 3), key="a"),)

    ordered.ack(ordered.head.leases[0])

    assert ordered.attempts(ordered.claim(10)) == {1: 1}
    assert ordered.head.waiting == (Waiting(Span(0, 2, 3), key="a"),)


def test_what_is_due_again_goes_first_also_where_it_has_no_key(ordered):
    ordered.append("....")
    ordered.release(ordered.claim(3))

    assert ordered.attempts(ordered.claim(2)) == {0: 1, 1: 1}
    assert ordered.attempts(ordered.claim(2)) == {2: 1, 3: 1}


def test_waiting_for_a_busy_key_is_not_something_to_wake_up_for(ordered):
    # Given a message that is held back behind one in flight
    ordered.append("aa")
    ordered.claim(lease_seconds=60)

    # Then it is the lease that decides when to ask again, not the message that was ready long ago
    assert ordered.ask() == Nothing(2, 2, 1060.0)


def test_waiting_behind_a_delayed_message_is_not_something_to_wake_up_for(ordered):
    ordered.append("aa")
    ordered.retry(ordered.claim(), delay_seconds=30)

    assert ordered.ask() == Nothing(2, 2, 1030.0)


def test_a_busy_key_costs_the_head_one_span_however_many_messages_wait_for_it(ordered):
    ordered.append("a" * 1000)
    ordered.append("a" * 999 + "b")

    assert ordered.attempts(ordered.claim(2)) == {0: 1, 1999: 1}
    assert ordered.head.waiting == (
        Waiting(Span(0, 1, 1000), key="a"),
        Waiting(Span(1000, 1000, 1999), key="a"),
    )


def test_an_empty_text_is_a_key_like_any_other(ordered):
    known = ordered.append("..")
    keys = type(known)(known.base, known.count, (), ("", ""))

    outcome = ordered.ask(known=[keys])

    assert isinstance(outcome, Claimed)
    assert ordered.attempts(outcome.lease) == {0: 1}
