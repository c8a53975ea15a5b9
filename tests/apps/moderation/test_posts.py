"""A post is accepted, decided, reviewed: whatever dies, repeats or comes at once, it ends in exactly one place.

Faults are as in `bus/world.py`: one bad answer, or a death, at every single request of a verb.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from procedures.objects.world import DEATHS, FAULTS, Killed, World, log_of, summary

import bucketmq
from bucketmq.api.bucket import BucketApi
from bucketmq.apps.moderation import audit, posts
from bucketmq.apps.moderation.ids import key_of
from bucketmq.apps.moderation.pipeline import pipeline
from bucketmq.apps.moderation.places import ESCALATED
from bucketmq.apps.moderation.queues import CHORES, SUBMISSIONS
from bucketmq.apps.moderation.record import (
    APPROVED,
    CATEGORIES,
    FLAGGED,
    NEEDS_REVIEW,
    OUTCOMES,
    PENDING,
    REVIEWED,
    Category,
    Post,
    Verdict,
    record_of,
)
from bucketmq.apps.moderation.register import Refused, Register, Reviewed
from bucketmq.apps.moderation.router import settle_where
from bucketmq.pipeline import ToObjects
from bucketmq.pipeline.objects import Did, Wanted, write_objects
from bucketmq.pipeline.things import Thing
from bucketmq.procedures.objects.metadata import NO_CAUSE
from bucketmq.procedures.requests import Procedure
from bucketmq.server.place import bus_of

CLEAN, BAD, UNSURE = 0.01, 0.97, 0.6


@pytest.fixture(params=["copying", "renaming", "hashing"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    made = World(request.param)
    yield made
    made.close()


def do(bucket: Any, verb: Callable[..., Any], *given: Any, **options: Any) -> Any:
    return bucket.run(verb(bus_of(bucket), *given, **options))


def record_body(id: str, text: str, spam: float, *, revision: int = 1, model: str = "test-1") -> bytes:
    """What classification writes."""
    categories = tuple(
        Category(name, flagged=name == "spam" and spam > 0.5, confidence=spam if name == "spam" else 0.0)
        for name in CATEGORIES
    )
    record = record_of(
        Post(id, text, revision=revision), Verdict(categories, model), created_at="2026-05-04T08:00:00.000000Z"
    )
    return msgspec.json.encode(record)


def classify(bucket: Any, id: str, text: str, spam: float, *, revision: int = 1, model: str = "test-1") -> str:
    """Put a record below pending/, as the pipeline does; returns its key."""
    key = key_of(PENDING, id)
    bucket.put(key, record_body(id, text, spam, revision=revision, model=model))
    return key


def where(world: World, id: str) -> dict[str, int]:
    """The revisions of the post's objects, by prefix."""
    objects = world.objects()
    keys = {prefix: key_of(prefix, id) for prefix in (PENDING, *OUTCOMES)}
    return {prefix: msgspec.json.decode(objects[key])["revision"] for prefix, key in keys.items() if key in objects}


def register(bucket: Any, id: str) -> Register:
    found = do(bucket, posts.look_at, id).register
    assert found is not None
    return found


def submissions(bucket: Any) -> list[Any]:
    return [message.body for message in log_of(bucket, SUBMISSIONS)]


def audited(bucket: Any) -> list[tuple[str, str, int]]:
    lines = audit.collapsed(message.body for message in log_of(bucket, audit.AUDIT))
    return [(line.did, line.by, line.revision) for line in lines]


def finish(world: World, seen: int) -> Any:
    """Long after: what the next router does about notes of the dead, records, events and chores. The first `seen`
    events were handled before."""
    world.advance(60)
    bucket = world.connect()
    bucket.recover()
    for key in list(world.objects(PENDING)):
        do(bucket, posts.route, key)
    while deliveries := list(bucket.queue(CHORES).receive(100)):
        for delivery in deliveries:
            do(bucket, posts.settle, delivery.body["settle"])
            delivery.ack()
    for kind, key in summary(bucket)[seen:]:
        if kind != "deleted" and key.startswith(OUTCOMES):
            do(bucket, settle_where, key, cause=NO_CAUSE)
    return bucket


def events(world: World) -> int:
    return len(summary(world.connect()))


