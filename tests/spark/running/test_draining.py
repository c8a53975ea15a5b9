"""Draining a subscription: executors as workers beside others. What a task does, and the job through Spark."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from typing import Any

import pytest

pytest.importorskip("pyspark")

import bucketmq
from bucketmq import Bury, Retry, Unavailable
from bucketmq.spark import drain
from bucketmq.spark.running.draining import CALLS_MAX, Drained, Share, drain_share
from spark.conftest import Inbox


def share(inbox: Inbox, handle: Any, **more: Any) -> Share:
    given: dict[str, Any] = {
        "kind": "deliveries",
        "messages_max": None,
        "seconds_max": 60.0,
        "rows_max": 10,
        "lease_seconds": None,
        **more,
    }
    return Share(0, inbox.url, "jobs", "main", handle, options={}, **given)


def left(inbox: Inbox) -> tuple[int, int, int]:
    """Not settled, delayed, dead."""
    stats = inbox.bucket.queue("jobs").stats()
    return stats.depth, stats.delayed, stats.dead


def test_executors_share_a_queue_with_each_other_and_settle_everything(inbox: Inbox) -> None:
    queue = inbox.bucket.queue("jobs", shards=2)
    for n in range(20):
        queue.send_many([n * 10 + m for m in range(10)], key=f"k{n}")
    (taken,) = queue.receive(1)  # another worker has one of them

    def double(bucket: bucketmq.Bucket, rows: list[bucketmq.Delivery]) -> list[Any]:
        bucket.queue("doubled").send_many([row.body * 2 for row in rows if row.body % 50 != 7])
        return [Bury("seven") if row.body % 50 == 7 else None for row in rows]

    done = drain(inbox.spark, inbox.url, "jobs", double, tasks=2, rows_max=30)
    assert [each.task for each in done] == [0, 1]
    assert sum(each.received for each in done) == 199
    assert sum(each.buried for each in done) == 4
    assert sum(each.done for each in done) == 195
    assert left(inbox) == (1, 0, 4)
    expected = [n * 2 for n in range(200) if n % 50 != 7 and n != taken.body]
    assert sorted(inbox.bodies("doubled")) == expected


def test_a_task_goes_on_until_nothing_is_there(plain_inbox: Inbox) -> None:
    plain_inbox.bucket.queue("jobs").send_many(range(35))
    sizes: list[int] = []
    done = drain_share(share(plain_inbox, lambda _, rows: sizes.append(len(rows))))
    assert (done, sizes) == (Drained(0, received=35, done=35), [10, 10, 10, 5])
    assert left(plain_inbox) == (0, 0, 0)


def test_a_task_takes_no_more_than_its_share(plain_inbox: Inbox) -> None:
    plain_inbox.bucket.queue("jobs").send_many(range(35))
    assert drain_share(share(plain_inbox, lambda *_: None, messages_max=14)).received == 14
    assert drain_share(share(plain_inbox, lambda *_: None, messages_max=0)).received == 0
    assert left(plain_inbox) == (21, 0, 0)


def test_a_task_claims_nothing_more_when_its_time_is_over(plain_inbox: Inbox) -> None:
    plain_inbox.bucket.queue("jobs").send_many(range(35))
    assert drain_share(share(plain_inbox, lambda *_: None, seconds_max=0.0)).received == 10
    assert left(plain_inbox) == (25, 0, 0)


def test_a_batch_that_fails_is_divided_until_those_at_fault_are_alone(plain_inbox: Inbox) -> None:
    plain_inbox.bucket.queue("jobs").send_many(range(64))
    handled: Counter[int] = Counter()

    def poisoned(_: Any, rows: list[bucketmq.Delivery]) -> None:
        if any(row.body == 41 for row in rows):
            raise ValueError("no")
        handled.update(row.body for row in rows)

    done = drain_share(share(plain_inbox, poisoned, rows_max=64))
    assert (done.done, done.retried) == (63, 1)
    assert handled == Counter(n for n in range(64) if n != 41)
    assert left(plain_inbox) == (1, 1, 0)


def test_a_batch_in_which_everything_fails_is_not_divided_for_ever(plain_inbox: Inbox) -> None:
    plain_inbox.bucket.queue("jobs", attempts_max=1).send_many(range(500))
    calls: list[int] = []

    def broken(_: Any, rows: list[bucketmq.Delivery]) -> None:
        calls.append(len(rows))
        raise ValueError("no")

    done = drain_share(share(plain_inbox, broken, rows_max=500, messages_max=500))
    assert done.retried == 500
    assert CALLS_MAX <= len(calls) < 2 * CALLS_MAX
    assert left(plain_inbox) == (0, 0, 500)
    assert "ValueError: no" in plain_inbox.bucket.queue("jobs").dead_letters.peek(1)[0].reason


@pytest.mark.parametrize("outcome", [Retry("later"), Retry, [Retry("later")] * 10])
def test_what_the_handler_says_becomes_of_them(plain_inbox: Inbox, outcome: Any) -> None:
    plain_inbox.bucket.queue("jobs").send_many(range(10))
    assert drain_share(share(plain_inbox, lambda *_: outcome)).retried == 10
    assert left(plain_inbox) == (10, 10, 0)


def test_a_handler_that_cannot_reach_something_has_the_whole_batch_retried(plain_inbox: Inbox) -> None:
    plain_inbox.bucket.queue("jobs").send_many(range(10))
    calls: list[int] = []

    def down(_: Any, rows: list[Any]) -> None:
        calls.append(len(rows))
        raise Unavailable("the model does not answer")

    assert drain_share(share(plain_inbox, down)).retried == 10
    assert calls == [10]


@pytest.mark.parametrize("answer", [[None], "done", [None] * 9 + [1]])
def test_an_answer_that_says_nothing_fails_the_job_and_costs_no_attempt(plain_inbox: Inbox, answer: Any) -> None:
    queue = plain_inbox.bucket.queue("jobs")
    queue.send_many(range(10))
    with pytest.raises(bucketmq.Invalid, match="the handler returned"):
        drain_share(share(plain_inbox, lambda *_: answer))
    assert [delivery.attempt for delivery in queue.receive(100)] == [1] * 10


def test_what_the_handler_settled_itself_is_left_as_it_is(plain_inbox: Inbox) -> None:
    plain_inbox.bucket.queue("jobs").send_many(range(10))

    def bury_one(_: Any, rows: list[bucketmq.Delivery]) -> None:
        if not rows[0].body:
            rows[0].bury("by hand")
            raise ValueError("and then it failed")

    assert drain_share(share(plain_inbox, bury_one)).received == 10
    assert left(plain_inbox) == (0, 0, 1)


def test_rows_come_as_arrow_and_a_body_that_is_gone_is_retried(plain_inbox: Inbox) -> None:
    queue = plain_inbox.bucket.queue("jobs")
    queue.send({"n": 1}, key="k", headers={"a": "b"})
    queue.send(b"\x00bytes")
    gone = queue.send("x" * 100_000)
    plain_inbox.file(f"queues/jobs/bodies/{gone.id}").unlink()
    seen: list[dict[str, Any]] = []
    done = drain_share(share(plain_inbox, lambda _, rows: seen.extend(rows.to_pylist()), kind="arrow"))
    assert (done.done, done.retried) == (2, 1)
    first, second = sorted(seen, key=lambda row: row["offset"])
    assert (first["body"], first["key"], first["headers"], first["attempt"]) == ('{"n":1}', "k", [("a", "b")], 1)
    assert (second["body"], second["body_bytes"]) == (None, b"\x00bytes")


@pytest.mark.parametrize(
    ("given", "error"),
    [
        ({"tasks": 0}, bucketmq.Invalid),
        ({"rows_max": 0}, bucketmq.Invalid),
        ({"messages_max": 0}, bucketmq.Invalid),
        ({"kind": "pandas"}, bucketmq.Invalid),
        ({"lease_seconds": 0}, bucketmq.Invalid),
        ({"subscription": "mistyped"}, bucketmq.NotFound),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anything_runs(
    plain_inbox: Inbox, given: dict[str, Any], error: type[Exception]
) -> None:
    plain_inbox.bucket.queue("jobs").send(1)
    with pytest.raises(error):
        drain(None, plain_inbox.url, "jobs", print, **{"tasks": 1, **given})  # type: ignore[arg-type]
    assert left(plain_inbox) == (1, 0, 0)


DYING = """
import os, sys
from bucketmq.spark.running.draining import Share, drain_share

def dies(bucket, rows):
    os._exit(9)

drain_share(Share(0, sys.argv[1], "jobs", "main", dies, "deliveries", None, 60.0, 10, 0.5, {}))
"""


def test_what_a_task_had_in_hand_when_it_died_comes_to_another_worker(plain_inbox: Inbox) -> None:
    queue = plain_inbox.bucket.queue("jobs")
    queue.send_many(range(10))
    died = subprocess.run([sys.executable, "-c", DYING, plain_inbox.url], timeout=60, check=False)
    assert died.returncode == 9
    again = queue.receive(100, wait_seconds=30)
    assert sorted((delivery.body, delivery.attempt) for delivery in again) == [(n, 2) for n in range(10)]
