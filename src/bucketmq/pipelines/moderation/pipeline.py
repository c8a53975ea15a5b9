"""Judging posts on Spark: messages of the queue `submissions` in, records below `pending/` out, with their events.

A post that a classifier cannot judge becomes a record with a doubt, so that a person decides. A dead letter of this
pipeline is a message that is no submission at all. Which classifier is used is `classify.choose`; where a record goes
from `pending/` is the router's.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from bucketmq.errors import BucketMQError
from bucketmq.pipelines.moderation.classify import Classifier
from bucketmq.pipelines.moderation.classify.choose import Choice, choice_of, chosen
from bucketmq.pipelines.moderation.ids import key_of
from bucketmq.pipelines.moderation.record import PENDING, Post, Verdict, in_doubt, record_of
from bucketmq.spark.ends import FromQueue, ToObjects
from bucketmq.spark.pipeline import Pipeline
from bucketmq.spark.stage import Stage

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("bucketmq.moderation")

SUBMISSIONS = "submissions"
NAME = "moderation"

SUBMISSION = "id string, text string, media_url string, revision bigint, accepted_at string"
"""The body of a submission."""

RECORD = "`key` string, revision bigint, record string"

ROWS_MAX = 256
"""Posts that a classifier is given at a time: enough to fill a model's batches, few enough to see progress."""


class Judge(msgspec.Struct, frozen=True):
    """The function of the stage: a batch of submissions in, a batch of records out."""

    choice: Choice

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        import pyarrow as pa

        rows = batch.to_pylist()
        posts = [Post(row["id"], row["text"], row["media_url"], row["revision"] or 1) for row in rows]
        verdicts = judge(chosen(self.choice), posts)
        made = [
            record_of(post, verdict, created_at=row["accepted_at"] or "")
            for post, verdict, row in zip(posts, verdicts, rows, strict=True)
        ]
        return pa.RecordBatch.from_pydict(
            {
                "key": [key_of(PENDING, post.id) for post in posts],
                "revision": [post.revision for post in posts],
                "record": [msgspec.json.encode(record).decode() for record in made],
            }
        )


def judge(classifier: Classifier, posts: Sequence[Post]) -> list[Verdict]:
    """One verdict for each post, whatever the classifier does: one that breaks its promises gets doubts put in.

    Errors of the classifier as a whole (no answer now, a key that is refused) are let through: the query stops or is
    tried again, and no post is lost.
    """
    try:
        verdicts = classifier.classify(posts)
    except BucketMQError:
        raise
    except Exception as error:
        if len(posts) == 1:
            log.exception("a classifier failed; a person decides")
            return [in_doubt(type(classifier).__name__, f"the classifier failed: {type(error).__name__}")]
        half = len(posts) // 2
        return [*judge(classifier, posts[:half]), *judge(classifier, posts[half:])]
    if len(verdicts) != len(posts):
        why = f"the classifier gave {len(verdicts)} verdicts for {len(posts)} posts"
        return [in_doubt(type(classifier).__name__, why)] * len(posts)
    return verdicts


def pipeline(*, classifier: str = "embedded", private_images: bool = False) -> Pipeline:
    """The pipeline with a classifier of one's choice: embedded, claude, cascade or none."""
    choice = choice_of(classifier, private_images=private_images)
    return Pipeline(
        name=NAME,
        about="judge submitted posts and write them below pending/ with the verdict",
        source=FromQueue(SUBMISSIONS, body_schema=SUBMISSION),
        stages=(Stage(name="judge", takes=SUBMISSION, gives=RECORD, function=Judge(choice), rows_max=ROWS_MAX),),
        target=ToObjects(
            template="{+key}", body="record", content_type="application/json", if_exists="newer", newer_by="revision"
        ),
    )