def test_a_submission_is_in_the_queue_before_it_is_accepted(world: World) -> None:
    bucket = world.connect()
    accepted = do(bucket, posts.accept, "p1", "hello", "https://example.com/a.png")

    assert (accepted.revision, accepted.new) == (1, True)
    assert submissions(bucket) == [
        {
            "id": "p1",
            "text": "hello",
            "media_url": "https://example.com/a.png",
            "revision": 1,
            "accepted_at": accepted.accepted_at,
        }
    ]
    assert audited(bucket) == [("accepted", "ingest", 1)]


def test_the_same_submission_again_is_the_same_revision_for_ever(world: World) -> None:
    bucket = world.connect()
    first = do(bucket, posts.accept, "p1", "hello")
    world.advance(10 * 86400)
    for _ in range(3):
        again = do(world.connect(), posts.accept, "p1", "hello")
        assert (again.revision, again.new, again.accepted_at) == (1, False, first.accepted_at)
    assert [body["revision"] for body in submissions(bucket)] == [1, 1]  # once more, in case the first was never sent
    assert audited(bucket) == [("accepted", "ingest", 1)]


def test_another_text_or_image_is_the_next_revision(world: World) -> None:
    bucket = world.connect()
    texts = [("hello", None), ("hullo", None), ("hullo", "https://example.com/a.png"), ("hello", None)]
    assert [do(bucket, posts.accept, "p1", *each).revision for each in texts] == [1, 2, 3, 4]


def test_a_post_that_was_routed_is_not_sent_again(world: World) -> None:
    bucket = world.connect()
    do(bucket, posts.accept, "p1", "hello")
    do(bucket, posts.route, classify(bucket, "p1", "hello", CLEAN))
    do(bucket, posts.accept, "p1", "hello")
    assert len(submissions(bucket)) == 1


def test_accepting_a_new_post_costs_three_writes(world: World) -> None:
    bucket = world.connect()
    do(bucket, posts.accept, "warm", "hello")
    before = bucket.hands.count
    do(bucket, posts.accept, "p1", "hello")
    assert bucket.hands.count - before == 3


@pytest.mark.parametrize("what", ["new", "another text"])
def test_a_death_while_accepting_is_healed_by_the_clients_repeat(what: str) -> None:
    for death in DEATHS:
        for at in range(100):
            world = World("copying")
            if what == "another text":
                do(world.connect(), posts.accept, "p1", "an older text")
            dying = world.connect(at=at, fault=death)
            try:
                do(dying, posts.accept, "p1", "hello")
                through = True
            except Killed:
                through = False
            accepted = do(world.connect(), posts.accept, "p1", "hello")
            bucket = world.connect()
            mine = [body for body in submissions(bucket) if body["text"] == "hello"]
            assert 1 <= len(mine) <= 2, (death, at)
            assert {body["revision"] for body in mine} == {accepted.revision} == {2 if what == "another text" else 1}
            assert audited(bucket).count(("accepted", "ingest", accepted.revision)) == 1
            world.close()
            if through:
                assert at > 5
                break


def test_one_bad_answer_while_accepting_never_accepts_what_is_not_sent() -> None:
    for fault in FAULTS:
        for at in range(100):
            world = World("copying")
            bad = world.connect(at=at, fault=fault)
            try:
                accepted = do(bad, posts.accept, "p1", "hello")
            except bucketmq.Unavailable:
                assert fault.startswith("unavailable")
            else:
                assert accepted.revision == 1
                assert {body["revision"] for body in submissions(world.connect())} == {1}, (fault, at)
            hit = bad.hands.hit
            world.close()
            if not hit:
                assert at > 5
                break


@pytest.mark.parametrize(
    ("spam", "outcome"), [(CLEAN, APPROVED), (BAD, FLAGGED), (UNSURE, NEEDS_REVIEW), (0.4, NEEDS_REVIEW)]
)
def test_a_record_goes_where_it_belongs(world: World, spam: float, outcome: str) -> None:
    bucket = world.connect()
    do(bucket, posts.accept, "p1", "hello")
    routed = do(bucket, posts.route, classify(bucket, "p1", "hello", spam))
    assert (routed.outcome, routed.placed) == (outcome, "placed")
    assert where(world, "p1") == {outcome: 1}
    assert audited(bucket) == [("accepted", "ingest", 1), ("routed", "router", 1)]


