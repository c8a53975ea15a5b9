"""Judging posts on Spark: messages of the queue `submissions` in, records below `pending/` out, with their events.

A post that a classifier cannot judge becomes a record with a doubt, so that a person decides. A dead letter of this
pipeline is a message that is not a submission at all. Which classifier is used is `classify.choose`; where a record
goes from `pending/` is the router's.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.apps.moderation.classify import Classifier
from bucketmq.apps.moderation.classify.choose import choice_of
from bucketmq.apps.moderation.ids import key_of
from bucketmq.apps.moderation.queues import READER, SUBMISSIONS
from bucketmq.apps.moderation.record import CATEGORIES, PENDING, Post, Verdict, in_doubt, record_of
from bucketmq.errors import BucketMQError, Invalid, Unsupported
from bucketmq.pipeline import FromQueue, Outcomes, Pipeline, ToObjects, stage
from bucketmq.pipeline.bisection import Good, bisected
from bucketmq.pipeline.chain import PLACE_ERRORS

if TYPE_CHECKING:
    import pyarrow as pa

logger = logging.getLogger("bucketmq.moderation")

SUBMISSION = "id string, text string, media_url string, revision bigint, accepted_at string"
"""The body of a submission."""

RECORD = "`key` string, revision bigint, record string"

TASK_ROWS = 32
"""Posts that are worth a task of their own: judging them takes longer than starting it."""

ROWS_MAX = 256
"""Posts that a classifier is given at a time: enough to fill a model's batches, few enough to see progress."""


def judged(batch: pa.RecordBatch, classifier: Classifier) -> Outcomes:
    """The function of the stage: a batch of submissions in, a record for each out. What is not a submission fails,
    before it costs anything."""
    rows = batch.to_pylist()
    posts: dict[int, tuple[Post, str]] = {}
    failed: dict[int, str] = {}
    for place, row in enumerate(rows):
        try:
            post = _post(row)
            posts[place] = post, key_of(PENDING, post.id)
        except Invalid as error:
            failed[place] = str(error)
    verdicts = judge(classifier, [post for post, _ in posts.values()]) if posts else []
    made = [
        record_of(post, verdict, created_at=rows[place]["accepted_at"] or "")
        for (place, (post, _)), verdict in zip(posts.items(), verdicts, strict=True)
    ]
    columns = {
        "key": [key for _, key in posts.values()],
        "revision": [post.revision for post, _ in posts.values()],
        "record": [msgspec.json.encode(record).decode() for record in made],
    }
    return Outcomes(rows=columns, failed=failed, of=list(posts))


def _post(row: dict[str, Any]) -> Post:
    if not row["id"] or row["text"] is None:
        raise Invalid("this is not a submission: it has no id or no text; posts are submitted to the ingest agent")
    return Post(row["id"], row["text"], row["media_url"], row["revision"] or 1)


def judge(classifier: Classifier, posts: Sequence[Post]) -> list[Verdict]:
    """One verdict for each post, whatever the classifier does: where it breaks its promises the verdict is a doubt.

    Errors of the classifier as a whole (no answer now, a key that is refused, a model that is not installed) are
    raised: the query stops or is tried again, and no post is lost.
    """
    verdicts: list[Verdict] = []
    for part in bisected(
        lambda start, stop: _judged(classifier, posts[start:stop]), 0, len(posts), raises=PLACE_ERRORS
    ):
        if isinstance(part, Good):
            verdicts += part.result
        else:
            logger.error("a classifier failed; a person decides", exc_info=part.error)
            verdicts.append(in_doubt(type(classifier).__name__, f"the classifier failed: {type(part.error).__name__}"))
    return verdicts


def _judged(classifier: Classifier, posts: Sequence[Post]) -> list[Verdict]:
    name = type(classifier).__name__
    try:
        verdicts = list(classifier.classify(posts))
    except (BucketMQError, ImportError) as error:
        raise _stop(error) from error
    if len(verdicts) != len(posts):
        why = f"the classifier gave {len(verdicts)} verdicts for {len(posts)} posts"
        return [in_doubt(name, why)] * len(posts)
    faults = [_fault(verdict) for verdict in verdicts]
    return [in_doubt(name, fault) if fault else verdict for verdict, fault in zip(verdicts, faults, strict=True)]


def _stop(error: Exception) -> Exception:
    """The error as one of the place. Any other would be held against the posts, and bury every one of them."""
    return error if isinstance(error, PLACE_ERRORS) else Unsupported(f"no post can be judged here: {error}")


def _fault(verdict: object) -> str | None:
    """Which promise a verdict breaks: such a verdict can be neither stored nor acted on."""
    try:
        if not isinstance(verdict, Verdict):
            raise TypeError
        plain = msgspec.json.decode(msgspec.json.encode(verdict), type=Verdict)
    except (TypeError, ValueError):
        return "the classifier gave something that is not a verdict"
    if not all(0 <= each.confidence <= 1 for each in plain.categories):
        return "the classifier gave a confidence that is not a probability"
    if plain.doubt is None and tuple(each.name for each in plain.categories) != CATEGORIES:
        return "the classifier did not name each category once"
    return None


def pipeline(*, classifier: str = "embedded", private_images: bool = False) -> Pipeline:
    """The pipeline with the chosen classifier: embedded, claude, cascade or none."""
    choice = choice_of(classifier, private_images=private_images)
    return Pipeline(
        name=READER,
        about="judge submitted posts and write them below pending/ with the verdict",
        source=FromQueue(SUBMISSIONS, body_schema=SUBMISSION),
        task_rows=TASK_ROWS,
        stages=(stage(name="judge", takes=SUBMISSION, gives=RECORD, uses=choice, rows_max=ROWS_MAX)(judged),),
        # A record there without a revision was written by a program that keeps no register, and was not routed yet. It
        # gives way: this post was accepted, and nothing else will bring it.
        target=ToObjects(
            template="{+key}", body="record", content_type="application/json", if_exists="newest", newer_by="revision"
        ),
    )
