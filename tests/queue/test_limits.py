"""Limits: what a head will not take on, and that its size depends on what is open, not on what was done."""

from __future__ import annotations

import itertools

import pytest

from bucketmq.log.documents import encode
from bucketmq.queue.commands import Claim, Claimed, Full, Known, Nothing, Release
from bucketmq.queue.head import HOLDERS_MAX, SPANS_MAX, Head, Held, LastCommit, Lease, Span, Waiting, stamp
from bucketmq.queue.machine import apply
from bucketmq.queue.policy import Policy

ANY = Policy(attempts_max=3, in_flight_max=100_000, ordered=False)


@pytest.mark.parametrize("ordered", [False, True])
def test_no_more_than_in_flight_max_messages_are_handed_out(make_shard, ordered):
    shard = make_shard(in_flight_max=3, ordered=ordered)
    shard.append(10)

    assert shard.attempts(shard.claim(10)) == {0: 1, 1: 1, 2: 1}
    assert shard.ask(10) == Full(1060.0)
    assert shard.states() == "HHHFFFFFFF"


@pytest.mark.parametrize("ordered", [False, True])
def test_a_claim_of_zero_messages_is_not_told_that_the_head_is_full(make_shard, ordered):
    shard = make_shard(in_flight_max=1, ordered=ordered)
    shard.append(2)
    shard.claim()

    assert shard.ask(0) == Nothing(1, 0, 1060.0)


def test_the_limit_holds_over_several_segments(make_shard):
    shard = make_shard(in_flight_max=3)
    shard.append(2)
    shard.append(2)

    assert shard.attempts(shard.claim(10)) == {0: 1, 1: 1, 2: 1}


def test_settling_makes_room(make_shard):
    shard = make_shard(in_flight_max=2)
    shard.append(4)
    lease = shard.claim()

    shard.ack(lease, 1)

    assert shard.attempts(shard.claim()) == {2: 1}


@pytest.mark.parametrize("ordered", [False, True])
def test_what_waits_and_what_moves_counts_against_the_limit(make_shard, ordered):
    shard = make_shard(in_flight_max=2, ordered=ordered)
    shard.append(4)
    lease = shard.claim()
    shard.retry(lease, 0, delay_seconds=30)
    shard.bury(lease, 1)

    assert shard.ask() == Full(1030.0)
    assert shard.states() == "WMFF"


@pytest.mark.parametrize("ordered", [False, True])
def test_a_full_head_still_hands_out_what_is_due(make_shard, ordered):
    shard = make_shard(in_flight_max=2, ordered=ordered)
    shard.append(4)
    shard.retry(shard.claim())

    assert shard.attempts(shard.claim()) == {0: 2, 1: 2}
    assert shard.states() == "HHFF"


def test_a_head_with_room_and_nothing_to_give_is_not_full(make_shard):
    shard = make_shard(in_flight_max=3)
    shard.append(2)
    shard.claim()

    assert shard.ask() == Nothing(2, 2, 1060.0)


def test_messages_that_wait_for_a_busy_key_count_against_the_limit(make_shard):
    shard = make_shard(in_flight_max=4, ordered=True)
    shard.append("aaaaab")

    assert shard.attempts(shard.claim()) == {0: 1}
    assert shard.states() == "HWWWFF"
    assert shard.ask() == Full(1060.0)


def scattered(count: int) -> Head:
    """A head with so many spans that cannot be joined: every other message waits."""
    return Head(2 * count, 0, waiting=tuple(Waiting(Span(0, 2 * n, 2 * n + 1), 1, 50.0) for n in range(count)))


@pytest.mark.parametrize("ordered", [False, True])
def test_nothing_fresh_is_handed_out_while_spans_max_spans_are_listed(ordered):
    known = Known(0, 10 * SPANS_MAX, keys=(None,) * (10 * SPANS_MAX))
    policy = Policy(3, 100_000, ordered)

    _, (below,) = apply(scattered(SPANS_MAX - 1), [Claim("w", 1, 60, (known,))], 10.0, policy)
    head, (at,) = apply(scattered(SPANS_MAX), [Claim("w", 1, 60, (known,))], 10.0, policy)

    assert isinstance(below, Claimed)
    assert at == Full(50.0)
    assert head == scattered(SPANS_MAX)


@pytest.mark.parametrize("ordered", [False, True])
def test_a_head_with_too_many_spans_still_hands_out_what_is_due(ordered):
    known = Known(0, 10 * SPANS_MAX, keys=(None,) * (10 * SPANS_MAX))

    head, (outcome,) = apply(scattered(SPANS_MAX + 5), [Claim("w", 3, 60, (known,))], 50.0, Policy(3, 100_000, ordered))

    assert isinstance(outcome, Claimed)
    assert outcome.lease.held == tuple(Held(Span(0, 2 * n, 2 * n + 1), 2) for n in range(3))
    assert head.next == scattered(SPANS_MAX + 5).next


def test_an_ordered_claim_stops_passing_over_messages_when_the_head_is_full_of_them(make_shard):
    # Given two busy keys that take turns, so that no two neighbours are alike
    shard = make_shard(ordered=True, in_flight_max=100_000)
    shard.append("ab" * 5 * SPANS_MAX)

    # When a claim looks past them for more
    shard.claim(10)

    # Then it has listed no more than a head may list
    assert sum(1 for _ in shard.head.spans()) <= SPANS_MAX
    assert shard.ask(10) == Full(1060.0)


