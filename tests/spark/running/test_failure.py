"""What a failure inside Spark is taken for, by the texts that Spark makes of it."""

from __future__ import annotations

import pytest

import bucketmq
from bucketmq.errors import BucketMQError
from bucketmq.spark.running.failure import TEXT_MAX, SlowPython, explained

TASK = (
    "[STREAM_FAILED] Query [id = 9, runId = 5] terminated with exception: Job aborted due to stage failure: Task 0 in "
    "stage 4.0 failed 4 times, most recent failure: Lost task 0.3 in stage 4.0 (TID 11) (127.0.0.1 executor 1): "
)
TRACEBACK = (
    'org.apache.spark.api.python.PythonException: Traceback (most recent call last):\n  File "a.py", line 3, in f\n'
)
JAVA = "\n\tat org.apache.spark.api.python.A(B.scala:1)\n\t... 3 more\nDriver stacktrace: SQLSTATE: XXKST"

CAUSES = (
    "Caused by: java.io.IOException: no\n\tat a.B\nCaused by: a.b.C$DException: n should be int, but was x\n\tat a.B"
)


@pytest.mark.parametrize(
    ("text", "kind", "said"),
    [
        (f"{TASK}{TRACEBACK}bucketmq.errors.NotFound: no 'x';\nmake it{JAVA}", bucketmq.NotFound, "no 'x';\nmake it"),
        (f"{TASK}{TRACEBACK}bucketmq.pipeline.stages.Misshapen: lacks n{JAVA}", bucketmq.Invalid, "lacks n"),
        (f"{TASK}{TRACEBACK}bucketmq.errors.Gone: older{JAVA}", BucketMQError, "bucketmq.errors.Gone: older"),
        (f"{TASK}{TRACEBACK}ValueError: x\n\nDuring handling{JAVA}", BucketMQError, "ValueError: x"),
        (f"{TASK}{TRACEBACK}KeyboardInterrupt{JAVA}", BucketMQError, "KeyboardInterrupt"),
        (f"{TASK}java.lang.OutOfMemoryError: Java heap space{JAVA}", BucketMQError, "Java heap space"),
        (
            f"An error occurred while calling o1.x.\n: org.apache.spark.SparkException: Could not parse 'foo'{JAVA}",
            BucketMQError,
            "Could not parse 'foo'",
        ),
        (
            f"Error while instantiating 'Builder':\n\nJVM stacktrace:\n{CAUSES}",
            BucketMQError,
            "Error while instantiating 'Builder': n should be int, but was x",
        ),
        (f"An error has occurred.{JAVA}\n{CAUSES}", BucketMQError, "An error has occurred: n should be int, but was x"),
        (f"n should be int, but was x{JAVA}\n{CAUSES}", BucketMQError, "n should be int, but was x"),
        ("[PATH_NOT_FOUND] Path does not exist: /x.", BucketMQError, "[PATH_NOT_FOUND] Path does not exist: /x."),
        (
            f"[STREAM_FAILED] Query [id = 9] terminated with exception: Python worker failed to connect back.{JAVA}",
            SlowPython,
            "a Python that Spark started did not answer within ten seconds; run less at a time",
        ),
        ("", BucketMQError, "Exception"),
        ("x" * 100_000, BucketMQError, "x" * TEXT_MAX),
    ],
    ids=[
        "ours",
        "below ours",
        "of no kind we have",
        "another",
        "no text",
        "Java",
        "Spark",
        "a cause behind a colon",
        "a cause behind a sentence",
        "a cause that was said",
        "Spark alone",
        "a Python that was slow",
        "nothing",
        "long",
    ],
)
def test_the_cause_is_what_is_said(text: str, kind: type[BucketMQError], said: str) -> None:
    error = explained(Exception(text))
    assert (type(error), str(error)) == (kind, said)


def test_errors_of_ours_stay_as_they_are() -> None:
    error = bucketmq.Unavailable("later")
    assert explained(error) is error
