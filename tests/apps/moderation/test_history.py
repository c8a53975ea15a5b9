"""The history of a post: everything in order, and what it costs however long the logs are."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
from procedures.objects.world import World

import bucketmq
from apps.moderation.test_posts import BAD, UNSURE, classify, do, flagged, record_body
from bucketmq.api.bucket import BucketApi
from bucketmq.apps.moderation import logbook, posts
from bucketmq.apps.moderation.history import Told, history_of
from bucketmq.apps.moderation.ids import key_of
from bucketmq.apps.moderation.notice import NOTICE_RULE
from bucketmq.apps.moderation.queues import AUDIT
from bucketmq.apps.moderation.record import FLAGGED
from bucketmq.apps.moderation.register import PAST_MAX
from bucketmq.events.event import time_text
from bucketmq.procedures import verbs
from bucketmq.procedures.queues import open_queue
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.rules import journal
from bucketmq.procedures.rules.journal import Attempt


@pytest.fixture
def world() -> Iterator[World]:
    made = World("copying")
    yield made
    made.close()


def told(bucket: Any, id: str = "p1") -> Told:
    found: Told = do(bucket, history_of, id)
    return found


def notice(world: World, bucket: Any, id: str, outcome: str, **more: Any) -> None:
    now = time_text(world.time.now())
    attempt = Attempt(
        rule=NOTICE_RULE,
        event="e",
        key=key_of(FLAGGED, id),
        attempt=1,
        outcome=outcome,
        at=now,
        happened_at=now,
        **more,
    )

    def noted(bus: BucketApi) -> Procedure[None]:
        yield from journal.record((yield from bus.open()), [attempt])

    do(bucket, noted)


def others(world: World, bucket: Any, count: int) -> None:
    """What happens to other posts, each in a segment of its own."""
    queue = bucket.queue(AUDIT)
    now = time_text(world.time.now())
    for number in range(count):
        queue.send({"action": f"accepted:o{number}:1:{now}", "did": "accepted", "by": "ingest", "id": "o", "at": now})
    world.advance(5)


def test_everything_that_happened_to_a_post_is_told_in_order(world: World) -> None:
    bucket = flagged(world)
    world.advance(5)
    notice(world, bucket, "p1", "retry", reason="HTTP 503")
    world.advance(5)
    notice(world, bucket, "p1", "done", status=200)
    notice(world, bucket, "p2", "done", status=200)
    world.advance(3600)
    do(bucket, posts.review, "p1", revision=1, reviewer="rosa", action="escalate", note="is this a threat?")
    world.advance(60)
    do(bucket, posts.review, "p1", revision=1, reviewer="emil", action="approve", note="satire")
    world.advance(1)
    do(bucket, posts.review, "p1", revision=1, reviewer="rosa", action="uphold")
    world.advance(60)
    do(bucket, posts.undo, "p1", revision=1, action="approve", turn=0, by="emil", note="no, it is not")
    world.advance(60)
    do(bucket, posts.review, "p1", revision=1, reviewer="rosa", action="uphold")
    found = told(bucket)
    assert [(step.did, step.by) for step in found.steps] == [
        ("accepted", "ingest"),
        ("judged", "test-1"),
        ("routed", "router"),
        ("notice", NOTICE_RULE),
        ("notice", NOTICE_RULE),
        ("escalate", "rosa"),
        ("approve", "emil"),
        ("refused", "rosa"),
        ("undo", "emil"),
        ("uphold", "rosa"),
    ]
    steps = {step.did: step for step in found.steps}
    assert [each.name for each in steps["judged"].categories if each.flagged] == ["spam"]
    assert steps["judged"].confidence == BAD and steps["routed"].outcome == FLAGGED and steps["routed"].reason
    assert (steps["undo"].of, steps["undo"].reason) == ("approve", "no, it is not")
    assert "emil approved" in steps["refused"].reason
    assert [(step.outcome, step.reason) for step in found.steps if step.did == "notice"] == [
        ("retry", "HTTP 503"),
        ("done", "HTTP 200"),
    ]
    assert [step.at for step in found.steps] == sorted(step.at for step in found.steps)


def test_older_revisions_are_told_too_and_it_is_said_how_many_are_not(world: World) -> None:
    bucket = flagged(world)
    do(bucket, posts.review, "p1", revision=1, reviewer="rosa", action="uphold")
    for revision in range(2, PAST_MAX + 4):
        world.advance(100)
        do(bucket, posts.accept, "p1", f"text {revision}")
        do(bucket, posts.route, classify(bucket, "p1", f"text {revision}", UNSURE, revision=revision))
        if revision == 2:
            found = told(bucket)
            assert [(step.did, step.revision) for step in found.steps if step.did != "notice"] == [
                ("accepted", 1), ("judged", 1), ("routed", 1), ("uphold", 1),
                ("accepted", 2), ("judged", 2), ("routed", 2),
            ]  # fmt: skip
            assert found.forgotten == 0
    do(bucket, posts.accept, "p1", "the newest, not judged yet")
    found = told(bucket)
    assert found.revision == PAST_MAX + 4 and found.steps[-1].did == "accepted"
    assert found.forgotten == 2 and found.steps[0].revision == 3


def test_posts_of_others_and_those_not_judged_yet_have_what_there_is(world: World) -> None:
    bucket = world.connect()
    bucket.put(key_of(FLAGGED, "foreign"), record_body("foreign", "hello", BAD))
    assert [step.did for step in told(bucket, "foreign").steps] == ["judged"]
    do(bucket, posts.accept, "p1", "hello")
    assert [step.did for step in told(bucket).steps] == ["accepted"]
    with pytest.raises(bucketmq.NotFound, match="'nobody'"):
        told(bucket, "nobody")
    with pytest.raises(bucketmq.Invalid):
        told(bucket, "")


@pytest.mark.parametrize("before", [10, 400])
def test_what_it_costs_is_bounded_whatever_the_logs_hold(
    world: World, before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Pages of 20 segments, so that a log of some hundreds is a long one."""
    monkeypatch.setattr(logbook, "list_page", lambda prefix, **given: verbs.list_page(prefix, limit=20, **given))
    bucket = world.connect()
    others(world, bucket, before)
    bucket = flagged(world)
    notice(world, bucket, "p1", "done", status=200)
    for turn in range(3):
        world.advance(10)
        do(bucket, posts.review, "p1", revision=1, reviewer="rosa", action="approve")
        others(world, bucket, before // 4)
        do(bucket, posts.undo, "p1", revision=1, action="approve", turn=turn, by="rosa")
        others(world, bucket, before // 4)
    looker = world.connect()
    told(looker)
    spent = looker.hands.count
    found = told(looker)
    assert [step.did for step in found.steps].count("undo") == 3
    again = looker.hands.count - spent
    assert again <= {10: 32, 400: 40}[before], again


def test_a_time_is_found_in_a_log_of_any_length_with_few_listings(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    limit = 7
    listed = itertools.count()

    def list_page(prefix: str, *, after: str = "") -> Any:
        next(listed)
        return verbs.list_page(prefix, after=after, limit=limit)

    monkeypatch.setattr(logbook, "list_page", list_page)
    bucket = world.connect()
    queue = bucket.queue("long")
    times = []
    for number in range(300):
        world.advance(10)
        times.append(world.time.now())
        queue.send_many([{"n": number}] * (1 + number % 4))

    def first(bus: BucketApi, at: float) -> Procedure[list[Any]]:
        opened = yield from open_queue((yield from bus.open()), "long", {}, create=False)
        base = yield from logbook.first_since(opened, 0, at)
        messages, _ = yield from logbook.read_from(opened, 0, base, 1)
        return [message.body["n"] for message in messages[:1]]

    for number in (0, 1, 6, 7, 8, 123, 298, 299):
        begun = next(listed)
        assert do(bucket, first, times[number] - 5) == [number]
        assert next(listed) - begun - 1 <= 12
    assert do(bucket, first, times[0] - 1e6) == [0]
    assert do(bucket, first, times[-1] + 100) == []
    queue.trim()
    assert msgspec.json.encode(do(bucket, first, 0.0))


def test_the_last_messages_of_a_log_are_read_without_the_rest(world: World) -> None:
    bucket = world.connect()
    queue = bucket.queue("long")
    for number in range(100):
        queue.send({"n": number})

    def last(bus: BucketApi, many: int) -> Procedure[tuple[list[int], int]]:
        opened = yield from open_queue((yield from bus.open()), "long", {}, create=False)
        messages, end = yield from logbook.read_last(opened, 0, many)
        return [message.body["n"] for message in messages], end

    looker = world.connect()
    assert do(looker, last, 10) == (list(range(90, 100)), 100)
    before = looker.hands.count
    do(looker, last, 10)
    assert looker.hands.count - before <= 14
    assert do(looker, last, 1_000) == (list(range(100)), 100)
