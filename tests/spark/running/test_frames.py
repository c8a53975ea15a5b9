"""A stage of a DataFrame: what passes, what passes by, and that nothing before it runs twice."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("pyspark")

import word_stages as stages

import bucketmq
from bucketmq.pipeline import FromQueue, Pipeline, ToObjects, stage
from bucketmq.spark.running.run import start
from spark.conftest import Inbox

BY_TEXT = Pipeline(
    name="by-text",
    source=FromQueue("posts", stages.POST),
    stages=(stages.count_or_wait, stages.by_text, stages.crowd),
    target=ToObjects(template="out/{text}.json"),
)


@pytest.mark.timeout(300)
def test_rows_go_through_spark_itself_and_those_that_failed_pass_by(inbox: Inbox) -> None:
    texts = ["a", "a", "b", "poison", "thirteen"]
    rows = [{"id": f"p{n}", "text": text, "revision": 1} for n, text in enumerate(texts)]
    inbox.bucket.queue("posts").send_many(rows)
    query = start(BY_TEXT, inbox.url, inbox.spark, once=True, checkpoint=str(inbox.folder / "cp"))
    try:
        query.awaitTermination()
    finally:
        query.stop()
    assert inbox.bucket.get_json("out/a.json") == {"text": "a", "posts": 2, "many": False}
    assert inbox.bucket.get_json("out/b.json") == {"text": "b", "posts": 1, "many": False}
    letters = inbox.bucket.queue("posts").dead_letters.peek()
    assert sorted((letter.reason, str(letter.body)) for letter in letters) == [
        ("stage count_or_wait: no words in poison", str(rows[3])),
        ("stage crowd: ValueError: thirteen is too many", "{'text': 'thirteen', 'posts': 1}"),
    ]


def test_a_dataframe_needs_spark(tmp_path: Any) -> None:
    complaint = "'by-text' has a stage of a DataFrame, which needs Spark"
    with bucketmq.connect(str(tmp_path / "inbox")) as bucket, pytest.raises(bucketmq.Invalid, match=complaint):
        BY_TEXT.watcher(bucket)


def test_a_stage_of_a_dataframe_has_columns_alone() -> None:
    with pytest.raises(bucketmq.Invalid, match="it has takes= and gives= alone"):
        stage(takes="text string", adds="n int", kind="frame", name="s")(lambda rows: rows)
    with pytest.raises(bucketmq.Invalid, match="several stages with a key or of a DataFrame"):
        Pipeline(name="p", source=BY_TEXT.source, stages=(stages.so_far, stages.by_text), target=BY_TEXT.target)