def test_a_record_that_is_judged_again_does_not_flip(world: World) -> None:
    bucket = world.connect()
    do(bucket, posts.accept, "p1", "hello")
    do(bucket, posts.route, classify(bucket, "p1", "hello", BAD))
    again = do(bucket, posts.route, classify(bucket, "p1", "hello", CLEAN, model="test-2"))
    assert again.outcome == FLAGGED
    assert where(world, "p1") == {FLAGGED: 1}
    assert msgspec.json.decode(world.objects()[key_of(FLAGGED, "p1")])["model"] == "test-1"


def test_a_newer_revision_takes_the_place_of_the_older_wherever_that_lies(world: World) -> None:
    bucket = world.connect()
    scores = [CLEAN, BAD, UNSURE, CLEAN, CLEAN]
    for revision, spam in enumerate(scores, start=1):
        assert do(bucket, posts.accept, "p1", f"text {revision}").revision == revision
        do(bucket, posts.route, classify(bucket, "p1", f"text {revision}", spam, revision=revision))
        outcome = {CLEAN: APPROVED, BAD: FLAGGED, UNSURE: NEEDS_REVIEW}[spam]
        assert where(world, "p1") == {outcome: revision}


def test_an_older_revision_that_comes_late_changes_nothing(world: World) -> None:
    bucket = world.connect()
    do(bucket, posts.accept, "p1", "first")
    do(bucket, posts.accept, "p1", "second")
    do(bucket, posts.route, classify(bucket, "p1", "second", BAD, revision=2))
    late = do(bucket, posts.route, classify(bucket, "p1", "first", CLEAN, revision=1))
    assert (late.outcome, late.placed) == (None, "superseded")
    assert where(world, "p1") == {FLAGGED: 2}
    assert ("superseded", "router", 1) in audited(bucket)


def test_an_accepted_revision_is_routed_while_a_newer_one_is_on_its_way(world: World) -> None:
    """The newer one may never come: whoever submitted it may have died before it was sent."""
    bucket = world.connect()
    do(bucket, posts.accept, "p1", "first")
    key = classify(bucket, "p1", "first", CLEAN)
    do(bucket, posts.accept, "p1", "second")
    do(bucket, posts.route, key)
    assert where(world, "p1") == {APPROVED: 1}


def test_records_of_writers_without_a_register_are_routed_too(world: World) -> None:
    bucket = world.connect()
    names = ("hate_speech", "spam", "nsfw", "harassment")
    demo = {
        "id": "a b",
        "text": "hello",
        "categories": [{"name": name, "flagged": False, "confidence": 0.01} for name in names],
        "violation": False,
        "confidence": 0.01,
        "created_at": "2026-05-04T08:00:00Z",
    }
    bucket.put("pending/a b.json", demo)
    assert do(bucket, posts.route, "pending/a b.json").outcome == APPROVED
    assert world.objects("approved/").keys() == {"approved/a%20b.json"}

    bad = {**demo, "text": "buy now", "violation": True, "confidence": 0.99}
    bad["categories"] = [{**each, "flagged": each["name"] == "spam", "confidence": 0.99} for each in demo["categories"]]
    bucket.put("pending/a b.json", bad)
    assert do(bucket, posts.route, "pending/a b.json").outcome == FLAGGED  # not where the first text went
    assert where(world, "a b") == {FLAGGED: 2}
    bucket.put("pending/a b.json", {**demo, "text": "hello, third"})
    assert do(bucket, posts.route, "pending/a b.json").outcome == APPROVED
    assert where(world, "a b") == {APPROVED: 3}


def test_a_record_that_was_given_its_revision_says_so_to_the_pipeline_too() -> None:
    """Which goes by the metadata. It would write an older one over what a router that died has left."""
    met = 0
    for at in range(100):
        world = World("copying")
        bucket = flagged(world)
        foreign = msgspec.json.decode(record_body("p1", "second", CLEAN))
        del foreign["revision"]
        bucket.put(key_of(PENDING, "p1"), foreign)
        try:
            do(world.connect(at=at, fault=DEATHS[0]), posts.route, key_of(PENDING, "p1"))
            through = True
        except Killed:
            through = False
        left = world.objects().get(key_of(PENDING, "p1"))
        if left is not None and "revision" in msgspec.json.decode(left):
            met += 1
            assert bucket.look(key_of(PENDING, "p1")).attributes.metadata["revision"] == "2", at
        world.close()
        if through:
            assert met
            break


