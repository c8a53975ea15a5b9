"""Judging: messages of `submissions` in, records below `pending/` out, whatever classifiers and messages are like."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from procedures.objects.world import log_of
from spark.conftest import java_here, spark  # noqa: F401

import bucketmq
from apps.moderation.agents import Gate, settings_with, sync_on
from apps.moderation.test_router import once
from bucketmq import aio
from bucketmq.apps.moderation import posts, router
from bucketmq.apps.moderation.demo.posts import samples
from bucketmq.apps.moderation.ids import key_of
from bucketmq.apps.moderation.pipeline import judge, pipeline
from bucketmq.apps.moderation.queues import SUBMISSIONS
from bucketmq.apps.moderation.record import (
    APPROVED,
    CATEGORIES,
    FLAGGED,
    NEEDS_REVIEW,
    OUTCOMES,
    PENDING,
    Category,
    Post,
    Verdict,
    record_of,
)
from bucketmq.apps.moderation.routing import outcome_of, read
from bucketmq.client import Bucket
from bucketmq.errors import Denied, Invalid, Unavailable, Unsupported
from bucketmq.server.place import bus_of, run, run_now

POSTS = [Post(f"p{number}", f"text {number}") for number in range(8)]
FINE = Verdict(tuple(Category(name, flagged=False, confidence=0.01) for name in CATEGORIES), "test-1")


@pytest.fixture
def store() -> Gate:
    return Gate()


@pytest.fixture
def bucket(store: Gate) -> Iterator[Bucket]:
    with sync_on(store) as made:
        yield made


def submit(bucket: Bucket, id: str, text: str) -> None:
    run_now(bucket, posts.accept(bus_of(bucket), id, text))


def judge_all(bucket: Bucket, *, subscription: str = "moderation") -> None:
    """Everything that was submitted, without Spark. Another subscription begins from the beginning."""
    queue = bucket.queue(SUBMISSIONS).subscription(subscription)
    queue.run(pipeline(classifier="none").watcher(bucket), stop_when_empty=True, signals=False)


def pending(bucket: Bucket, id: str) -> Any:
    return bucket.get_json(key_of(PENDING, id))


def test_a_submission_becomes_a_record_with_its_event(store: Gate, bucket: Bucket) -> None:
    for id in ("p1", "../approved/p2"):
        submit(bucket, id, f"hello from {id}")
    judge_all(bucket)
    assert store.keys(PENDING) == ["pending/%2E.%2Fapproved%2Fp2.json", "pending/p1.json"]
    record = pending(bucket, "p1")
    assert (record["id"], record["text"], record["revision"], record["model"]) == ("p1", "hello from p1", 1, "none")
    assert [each["name"] for each in record["categories"]] == list(CATEGORIES)
    (message, _) = log_of(bucket, SUBMISSIONS)
    assert record["created_at"] == message.body["accepted_at"]
    events = [(each.body["kind"], each.body["key"]) for each in log_of(bucket, "events")]
    assert sorted(events) == [("created", key) for key in store.keys(PENDING)]


def test_what_is_judged_again_is_not_written_again(bucket: Bucket) -> None:
    for number in range(5):
        submit(bucket, f"p{number}", "hello")
    judge_all(bucket)
    versions = [bucket.get(key_of(PENDING, f"p{number}")).version for number in range(5)]
    told = len(list(log_of(bucket, "events")))
    judge_all(bucket, subscription="once-more")
    assert [bucket.get(key_of(PENDING, f"p{number}")).version for number in range(5)] == versions
    assert len(list(log_of(bucket, "events"))) == told


def test_what_is_judged_again_after_it_was_routed_stays_where_it_is(store: Gate, bucket: Bucket) -> None:
    submit(bucket, "p1", "hello")
    judge_all(bucket)
    once(store)
    judge_all(bucket, subscription="once-more")
    assert places_of(bucket, "p1") == [PENDING, APPROVED]
    once(store)
    assert places_of(bucket, "p1") == [APPROVED]


def test_the_newer_revision_stays_whatever_comes_later(bucket: Bucket) -> None:
    submit(bucket, "p1", "first")
    judge_all(bucket)
    submit(bucket, "p1", "second")
    judge_all(bucket)
    assert pending(bucket, "p1")["revision"] == 2
    judge_all(bucket, subscription="once-more")  # the first one comes again
    record = pending(bucket, "p1")
    assert (record["revision"], record["text"]) == (2, "second")


def test_a_post_that_was_accepted_takes_the_place_of_a_record_that_somebody_else_left(
    store: Gate, bucket: Bucket
) -> None:
    """As the public demo does, which keeps no register: the router may not have come to it yet."""
    bucket.put(key_of(PENDING, "p1"), record_of(Post("p1", "by the demo"), FINE, created_at=""))
    submit(bucket, "p1", "hello")
    judge_all(bucket)
    assert pending(bucket, "p1")["text"] == "hello"
    once(store)
    assert bucket.get_json(key_of(APPROVED, "p1"))["text"] == "hello"


@pytest.mark.parametrize(
    "body",
    [
        {"what": "is this"},
        {"id": "p2"},
        {"id": "", "text": "x"},
        {"id": 7, "text": "x"},
        {"id": "x" * 5000, "text": "x"},
    ],
)
def test_what_is_no_submission_is_a_dead_letter_and_holds_up_no_other(store: Gate, bucket: Bucket, body: Any) -> None:
    submit(bucket, "p1", "hello")
    bucket.queue(SUBMISSIONS).send(body)
    submit(bucket, "p3", "hello")
    judge_all(bucket)
    assert store.keys(PENDING) == ["pending/p1.json", "pending/p3.json"]
    (letter,) = bucket.queue(SUBMISSIONS).dead_letters.peek()
    assert letter.body == body


def test_a_classifier_that_cannot_be_made_stops_the_work_and_buries_nothing(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("anthropic")
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    submit(bucket, "p1", "hello")
    with pytest.raises(Unsupported, match=r"stage 'judge' cannot load 'classifier'.*ANTHROPIC_API_KEY"):
        pipeline(classifier="claude").watcher(bucket)
    assert len(bucket.queue(SUBMISSIONS).subscription("moderation").receive(1)) == 1


def test_a_classifier_that_nobody_has_is_refused_before_anything_runs() -> None:
    with pytest.raises(Invalid, match="embedded, claude, cascade, none"):
        pipeline(classifier="oracle")


class Says:
    """A classifier that says what a function makes of the posts."""

    def __init__(self, answer: Callable[[Sequence[Post]], Any]) -> None:
        self._answer = answer

    def classify(self, posts: Sequence[Post]) -> list[Verdict]:
        found: list[Verdict] = self._answer(posts)
        return found


def outcome(post: Post, verdict: Verdict) -> str:
    """Where the router puts the record."""
    body = msgspec.json.encode(record_of(post, verdict, created_at="2026-05-04T08:00:00.000000Z"))
    reading = read(body, id=post.id)
    assert not reading.unreadable
    return outcome_of(reading).outcome


def _with(**changes: Any) -> Verdict:
    return msgspec.structs.replace(FINE, **changes)


BROKEN: dict[str, Any] = {
    "nothing": None,
    "a word": "approved",
    "a dictionary": {"violation": False},
    "no categories": _with(categories=()),
    "too few categories": _with(categories=FINE.categories[:5]),
    "a category twice": _with(categories=(*FINE.categories[:5], FINE.categories[0])),
    "not a number": _with(categories=(Category("hate_speech", False, math.nan), *FINE.categories[1:])),
    "more than sure": _with(categories=(Category("hate_speech", True, 1.7), *FINE.categories[1:])),
    "no number": _with(categories=(Category("hate_speech", False, "low"), *FINE.categories[1:])),  # type: ignore[arg-type]
    "what cannot be written": _with(rationale=object()),
    "what is no text": _with(rationale="\ud800"),
    "a verdict's fields": msgspec.to_builtins(FINE),
}


@pytest.mark.parametrize("given", BROKEN.values(), ids=BROKEN)
def test_a_verdict_that_breaks_the_promises_is_a_doubt_about_that_post_alone(given: Any) -> None:
    verdicts = judge(Says(lambda posts: [given if post.id == "p3" else FINE for post in posts]), POSTS)
    assert [verdict for verdict in verdicts if verdict is not FINE] == [verdicts[3]]
    assert verdicts[3].doubt
    assert outcome(POSTS[3], verdicts[3]) == NEEDS_REVIEW


@pytest.mark.parametrize("given", [None, 8])
def test_what_is_no_list_of_verdicts_is_a_doubt_about_each_post(given: Any) -> None:
    verdicts = judge(Says(lambda _: given), POSTS)
    assert {outcome(post, verdict) for post, verdict in zip(POSTS, verdicts, strict=True)} == {NEEDS_REVIEW}


@pytest.mark.parametrize("count", [0, 7, 9])
def test_too_few_or_too_many_verdicts_are_nobodys(count: int) -> None:
    verdicts = judge(Says(lambda _: [FINE] * count), POSTS)
    assert len(verdicts) == len(POSTS)
    assert {outcome(post, verdict) for post, verdict in zip(POSTS, verdicts, strict=True)} == {NEEDS_REVIEW}
    assert f"{count} verdicts for 8 posts" in (verdicts[0].doubt or "")


def test_a_classifier_that_fails_on_one_post_judges_the_others() -> None:
    asked = []

    def answer(posts: Sequence[Post]) -> list[Verdict]:
        asked.append(len(posts))
        if any(post.id == "p5" for post in posts):
            raise ZeroDivisionError
        return [FINE] * len(posts)

    verdicts = judge(Says(answer), POSTS)
    assert [verdict.doubt is not None for verdict in verdicts] == [post.id == "p5" for post in POSTS]
    assert "ZeroDivisionError" in (verdicts[5].doubt or "")
    assert asked == [8, 4, 4, 2, 1, 1, 2]


@pytest.mark.parametrize(
    ("raised", "expected"),
    [
        (Unavailable("busy"), Unavailable),
        (Denied("the key is refused"), Denied),
        (Invalid("there is no such model"), Unsupported),  # it would be held against the posts
        (ImportError("no numpy"), ImportError),
    ],
)
def test_errors_of_the_classifier_as_a_whole_are_no_doubts(raised: Exception, expected: type[Exception]) -> None:
    def answer(_: Sequence[Post]) -> list[Verdict]:
        raise raised

    with pytest.raises(expected, match=str(raised)):
        judge(Says(answer), POSTS)


async def submit_many(url: str, given: Iterable[tuple[str, str]]) -> None:
    async with aio.connect(url, probe=False) as bucket:
        await asyncio.gather(*(run(bucket, posts.accept(bus_of(bucket), id, text)) for id, text in given))


async def route_all(url: str) -> None:
    async with aio.connect(url, probe=False) as bucket:
        await router.Router(bucket, settings_with()).run_once()


def places_of(bucket: Bucket, id: str) -> list[str]:
    """The prefixes below which a post lies: one, if all is well."""
    return [prefix for prefix in (PENDING, *OUTCOMES) if bucket.look(key_of(prefix, id)) is not None]


@pytest.mark.slow
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(300)  # a busy machine takes a minute to start Spark and its workers
def test_on_spark_the_embedded_model_judges_and_every_post_ends_in_one_place(tmp_path: Path, spark: Any) -> None:  # noqa: F811
    from bucketmq.spark.running.run import start

    url = f"file://{tmp_path}/bucket"
    given = list(samples(150, seed=5))
    asyncio.run(submit_many(url, [(sample.id, sample.text) for sample in given]))
    with bucketmq.connect(url, probe=False) as bucket:
        submit(bucket, given[0].id, f"{given[0].text} (edited)")
        bucket.queue(SUBMISSIONS).send({"what": "is this"})
        start(pipeline(), url, spark, once=True, checkpoint=str(tmp_path / "checkpoint")).awaitTermination()
        assert len(bucket.queue(SUBMISSIONS).dead_letters.peek()) == 1
        assert pending(bucket, given[0].id)["revision"] == 2
        asyncio.run(route_all(url))
        places = {sample.id: places_of(bucket, sample.id) for sample in given}
    assert {len(prefixes) for prefixes in places.values()} == {1}
    assert all(places[sample.id] != [PENDING] for sample in given)
    spam = [places[sample.id] for sample in given if sample.kind == "spam"]
    assert spam.count([FLAGGED]) > len(spam) / 2
    assert [FLAGGED] not in [places[sample.id] for sample in given if sample.kind == "clean"]