def test_an_ordered_claim_counts_what_is_listed_already(make_shard):
    # Given a head that lists nearly as much as it may, in hands and on the move
    shard = make_shard(ordered=True, in_flight_max=100_000)
    shard.append("." * 2 * SPANS_MAX)
    lease = shard.claim(SPANS_MAX - 2)
    shard.bury(lease, *range(0, SPANS_MAX - 2, 2))

    # When a claim wants more than that
    more = shard.claim(10)

    # Then it gets what there is room for
    assert len(more.held) == 2
    assert sum(1 for _ in shard.head.spans()) == SPANS_MAX


def test_a_head_that_retried_a_thousand_neighbours_alike_stays_small(shard):
    shard.append(1000)
    lease = shard.claim(1000)
    offsets = [*range(1, 1000, 2), *range(0, 1000, 2)]

    for offset in offsets:
        shard.retry(lease, offset, delay_seconds=30, failed="f")

    assert shard.head.waiting == (Waiting(Span(0, 0, 1000), 1, 1030.0, ("f",)),)
    assert len(encode(shard.head)) < 200


def test_a_head_that_lost_a_worker_with_a_thousand_messages_stays_small(make_shard):
    shard = make_shard(attempts_max=1)
    shard.append(1000)
    shard.claim(1000, lease_seconds=10)
    shard.now += 10

    assert isinstance(shard.ask(), Nothing)

    assert shard.states() == "M" * 1000
    assert len(shard.head.moving) == 1
    assert len(encode(shard.head)) < 200


@pytest.mark.parametrize(
    "other",
    [
        Waiting(Span(0, 3, 5), 2, 50.0, ("f",), "k"),
        Waiting(Span(0, 3, 5), 1, 51.0, ("f",), "k"),
        Waiting(Span(0, 3, 5), 1, 50.0, ("g",), "k"),
        Waiting(Span(0, 3, 5), 1, 50.0, ("f",), None),
        Waiting(Span(3, 3, 5), 1, 50.0, ("f",), "k"),
        Waiting(Span(0, 4, 5), 1, 50.0, ("f",), "k"),
    ],
    ids=["attempts", "after", "failed", "key", "segment", "gap"],
)
def test_neighbours_that_differ_are_not_joined(other):
    one, last = Waiting(Span(0, 0, 3), 1, 50.0, ("f",), "k"), Span(5, 5, 6)
    head = Head(6, 5, lease=1, leases=(Lease(1, "w", 99.0, (Held(last),)),), waiting=(one, other))

    after, _ = apply(head, [Release(1, (last,))], 10.0, ANY)

    assert after.waiting == (one, other, Waiting(last))


def test_neighbours_that_are_alike_are_joined_wherever_they_come_from():
    one, other = Waiting(Span(0, 0, 2)), Waiting(Span(0, 3, 5))
    head = Head(5, 0, lease=1, leases=(Lease(1, "w", 99.0, (Held(Span(0, 2, 3)),)),), waiting=(one, other))

    after, _ = apply(head, [Release(1, (Span(0, 2, 3),))], 10.0, ANY)

    assert after.waiting == (Waiting(Span(0, 0, 5)),)


def test_the_bytes_of_a_head_do_not_grow_with_the_number_of_settled_messages(shard):
    sizes = set()
    shard.head = Head(10**12, 10**12)  # so that the digits of the offsets do not count
    known = [Known(10**12 + 100 * n, 100) for n in range(500)]
    for segment in known:
        lease = shard.do(Claim("w", 100, 60, (segment,))).lease
        shard.ack(lease)
        sizes.add(len(encode(shard.head)) - len(str(shard.head.lease)))

    assert len(sizes) == 1
    assert sizes.pop() < 100


def test_the_bytes_of_a_head_do_not_grow_with_the_number_of_messages_in_one_hand(shard):
    shard.append(9_999)

    shard.claim(9_999)

    assert len(encode(shard.head)) < 200


def test_a_head_remembers_the_last_commit_of_each_holder():
    head = stamp(stamp(Head(0, 0), "a", 1, 10.0), "a", 2, 11.23456)

    assert head.holders == {"a": LastCommit(2, 11.235)}
    assert head.version == 2


def test_the_longest_silent_holder_is_forgotten_first():
    head = Head(0, 0)
    for n in range(HOLDERS_MAX):
        head = stamp(head, f"w{n}", 1, 100.0 + n)
    head = stamp(head, "w0", 2, 900.0)
    assert len(head.holders) == HOLDERS_MAX

    head = stamp(head, "new", 1, 901.0)

    assert len(head.holders) == HOLDERS_MAX
    assert "w1" not in head.holders
    assert {"w0", "w2", "new"} <= head.holders.keys()


def test_the_holder_who_commits_is_never_the_one_forgotten():
    # Given a head full of holders whose clocks are ahead
    head = Head(0, 0)
    for n in range(HOLDERS_MAX):
        head = stamp(head, f"w{n}", 1, 1000.0 + n)

    # When one commits by a clock behind theirs
    head = stamp(head, "late", 7, 999.0)

    # Then it can still be told whether that commit landed
    assert head.holders["late"] == LastCommit(7, 999.0)
    assert "w0" not in head.holders


def test_states_of_a_head_never_have_equal_bytes():
    head, bodies = Head(0, 0), set()
    for n in itertools.repeat(0, 10):
        head = stamp(head, "w", n, 5.0)
        bodies.add(encode(head))

    assert len(bodies) == 10