def test_a_revision_that_cannot_be_is_not_made_good_on_the_way(world: World) -> None:
    bucket = world.connect()
    do(bucket, posts.accept, "p1", "first")
    assert do(bucket, posts.route, classify(bucket, "p1", "second", CLEAN, revision=0)).outcome == NEEDS_REVIEW


@pytest.mark.parametrize("body", ["a record", "no record"])
def test_a_judgement_that_comes_while_a_record_without_a_revision_is_routed_leaves_one_of_them(body: str) -> None:
    """The pipeline writes before each request of the router."""
    target = pipeline(classifier="none").target
    assert isinstance(target, ToObjects)
    thing = Thing(key_of(PENDING, "p1"), record_body("p1", "first", CLEAN), "1")

    def judged(bus: BucketApi) -> Procedure[list[Did]]:
        return (yield from write_objects((yield from bus.open()), [Wanted(target, thing)]))

    for at in range(100):
        world = World("copying")
        bucket = world.connect()
        do(bucket, posts.accept, "p1", "first")
        foreign = msgspec.json.decode(record_body("p1", "second", CLEAN))
        del foreign["revision"]
        bucket.put(key_of(PENDING, "p1"), foreign if body == "a record" else b"what is this?")
        router, met = world.connect(), []

        def meddle(number: int, request: Any) -> None:
            if number == at and not met:  # noqa: B023
                met.append(do(bucket, judged))  # noqa: B023

        router.hands.meddle = meddle
        do(router, posts.route, key_of(PENDING, "p1"))
        finish(world, 0)
        assert len(where(world, "p1")) == 1, at
        world.close()
        if not met:
            assert at > 5
            break


@pytest.mark.parametrize("spam", [CLEAN, BAD])
@pytest.mark.parametrize("left", ["a record of the demo", "no record"])
def test_what_lay_there_before_there_was_a_register_gives_way_to_what_is_submitted(
    world: World, left: str, spam: float
) -> None:
    bucket = world.connect()
    demo = {"id": "p1", "text": "old", "categories": [], "violation": False, "confidence": 0.0, "created_at": ""}
    bucket.put(key_of(APPROVED, "p1"), demo if left == "a record of the demo" else b"what is this?")
    do(bucket, posts.accept, "p1", "new")
    routed = do(bucket, posts.route, classify(bucket, "p1", "new", spam))
    assert routed.placed == "placed"
    finish(world, 0)
    assert where(world, "p1") == {APPROVED if spam == CLEAN else FLAGGED: 1}
    assert do(bucket, posts.look_at, "p1").record.text == "new"


@pytest.mark.parametrize("body", [b"", b"not json", b"[1]", b'{"id": "p1"}', b"\xff\xfe", b'{"id": 1e999}'])
def test_what_is_no_record_is_looked_at_by_a_person(world: World, body: bytes) -> None:
    bucket = world.connect()
    bucket.put("pending/p1.json", body)
    assert do(bucket, posts.route, "pending/p1.json").outcome == NEEDS_REVIEW
    seen = do(bucket, posts.look_at, "p1")
    assert seen.outcome == NEEDS_REVIEW
    assert seen.record.doubt.startswith("not a record")
    assert seen.record.text == body.decode("utf-8", "replace")


@pytest.mark.parametrize("key", ["pending/" + "x" * 300 + ".json", "pending/a/b.json", "pending/readme.txt"])
def test_whatever_lies_below_pending_is_routed(key: str) -> None:
    world = World("copying")
    bucket = world.connect()
    bucket.put(key, b"what is this?")
    assert do(bucket, posts.route, key).outcome == NEEDS_REVIEW
    assert not world.objects(PENDING)
    assert len(world.objects(NEEDS_REVIEW)) == 1
    world.close()


STORIES = ["new", "judged again", "newer revision", "older comes late", "foreign, changed"]


