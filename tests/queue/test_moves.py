"""Aim, Moved, Jump: messages on their way into another log, and messages given up."""

from __future__ import annotations

from bucketmq.queue.commands import Aim, Jump, Moved, Noted, Nothing, Settled, Skip
from bucketmq.queue.head import Head, Lease, Moving, Span, Target, Waiting

HERE, THERE = Target(0, 40, "m1"), Target(0, 41, "m2")


def starts(shard) -> list[tuple[int, Target | None]]:
    return [(entry.span.start, entry.target) for entry in shard.head.moving]


def test_a_move_is_aimed_before_it_is_made_and_forgotten_when_it_has_arrived(shard):
    shard.append(1)
    shard.bury(shard.claim(), failed="f")

    assert shard.do(Aim((0,), None, HERE)) == Noted(True)
    assert shard.head.moving == (Moving(Span(0, 0, 1), 1, shard.now, ("f",), HERE),)

    assert shard.do(Moved(HERE)) == Noted(True)
    assert shard.head == Head(1, 1, lease=1)


def test_only_the_moves_named_are_aimed(shard):
    shard.append(5)
    shard.bury(shard.claim(), 0, 2, 4)

    shard.do(Aim((0, 4), None, HERE))

    assert starts(shard) == [(0, HERE), (2, None), (4, HERE)]


def test_a_move_that_another_has_aimed_keeps_its_target(shard):
    shard.append(1)
    shard.bury(shard.claim())
    shard.do(Aim((0,), None, HERE))

    assert shard.do(Aim((0,), None, THERE)) == Noted(False)
    assert starts(shard) == [(0, HERE)]


def test_a_move_whose_target_was_taken_is_aimed_anew(shard):
    shard.append(1)
    shard.bury(shard.claim())
    shard.do(Aim((0,), None, HERE))

    assert shard.do(Aim((0,), HERE, THERE)) == Noted(True)
    assert starts(shard) == [(0, THERE)]
    assert shard.do(Moved(HERE)) == Noted(False)


def test_aiming_at_nothing_says_that_nothing_changed(shard):
    shard.append(2)
    shard.claim()
    before = shard.head

    assert shard.do(Aim((0, 7), None, HERE)) == Noted(False)
    assert shard.head == before


def test_an_arrival_ends_only_the_moves_with_its_target(shard):
    shard.append(5)
    shard.bury(shard.claim(), 0, 2, 4)
    shard.do(Aim((0, 4), None, HERE))
    shard.do(Aim((2,), None, THERE))

    assert shard.do(Moved(HERE)) == Noted(True)

    assert starts(shard) == [(2, THERE)]
    assert shard.states() == "-HMH-"


def test_an_arrival_reported_twice_changes_nothing_the_second_time(shard):
    shard.append(1)
    shard.bury(shard.claim())
    shard.do(Aim((0,), None, HERE))

    assert [shard.do(Moved(HERE)), shard.do(Moved(HERE))] == [Noted(True), Noted(False)]


def test_a_move_without_a_target_is_not_ended_by_any_arrival(shard):
    shard.append(1)
    shard.bury(shard.claim())

    assert shard.do(Moved(HERE)) == Noted(False)
    assert shard.states() == "M"


def test_a_move_never_grows_so_that_an_aim_gets_what_was_seen_and_no_more(shard):
    # Given a move that somebody has seen and is about to aim
    shard.append(3)
    lease = shard.claim()
    shard.bury(lease, 1)

    # When its neighbours fail in the same way at the same time before that
    shard.bury(lease, 0)
    shard.bury(lease, 2)
    shard.do(Aim((1,), None, HERE))

    # Then they are moves of their own
    assert starts(shard) == [(0, None), (1, HERE), (2, None)]
    shard.do(Moved(HERE))
    assert shard.states() == "M-M"


def test_an_aimed_move_is_not_joined_to_one_that_comes_later(shard):
    # Given a move that has its target, so that its segment may exist already
    shard.append(2)
    lease = shard.claim()
    shard.bury(lease, 0)
    shard.do(Aim((0,), None, HERE))

    # When its neighbour fails in the same way at the same time
    shard.bury(lease, 1)

    # Then it is not taken for part of what was moved
    assert starts(shard) == [(0, HERE), (1, None)]
    shard.do(Moved(HERE))
    assert shard.states() == "-M"


