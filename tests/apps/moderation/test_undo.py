"""What a person said is taken back: by whom, for how long, and that every post still ends in exactly one place.

Faults are as in `test_posts`: one bad answer, or a death, at every single request; and others in between.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from procedures.objects.world import DEATHS, Killed, World, log_of

import bucketmq
from apps.moderation.test_posts import (
    UNSURE,
    audited,
    classify,
    do,
    events,
    finish,
    flagged,
    register,
    where,
    world,
)
from bucketmq.apps.moderation import posts
from bucketmq.apps.moderation.audit import collapsed
from bucketmq.apps.moderation.ids import key_of
from bucketmq.apps.moderation.places import ESCALATED
from bucketmq.apps.moderation.queues import DECISIONS
from bucketmq.apps.moderation.record import APPROVED, FLAGGED, NEEDS_REVIEW, REVIEWED
from bucketmq.apps.moderation.register import PAST_MAX, UNDO_SECONDS, UNDONE_MAX, Refused, Reviewed, TakenBack

__all__ = ["world"]


def decide(bucket: Any, action: str, *, by: str = "rosa", revision: int = 1) -> Any:
    return do(bucket, posts.review, "p1", revision=revision, reviewer=by, action=action)


def undo(bucket: Any, action: str = "approve", *, turn: int = 0, by: str = "rosa", **more: Any) -> Any:
    return do(bucket, posts.undo, "p1", revision=1, action=action, turn=turn, by=by, **more)


def approved(world: World) -> Any:
    """A bucket with a post that was flagged, and that rosa approved."""
    bucket = flagged(world)
    assert isinstance(decide(bucket, "approve"), Reviewed)
    return bucket


def waits(bucket: Any) -> list[str]:
    return [each.id for each in do(bucket, posts.waiting).entries]


def follows(world: World) -> Any:
    """That the objects say what the register says; the register."""
    found = register(world.connect(), "p1")
    assert found.decision is not None
    assert where(world, "p1") == {found.outcome: found.decision.revision}
    marks = [msgspec.json.decode(body)["reviewer"] for body in world.objects(REVIEWED).values()]
    assert marks == ([] if found.review is None else [found.review.reviewer])
    marks = [msgspec.json.decode(body)["reviewer"] for body in world.objects(ESCALATED).values()]
    open_mark = found.escalation if found.review is None else None
    assert marks == ([] if open_mark is None else [open_mark.reviewer])
    return found


def test_what_was_decided_is_taken_back_and_the_post_waits_where_it_lay(world: World) -> None:
    bucket = approved(world)
    done = undo(bucket, note="wrong key")
    assert isinstance(done, TakenBack) and (done.outcome, done.new) == (FLAGGED, True)
    assert where(world, "p1") == {FLAGGED: 1} and not world.objects(REVIEWED)
    assert waits(bucket) == ["p1"]
    assert audited(bucket)[-2:] == [("approve", "rosa", 1), ("undo", "rosa", 1)]
    (kept,) = register(bucket, "p1").undone
    assert (kept.review.action, kept.by, kept.note) == ("approve", "rosa", "wrong key")
    assert isinstance(decide(bucket, "uphold", by="emil"), Reviewed), "it is open for everybody again"
    assert follows(world).review.reviewer == "emil"


def test_each_time_has_lines_of_its_own_also_in_the_queue_of_decisions(world: World) -> None:
    bucket = flagged(world)
    for turn in range(3):
        decide(bucket, "approve")
        undo(bucket, turn=turn)
    lines = list(collapsed(message.body for message in log_of(bucket, DECISIONS)))
    assert [(line.did, line.turn) for line in lines] == [
        (did, turn) for turn in range(3) for did in ("approve", "undo")
    ]
    assert [line.of for line in lines if line.did == "undo"] == [line.action for line in lines if line.did != "undo"]
    assert {(line.outcome, line.before) for line in lines} == {(APPROVED, FLAGGED), (FLAGGED, APPROVED)}


def test_only_who_said_it_may_and_only_for_a_while_but_an_administrator_always(world: World) -> None:
    bucket = approved(world)
    others = undo(bucket, by="emil")
    assert isinstance(others, Refused) and (others.why, others.reviewer) == ("not-yours", "rosa")
    world.advance(UNDO_SECONDS + 60)
    late = undo(bucket)
    assert isinstance(late, Refused) and late.why == "late"
    assert where(world, "p1") == {APPROVED: 1}
    done = undo(bucket, by="ada", administers=True)
    assert isinstance(done, TakenBack) and done.undone.by == "ada"
    assert follows(world).review is None
    assert [line for line in audited(bucket) if line[0] in ("refused", "undo")] == [
        ("refused", "emil", 1),
        ("refused", "rosa", 1),
        ("undo", "ada", 1),
    ]


def test_the_window_is_a_setting(world: World) -> None:
    bucket = approved(world)
    world.advance(UNDO_SECONDS + 60)
    assert isinstance(undo(bucket, window_seconds=2 * UNDO_SECONDS), TakenBack)


def test_taking_back_twice_is_once_and_another_is_told_who_did(world: World) -> None:
    bucket = approved(world)
    first, again = undo(bucket), undo(world.connect())
    assert (first.new, again.new) == (True, False) and first.undone == again.undone
    other = undo(bucket, by="ada", administers=True)
    assert isinstance(other, Refused) and (other.why, other.reviewer) == ("undone", "rosa")
    decide(bucket, "uphold", by="emil")
    assert undo(bucket).new is False, "said again late, it takes nothing else back"
    assert follows(world).review.reviewer == "emil"


def test_an_escalation_is_taken_back_and_outlives_a_decision_that_is(world: World) -> None:
    bucket = flagged(world)
    decide(bucket, "escalate")
    assert isinstance(undo(bucket, "escalate"), TakenBack)
    assert follows(world).escalation is None
    decide(bucket, "escalate", by="emil")
    decide(bucket, "approve", by="rosa")
    refused = undo(bucket, "escalate", turn=1, by="emil")
    assert isinstance(refused, Refused) and refused.why == "decided"
    assert isinstance(undo(bucket, "approve", turn=1), TakenBack)
    assert follows(world).escalation.reviewer == "emil"
    assert [each.escalated for each in do(bucket, posts.waiting).entries] == [True]


def test_what_was_said_of_an_older_revision_stays_said_and_is_remembered(world: World) -> None:
    bucket = approved(world)
    for revision in range(2, PAST_MAX + 4):
        do(bucket, posts.accept, "p1", f"text {revision}")
        do(bucket, posts.route, classify(bucket, "p1", f"text {revision}", UNSURE, revision=revision))
        if revision == 2:
            late = undo(bucket)
            assert isinstance(late, Refused) and late.why == "superseded"
            (chapter,) = register(bucket, "p1").past
            assert chapter.review is not None and chapter.review.reviewer == "rosa"
    past = register(bucket, "p1").past
    assert [chapter.decision.revision for chapter in past] == list(range(3, PAST_MAX + 3))


def test_back_and_forth_has_an_end(world: World) -> None:
    bucket = flagged(world)
    for turn in range(UNDONE_MAX):
        decide(bucket, "approve")
        assert isinstance(undo(bucket, turn=turn), TakenBack)
    decide(bucket, "approve")
    last = undo(bucket, turn=UNDONE_MAX)
    assert isinstance(last, Refused) and last.why == "too-often"
    assert where(world, "p1") == {APPROVED: 1}


def test_nothing_is_taken_back_where_nothing_was_said(world: World) -> None:
    with pytest.raises(bucketmq.NotFound, match="post 'p1'"):
        undo(world.connect())
    bucket = flagged(world)
    nothing = undo(bucket)
    assert isinstance(nothing, Refused) and nothing.why == "unknown"
    decide(bucket, "approve")
    for other in (undo(bucket, turn=1), undo(bucket, "uphold"), undo(bucket, "escalate")):
        assert isinstance(other, Refused) and other.why == "unknown"
    with pytest.raises(bucketmq.Invalid, match="delete"):
        undo(bucket, "delete")


def test_taking_back_costs_as_much_as_deciding() -> None:
    world = World("copying")
    bucket = flagged(world)
    decide(bucket, "approve")
    undo(bucket)
    counts = []
    for verb in (lambda: decide(bucket, "approve"), lambda: undo(bucket, turn=1)):
        before = bucket.hands.count
        assert not isinstance(verb(), Refused)
        counts.append(bucket.hands.count - before)
    assert counts == [23, 24], "the move, the mark and the events of both, five logs"
    world.close()


def dies(world: World, at: int, death: Any, verb: Callable[[Any], Any]) -> bool:
    """Whether somebody came through: they die at their request number `at`."""
    try:
        verb(world.connect(at=at, fault=death))
    except Killed:
        return False
    return True


@pytest.mark.parametrize("kind", ["copying", "renaming"])
def test_taking_back_that_dies_anywhere_is_either_not_done_or_finished(kind: str) -> None:
    for death in DEATHS:
        for at in range(100):
            world = World(kind)
            approved(world)
            seen = events(world)
            through = dies(world, at, death, undo)
            after = finish(world, seen)
            found = follows(world)
            assert (found.review is None) == bool(found.undone), (death, at)
            assert audited(after).count(("undo", "rosa", 1)) == len(found.undone), (death, at)
            assert audited(after).count(("approve", "rosa", 1)) == 1
            assert waits(after) == (["p1"] if found.undone else [])
            world.close()
            if through:
                assert found.undone and at > 5
                break


def test_one_bad_answer_while_taking_back_is_made_good() -> None:
    for fault in ("landed", "lost", "landed and refused", "unavailable"):
        for at in range(100):
            world = World("hashing")
            approved(world)
            seen, bad = events(world), world.connect(at=at, fault=fault)
            try:
                done = undo(bad)
                assert isinstance(done, TakenBack)
            except bucketmq.Unavailable:
                assert fault.startswith("unavailable"), (fault, at)
            hit = bad.hands.hit
            finish(world, seen)
            follows(world)
            assert audited(world.connect()).count(("undo", "rosa", 1)) <= 1
            world.close()
            if not hit:
                assert at > 5
                break


@pytest.mark.parametrize("dying", [False, True])
@pytest.mark.parametrize("first", ["undo", "decide"])
def test_one_takes_back_while_another_decides_and_there_is_one_end(first: str, *, dying: bool) -> None:
    """Emil's uphold comes whole before each request of rosa's undo, or the other way round; the first may die then."""
    for at in range(100):
        world = World("hashing")
        approved(world)
        one, two, seen = world.connect(), world.connect(), events(world)
        verbs = {"undo": undo, "decide": lambda bucket: decide(bucket, "uphold", by="emil")}
        outer, inner = (verbs[first], verbs["decide" if first == "undo" else "undo"])
        met: list[Any] = []

        def meddle(number: int, request: Any) -> None:
            if number == at and not met:  # noqa: B023
                met.append(inner(two))  # noqa: B023
            elif met and number == at + 1 and dying:  # noqa: B023
                one.hands.dead = True  # noqa: B023
                raise Killed

        one.hands.meddle = meddle
        try:
            answer = outer(one)
        except Killed:
            answer = None
        if met:
            finish(world, seen)
            found = follows(world)
            undone, decided = (answer, met[0]) if first == "undo" else (met[0], answer)
            if undone is not None:
                assert isinstance(undone, TakenBack), "nobody else can have taken it back"
            if decided is not None:
                assert isinstance(decided, Reviewed) == (found.review is not None and bool(found.undone)), at
            assert audited(world.connect()).count(("uphold", "emil", 1)) == (
                found.review is not None and found.review.reviewer == "emil"
            )
        world.close()
        if not met:
            assert at > 5
            break


def test_two_administrators_at_once_take_back_one_decision_once() -> None:
    for at in range(100):
        world = World("copying")
        approved(world)
        one, two, seen = world.connect(), world.connect(), events(world)
        met: list[Any] = []

        def meddle(number: int, request: Any) -> None:
            if number == at and not met:  # noqa: B023
                met.append(undo(two, by="ada", administers=True))  # noqa: B023

        one.hands.meddle = meddle
        answer = undo(one)
        if met:
            assert {type(answer), type(met[0])} == {TakenBack, Refused}, at
            finish(world, seen)
            assert len(follows(world).undone) == 1
        world.close()
        if not met:
            assert at > 5
            break


@pytest.mark.parametrize("action", ["approve", "uphold"])
def test_whoever_settles_an_old_view_does_not_bring_back_what_was_taken_back(action: str) -> None:
    """A router settles a decided post once more; the decision is taken back before each of its requests."""
    for at in range(100):
        world = World("hashing")
        bucket = flagged(world)
        decide(bucket, action)
        if at % 2:  # as if its maker had died before the move
            world.delete(key_of(REVIEWED, "p1"))
        router, met = world.connect(), []

        def meddle(number: int, request: Any) -> None:
            if number == at // 2 and not met:  # noqa: B023
                met.append(undo(bucket, action))  # noqa: B023

        router.hands.meddle = meddle
        do(router, posts.settle, "p1")
        if met:
            assert follows(world).review is None, at
        world.close()
        if not met:
            assert at > 8
            break


def test_a_stale_move_is_noticed_though_the_mark_of_what_was_taken_back_is_still_there() -> None:
    """The settler goes on when the undo has moved the post back and not yet removed its mark: at every pair of
    requests of the two."""
    moved_back = 0
    for settler_at in range(8):
        met: list[dict[str, int]] = []
        for undo_at in range(12, 40):  # it decides before, and then begins to move
            world = World("hashing")
            bucket = flagged(world)
            do(bucket, posts.review, "p1", revision=1, reviewer="rosa", action="approve")
            router, before = world.connect(), len(met)

            def meddle(number: int, request: Any) -> None:
                if number == settler_at and len(met) == before:  # noqa: B023
                    through.append(dies(world, undo_at, DEATHS[0], undo))  # noqa: B023
                    met.append(where(world, "p1"))  # noqa: B023

            through: list[bool] = []
            router.hands.meddle = meddle
            do(router, posts.settle, "p1")
            if met and met[-1] == {FLAGGED: 1}:
                moved_back += 1
                assert where(world, "p1") == {FLAGGED: 1}, (settler_at, undo_at)
            world.close()
            if not met or through[0]:
                break
        if not met:
            break
    assert moved_back > 5


def test_what_was_taken_back_is_noted_though_they_died_and_the_post_was_revised() -> None:
    for death in DEATHS:
        for at in range(100):
            world = World("copying")
            bucket = approved(world)
            through = dies(world, at, death, undo)
            made = bool(register(bucket, "p1").undone)
            do(bucket, posts.accept, "p1", "second")
            do(bucket, posts.route, classify(bucket, "p1", "second", UNSURE, revision=2))
            assert audited(bucket).count(("undo", "rosa", 1)) == made, (death, at)
            assert where(world, "p1") == {NEEDS_REVIEW: 2}
            world.close()
            if through:
                assert made and at > 5
                break