def prepared(kind: str, story: str) -> tuple[World, str, dict[str, int]]:
    """A bucket, a record to route, and where the post must be in the end."""
    world = World(kind)
    bucket = world.connect()
    do(bucket, posts.accept, "p1", "first")
    match story:
        case "new":
            return world, classify(bucket, "p1", "first", BAD), {FLAGGED: 1}
        case "judged again":
            do(bucket, posts.route, classify(bucket, "p1", "first", BAD))
            return world, classify(bucket, "p1", "first", CLEAN, model="test-2"), {FLAGGED: 1}
        case "newer revision":
            do(bucket, posts.route, classify(bucket, "p1", "first", BAD))
            do(bucket, posts.accept, "p1", "second")
            return world, classify(bucket, "p1", "second", CLEAN, revision=2), {APPROVED: 2}
        case "older comes late":
            do(bucket, posts.accept, "p1", "second")
            do(bucket, posts.route, classify(bucket, "p1", "second", BAD, revision=2))
            return world, classify(bucket, "p1", "first", CLEAN), {FLAGGED: 2}
        case _:
            do(bucket, posts.route, classify(bucket, "p1", "first", BAD))
            body = msgspec.json.decode(record_body("p1", "other", CLEAN))
            del body["revision"]
            bucket.put("pending/p1.json", body)
            return world, "pending/p1.json", {APPROVED: 2}


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("kind", ["copying", "renaming", "hashing"])
def test_a_router_that_dies_anywhere_leaves_the_post_in_one_place(kind: str, story: str) -> None:
    for death in DEATHS:
        for at in range(200):
            world, key, ends = prepared(kind, story)
            seen = events(world) - 1  # the last one is of the record that is about to be routed
            try:
                do(world.connect(at=at, fault=death), posts.route, key)
                through = True
            except Killed:
                through = False
            after = finish(world, seen)
            assert where(world, "p1") == ends, (death, at)
            newest = next(iter(ends.values()))
            assert audited(after).count(("routed", "router", newest)) == 1, (death, at)
            world.close()
            if through:
                assert at > 5
                break


@pytest.mark.parametrize("story", STORIES)
def test_one_bad_answer_while_routing_leaves_the_post_in_one_place(story: str) -> None:
    for fault in FAULTS:
        for at in range(200):
            world, key, ends = prepared("copying", story)
            seen = events(world)
            bad = world.connect(at=at, fault=fault)
            try:
                do(bad, posts.route, key)
            except bucketmq.Unavailable:
                assert fault.startswith("unavailable"), (fault, at)
            hit = bad.hands.hit
            finish(world, seen)
            assert where(world, "p1") == ends, (fault, at)
            world.close()
            if not hit:
                assert at > 5
                break


@pytest.mark.parametrize("story", STORIES)
@pytest.mark.parametrize("kind", ["copying", "renaming"])
def test_two_routers_at_once_come_to_one_end(kind: str, story: str) -> None:
    """The second routes the same record, whole, before each request of the first."""
    for at in range(200):
        world, key, ends = prepared(kind, story)
        first, second, seen = world.connect(), world.connect(), events(world)
        met = []

        def meddle(number: int, request: Any) -> None:
            if number == at and not met:  # noqa: B023
                met.append(do(second, posts.route, key))  # noqa: B023

        first.hands.meddle = meddle
        do(first, posts.route, key)
        finish(world, seen)
        assert where(world, "p1") == ends, at
        world.close()
        if not met:
            assert at > 5
            break


@pytest.mark.parametrize("kind", ["copying", "renaming", "hashing"])
@pytest.mark.parametrize("dies", [False, True])
def test_a_newer_revision_routed_in_the_midst_of_an_older_wins(kind: str, *, dies: bool) -> None:
    """It is accepted, judged and routed whole before each request of the first router, which may die right then."""
    for at in range(200):
        world = World(kind)
        bucket = world.connect()
        do(bucket, posts.accept, "p1", "first")
        key = classify(bucket, "p1", "first", CLEAN)
        first = world.connect()
        met = []

        def meddle(number: int, request: Any) -> None:
            if number == at and not met:  # noqa: B023
                met.append(do(bucket, posts.accept, "p1", "second"))  # noqa: B023
                do(bucket, posts.route, classify(bucket, "p1", "second", BAD, revision=2))  # noqa: B023
            elif met and number == at + 1 and dies:  # noqa: B023
                first.hands.dead = True  # noqa: B023
                raise Killed

        first.hands.meddle = meddle
        try:
            do(first, posts.route, key)
        except Killed:
            assert dies
        if met:
            finish(world, 0)
            assert where(world, "p1") == {FLAGGED: 2}, at
        world.close()
        if not met:
            assert at > 5
            break


