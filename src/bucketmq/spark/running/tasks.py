"""One function over a list of things, on the executors: a Spark task for each, by DataFrames alone.

For the chores of a bucket, whose work is cut into pieces on the driver and done through the store port. Also through
Spark Connect, which has no RDDs. What a task returns is small: what it makes lies in the bucket.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

from bucketmq.errors import BucketMQError, Unavailable
from bucketmq.spark.setup.interpreter import use_this_python

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

Item = TypeVar("Item")
Answer = TypeVar("Answer")

TASKS_MAX = 2_000
"""More things than this share tasks."""


def on_executors(spark: SparkSession, function: Callable[[Item], Answer], items: Sequence[Item]) -> list[Answer]:
    """What `function` returns for each of `items`, in their order. A task may run twice: it must be repeatable."""
    if not items:
        return []
    use_this_python(spark)
    pickled = [pickle.dumps(item) for item in items]  # one by one, so that a task unpickles its own only

    def run(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        from bucketmq.spark.worker import settle_in

        settle_in()
        for batch in batches:
            for place in batch.column(0).to_pylist():
                answer = pickle.dumps(_answer(function, pickle.loads(pickled[place])))
                yield pa.RecordBatch.from_arrays([pa.array([place]), pa.array([answer])], names=["place", "answer"])

    places = spark.range(0, len(items), 1, min(len(items), TASKS_MAX))
    rows = places.mapInArrow(run, "place bigint, answer binary").collect()
    answers: list[Answer] = []
    for row in sorted(rows, key=lambda row: row.place):
        answer: Answer | BucketMQError = pickle.loads(row.answer)
        if isinstance(answer, BucketMQError):
            raise answer
        answers.append(answer)
    return answers


def _answer(function: Callable[[Item], Answer], item: Item) -> Answer | BucketMQError:
    """An error that trying again cannot mend is an answer: the driver raises it as it is, without Spark's wrapping."""
    try:
        return function(item)
    except Unavailable:
        raise
    except BucketMQError as error:
        return error