def test_a_move_goes_on_while_everything_else_does(shard):
    shard.append(4)
    lease = shard.claim(3)
    shard.bury(lease, 0)
    shard.do(Aim((0,), None, HERE))

    shard.retry(lease, 1)
    shard.ack(lease, 2)
    shard.now += 1000
    shard.claim()

    assert starts(shard) == [(0, HERE)]
    assert shard.states() == "MH-H"


def test_a_jump_forgets_everything_below_it_and_nothing_above(shard):
    # Given three segments, each with a message in every listed state
    for _ in range(3):
        shard.append(4)
    lease = shard.claim(12)
    for base in (0, 4, 8):
        shard.ack(lease, base)
        shard.retry(lease, base + 1, delay_seconds=10)
        shard.bury(lease, base + 2)
    assert shard.states() == "-WMH" * 3

    # When everything below the third is given up
    assert shard.do(Jump(8)) == Noted(True)

    assert shard.states() == "--------" + "-WMH"
    assert (shard.head.next, shard.head.segment) == (12, 12)
    assert [held.span for held in shard.head.leases[0].held] == [Span(8, 11, 12)]
    assert shard.head.waiting == (Waiting(Span(8, 9, 10), 1, 1010.0, ("f",)),)


def test_a_lease_of_which_a_jump_leaves_nothing_is_gone(shard):
    shard.append(2)
    shard.append(2)
    old = shard.claim(2, holder="a")
    new = shard.claim(2, holder="b")

    shard.do(Jump(2))

    assert [lease.number for lease in shard.head.leases] == [new.number]
    assert shard.ack(old) == Settled(0, (Span(0, 0, 2),))


def test_a_jump_past_everything_handed_out_makes_the_rest_settled_too(shard):
    shard.append(2)
    shard.append(2)
    shard.append(2)
    shard.claim(1)

    assert shard.do(Jump(4)) == Noted(True)

    assert shard.head == Head(4, 4, lease=1)
    assert shard.attempts(shard.claim()) == {4: 1, 5: 1}


def test_a_jump_to_where_the_head_is_changes_nothing(shard):
    shard.append(2)
    shard.ack(shard.claim())
    before = shard.head

    assert shard.do(Jump(2)) == Noted(False)
    assert shard.head == before


def test_a_jump_never_goes_back(shard):
    shard.append(2)
    shard.append(2)
    lease = shard.claim(3)
    before = shard.head

    assert shard.do(Jump(0)) == Noted(False)

    assert shard.head == before
    assert shard.ack(lease) == Settled(3)
    assert shard.ask(0) == Nothing(3, 2, None)


def test_a_jump_into_the_segment_being_handed_out_keeps_what_is_in_hand_there(shard):
    shard.append(2)
    shard.append(3)
    shard.claim(3)

    assert shard.do(Jump(2)) == Noted(True)

    assert (shard.head.next, shard.head.segment) == (3, 2)
    assert shard.states() == "--HFF"
    assert isinstance(shard.head.leases[0], Lease)


def test_a_skip_passes_a_gap_and_keeps_everything_that_is_listed(shard):
    # Given a message in every listed state, and a head at the end of the first segment
    shard.append(4)
    shard.append(4)
    lease = shard.claim(4)
    shard.ack(lease, 0)
    shard.retry(lease, 1, delay_seconds=10)
    shard.bury(lease, 2)

    assert shard.do(Skip(4, 8)) == Noted(True)

    assert shard.states() == "-WMH" + "----"
    assert (shard.head.next, shard.head.segment) == (8, 8)


def test_a_skip_of_a_gap_that_the_head_is_not_at_changes_nothing(shard):
    shard.append(4)
    shard.append(4)
    shard.claim(3)
    before = shard.head

    assert shard.do(Skip(4, 8)) == Noted(False)
    assert shard.do(Skip(0, 3)) == Noted(False)
    assert shard.head == before