def flagged(world: World) -> Any:
    """A bucket with a post that was flagged."""
    bucket = world.connect()
    do(bucket, posts.accept, "p1", "first")
    do(bucket, posts.route, classify(bucket, "p1", "first", BAD))
    return bucket


def test_a_person_approves_and_it_is_written_who_and_when(world: World) -> None:
    bucket = flagged(world)
    said = do(bucket, posts.review, "p1", revision=1, reviewer="rosa", action="approve", note="satire")
    assert isinstance(said, Reviewed)
    assert where(world, "p1") == {APPROVED: 1}
    kept = bucket.get_json(key_of(REVIEWED, "p1"))
    assert (kept["reviewer"], kept["action"], kept["note"], kept["at"]) == ("rosa", "approve", "satire", said.review.at)
    assert kept["decision"]["outcome"] == FLAGGED
    assert audited(bucket)[-1] == ("approve", "rosa", 1)


def test_two_people_cannot_decide_the_same_post(world: World) -> None:
    bucket = flagged(world)
    first = do(bucket, posts.review, "p1", revision=1, reviewer="rosa", action="uphold")
    second = do(world.connect(), posts.review, "p1", revision=1, reviewer="emil", action="approve")
    assert isinstance(second, Refused)
    assert (second.why, second.reviewer, second.at, second.action) == ("decided", "rosa", first.review.at, "uphold")
    assert where(world, "p1") == {FLAGGED: 1}
    assert audited(bucket)[-2:] == [("uphold", "rosa", 1), ("refused", "emil", 1)]


def test_a_post_that_is_escalated_stays_marked_until_another_person_decides(world: World) -> None:
    bucket = flagged(world)
    do(bucket, posts.review, "p1", revision=1, reviewer="rosa", action="escalate", note="is this a threat?")
    assert where(world, "p1") == {FLAGGED: 1}
    assert [each.escalated for each in do(bucket, posts.waiting).entries] == [True]
    again = do(bucket, posts.review, "p1", revision=1, reviewer="emil", action="escalate")
    assert isinstance(again, Refused) and again.reviewer == "rosa"

    do(bucket, posts.review, "p1", revision=1, reviewer="emil", action="approve")
    assert where(world, "p1") == {APPROVED: 1}
    assert not world.objects(ESCALATED)
    assert do(bucket, posts.waiting).entries == ()


def test_a_review_of_a_revision_that_is_not_there_any_more_is_refused(world: World) -> None:
    bucket = flagged(world)
    do(bucket, posts.accept, "p1", "second")
    do(bucket, posts.route, classify(bucket, "p1", "second", UNSURE, revision=2))
    said = do(bucket, posts.review, "p1", revision=1, reviewer="rosa", action="approve")
    assert isinstance(said, Refused) and said.why == "superseded"
    assert where(world, "p1") == {NEEDS_REVIEW: 2}


def test_a_new_revision_of_a_reviewed_post_waits_for_a_person_again(world: World) -> None:
    bucket = flagged(world)
    do(bucket, posts.review, "p1", revision=1, reviewer="rosa", action="uphold")
    assert do(bucket, posts.waiting).entries == ()
    do(bucket, posts.accept, "p1", "second")
    do(bucket, posts.route, classify(bucket, "p1", "second", UNSURE, revision=2))
    assert [each.id for each in do(bucket, posts.waiting).entries] == ["p1"]
    assert not world.objects(REVIEWED)


def test_a_record_judged_again_after_a_review_goes_where_the_person_said(world: World) -> None:
    bucket = flagged(world)
    do(bucket, posts.review, "p1", revision=1, reviewer="rosa", action="approve")
    do(bucket, posts.route, classify(bucket, "p1", "first", BAD, model="test-2"))
    assert where(world, "p1") == {APPROVED: 1}


def test_nobody_reviews_a_post_that_is_not_there(world: World) -> None:
    with pytest.raises(bucketmq.NotFound, match="no post 'p9'"):
        do(world.connect(), posts.review, "p9", revision=1, reviewer="rosa", action="approve")


@pytest.mark.parametrize("says_its_revision", [True, False])
def test_a_record_that_others_put_below_an_outcome_can_be_reviewed(world: World, *, says_its_revision: bool) -> None:
    """As the public demo's router leaves them, for instance."""
    bucket = world.connect()
    record = msgspec.json.decode(record_body("p1", "first", BAD))
    if not says_its_revision:
        del record["revision"]
    bucket.put(key_of(FLAGGED, "p1"), msgspec.json.encode(record))
    assert [each.id for each in do(bucket, posts.waiting).entries] == ["p1"]
    said = do(bucket, posts.review, "p1", revision=1, reviewer="rosa", action="approve")
    assert isinstance(said, Reviewed) and said.before == FLAGGED
    assert [key for key in world.objects() if key.startswith(OUTCOMES)] == [key_of(APPROVED, "p1")]
    assert bucket.get_json(key_of(REVIEWED, "p1"))["decision"]["reason"] == "it lay there"
    second = do(bucket, posts.review, "p1", revision=1, reviewer="emil", action="uphold")
    assert isinstance(second, Refused) and second.why == "decided"
    # What is submitted later is judged as ever.
    do(bucket, posts.accept, "p1", "second")
    do(bucket, posts.route, classify(bucket, "p1", "second", UNSURE, revision=2))
    assert where(world, "p1") == {NEEDS_REVIEW: 2}


def reviews(world: World, at: int, death: Any, action: str) -> bool:
    """Whether rosa came through with her review of `p1`: she dies at her request number `at`."""
    try:
        do(world.connect(at=at, fault=death), posts.review, "p1", revision=1, reviewer="rosa", action=action)
    except Killed:
        return False
    return True


@pytest.mark.parametrize("kind", ["copying", "renaming"])
@pytest.mark.parametrize("before", ["routed", "lying"])
def test_a_review_that_dies_anywhere_is_either_not_made_or_finished(kind: str, before: str) -> None:
    for death in DEATHS:
        for at in range(200):
            world = World(kind)
            if before == "routed":
                flagged(world)
            else:
                world.connect().put(key_of(FLAGGED, "p1"), record_body("p1", "first", BAD))
            seen = events(world)
            through = reviews(world, at, death, "approve")
            after = finish(world, seen)
            kept = do(after, posts.look_at, "p1").register
            made = kept is not None and kept.review is not None
            assert where(world, "p1") == ({APPROVED: 1} if made else {FLAGGED: 1}), (death, at)
            assert bool(world.objects(REVIEWED)) == made, (death, at)
            assert audited(after).count(("approve", "rosa", 1)) == made, (death, at)
            world.close()
            if through:
                assert made and at > 5
                break


@pytest.mark.parametrize("action", ["approve", "escalate"])
def test_what_a_person_said_is_noted_though_he_died_and_the_post_was_revised(action: str) -> None:
    for death in DEATHS:
        for at in range(100):
            world = World("copying")
            bucket = flagged(world)
            through = reviews(world, at, death, action)
            made = register(bucket, "p1")
            do(bucket, posts.accept, "p1", "second")
            do(bucket, posts.route, classify(bucket, "p1", "second", UNSURE, revision=2))
            said = made.review is not None or made.escalation is not None
            assert audited(bucket).count((action, "rosa", 1)) == said, (death, at)
            world.close()
            if through:
                assert said and at > 5
                break


def test_two_people_at_once_one_decides(world: World) -> None:
    for at in range(100):
        here = World("copying")
        bucket = flagged(here)
        first, second, seen = here.connect(), here.connect(), events(here)
        met: list[Any] = []

        def meddle(number: int, request: Any) -> None:
            if number == at and not met:  # noqa: B023
                met.append(do(second, posts.review, "p1", revision=1, reviewer="emil", action="uphold"))  # noqa: B023

        first.hands.meddle = meddle
        said = do(first, posts.review, "p1", revision=1, reviewer="rosa", action="approve")
        if met:
            assert {type(said), type(met[0])} == {Reviewed, Refused}, at
            ends = APPROVED if isinstance(said, Reviewed) else FLAGGED
            finish(here, seen)
            assert where(here, "p1") == {ends: 1}, at
        here.close()
        if not met:
            assert bucket is not None and at > 5
            break


def test_a_new_revision_in_the_midst_of_a_review_waits_for_a_person_again() -> None:
    """It is accepted, judged and routed whole before each request of the review of the older."""
    for at in range(100):
        world = World("copying")
        bucket = flagged(world)
        seen, reviewer = events(world), world.connect()
        met: list[Any] = []

        def meddle(number: int, request: Any) -> None:
            if number == at and not met:  # noqa: B023
                met.append(do(bucket, posts.accept, "p1", "second"))  # noqa: B023
                do(bucket, posts.route, classify(bucket, "p1", "second", UNSURE, revision=2))  # noqa: B023

        reviewer.hands.meddle = meddle
        do(reviewer, posts.review, "p1", revision=1, reviewer="rosa", action="approve")
        if met:
            finish(world, seen)
            assert where(world, "p1") == {NEEDS_REVIEW: 2}, at
            assert [each.id for each in do(bucket, posts.waiting).entries] == ["p1"], at
        world.close()
        if not met:
            assert at > 5
            break


def test_whoever_finishes_an_old_review_does_not_hide_a_new_revision() -> None:
    """A router finishes a review whose maker died; the post is revised before each of its requests."""
    for at in range(100):
        world = World("copying")
        bucket = flagged(world)
        do(bucket, posts.review, "p1", revision=1, reviewer="rosa", action="uphold")
        world.delete(key_of(REVIEWED, "p1"))  # as if its maker had died before
        router = world.connect()
        met: list[Any] = []

        def meddle(number: int, request: Any) -> None:
            if number == at and not met:  # noqa: B023
                met.append(do(bucket, posts.accept, "p1", "second"))  # noqa: B023
                do(bucket, posts.route, classify(bucket, "p1", "second", UNSURE, revision=2))  # noqa: B023

        router.hands.meddle = meddle
        do(router, posts.settle, "p1")
        if met:
            assert [each.id for each in do(bucket, posts.waiting).entries] == ["p1"], at
        world.close()
        if not met:
            assert at > 5
            break


def test_whoever_settles_an_old_view_does_not_take_away_what_a_person_said() -> None:
    """A router settles a post once more; a person decides about it before each of its requests."""
    for at in range(100):
        world = World("copying")
        bucket = flagged(world)
        router = world.connect()
        met: list[Any] = []

        def meddle(number: int, request: Any) -> None:
            if number == at and not met:  # noqa: B023
                met.append(do(bucket, posts.review, "p1", revision=1, reviewer="rosa", action="uphold"))  # noqa: B023

        router.hands.meddle = meddle
        do(router, posts.settle, "p1")
        if met:
            assert world.objects(REVIEWED).keys() == {key_of(REVIEWED, "p1")}, at
            assert do(bucket, posts.waiting).entries == (), at
        world.close()
        if not met:
            assert at > 3
            break


def test_the_list_of_waiting_posts_is_four_listings_for_a_small_bucket(world: World) -> None:
    bucket = world.connect()
    for number, spam in enumerate([CLEAN, BAD, UNSURE]):
        id = f"p{number}"
        do(bucket, posts.route, classify(bucket, id, "hello", spam))
    before = bucket.hands.count
    found = do(bucket, posts.waiting)
    assert bucket.hands.count - before == 4
    assert [(each.id, each.outcome) for each in found.entries] == [("p1", FLAGGED), ("p2", NEEDS_REVIEW)]


def test_posts_in_a_folder_end_in_one_place_too(tmp_path: Path) -> None:
    world = World("folder", tmp_path / "bucket")
    bucket = flagged(world)
    do(bucket, posts.accept, "p1", "second")
    do(bucket, posts.route, classify(bucket, "p1", "second", CLEAN, revision=2))
    assert where(world, "p1") == {APPROVED: 2}
    world.close()
