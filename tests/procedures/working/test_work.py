"""Workers: handlers of every kind, what they return, what they raise, and leases kept alive while they run."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import time
from typing import Any

import pytest

import bucketmq
from bucketmq import Bury, Done, Release, Retry
from procedures.world import World, drain, eventually


def run(queue: Any, handler: Any, **options: Any) -> None:
    queue.run(handler, stop_when_empty=True, signals=False, **options)


def test_a_plain_handler_gets_every_message_once(queue: Any) -> None:
    queue.send_many(range(30))
    seen: list[int] = []
    run(queue, lambda delivery: seen.append(delivery.body))
    assert seen == list(range(30))
    assert queue.stats().depth == 0


def test_an_async_handler_works_on_both_facades(queue: Any) -> None:
    queue.send_many(range(10))
    seen: list[int] = []

    async def handle(delivery: Any) -> None:
        await asyncio.sleep(0)
        seen.append(delivery.body)

    run(queue, handle, concurrency=3)
    assert sorted(seen) == list(range(10))
    assert queue.stats().depth == 0


def test_a_callable_object_that_returns_a_coroutine_is_awaited(queue: Any) -> None:
    queue.send("x")
    seen: list[str] = []

    class Handler:
        async def _work(self, delivery: Any) -> Any:
            seen.append(delivery.body)
            return Bury("as told")

        def __call__(self, delivery: Any) -> Any:
            return self._work(delivery)

    run(queue, Handler())
    assert seen == ["x"]
    assert queue.stats().dead == 1


OUTCOMES = [
    (None, 0, 0, 0),
    (Done(), 0, 0, 0),
    (Retry(delay_seconds=1000), 1, 1, 0),
    (Retry("why"), 1, 1, 0),
    (Retry, 1, 1, 0),
    (Bury("why"), 0, 0, 1),
    (Bury, 0, 0, 1),
    ("anything else", 0, 0, 0),
]


@pytest.mark.parametrize(("outcome", "depth", "delayed", "dead"), OUTCOMES, ids=[str(case[0]) for case in OUTCOMES])
def test_what_a_handler_returns_is_what_becomes_of_it(
    queue: Any, outcome: Any, depth: int, delayed: int, dead: int
) -> None:
    queue.send("x")
    run(queue, lambda _: outcome)
    stats = queue.stats()
    assert (stats.depth, stats.delayed, stats.dead, stats.in_flight) == (depth, delayed, dead, 0)


def test_a_worker_that_stops_when_empty_waits_for_what_is_ready_behind_messages_in_flight(
    world: World, bucket: Any
) -> None:
    queue = bucket.queue("jobs", in_flight_max=2)
    queue.send_many(range(3))
    held = world.connect().queue("jobs").receive(2)
    seen: list[int] = []
    worker = threading.Thread(target=run, args=(queue, lambda delivery: seen.append(delivery.body)))
    worker.start()
    eventually(lambda: queue.receive(1).full)
    assert worker.is_alive()
    for delivery in held:
        delivery.ack(wait=True)
    worker.join(30)
    assert seen == [2]


def test_a_worker_that_stops_when_empty_does_not_wait_for_retries(bucket: Any) -> None:
    queue = bucket.queue("jobs", in_flight_max=2)
    queue.send_many(range(3))
    run(queue, lambda _: Retry(delay_seconds=1000))
    assert queue.receive(1).full


def test_a_released_message_is_handed_out_again_as_the_same_attempt(queue: Any) -> None:
    queue.send("x")
    attempts: list[int] = []

    def handle(delivery: Any) -> Any:
        attempts.append(delivery.attempt)
        return Release() if len(attempts) < 3 else None

    eventually(lambda: run(queue, handle) or queue.stats().depth == 0)
    assert attempts == [1, 1, 1]


@pytest.mark.parametrize("delay", [float("inf"), -5, "soon"])
def test_an_impossible_delay_falls_back_to_the_back_off_and_says_so(world: World, bucket: Any, delay: Any) -> None:
    queue = bucket.queue("jobs", attempts_max=2)
    queue.send_many([*"xy"])
    run(queue, lambda delivery: Retry("why", delay_seconds=delay) if delivery.body == "x" else None)
    assert queue.stats().delayed == 1
    world.advance(100)
    run(queue, lambda _: Retry("again"))
    (letter,) = queue.dead_letters.peek()
    assert "why" in letter.failures[0]["error"]
    assert "delay_seconds" in letter.failures[0]["error"]


class Unprintable(Exception):
    def __str__(self) -> str:
        return "\udcff lone surrogate"


RAISED = [("plain", ValueError), ("plain", Unprintable), ("plain", SystemExit)]
RAISED += [("async", ValueError), ("async", Unprintable), ("async", SystemExit), ("async", asyncio.CancelledError)]


@pytest.mark.parametrize(("kind", "error"), RAISED, ids=[f"{kind} {error.__name__}" for kind, error in RAISED])
def test_an_exception_is_a_retry_with_its_traceback_and_the_worker_goes_on(
    bucket: Any, error: type[BaseException], kind: str
) -> None:
    queue = bucket.queue("jobs", attempts_max=1)
    queue.send_many(["bad", "good", "good"])
    seen: list[str] = []

    def handle(delivery: Any) -> None:
        seen.append(delivery.body)
        if delivery.body == "bad":
            raise error("bad")

    async def handle_async(delivery: Any) -> None:
        handle(delivery)

    run(queue, handle if kind == "plain" else handle_async)
    assert seen == ["bad", "good", "good"]
    (letter,) = queue.dead_letters.peek()
    assert letter.body == "bad"
    assert letter.failures[0]["error"].startswith("Traceback")
    assert error.__name__ in letter.reason or "cancelled" in letter.reason
    assert queue.stats().depth == 0


def test_a_long_traceback_keeps_its_end_and_the_reason_is_still_its_last_line(queue: Any, bucket: Any) -> None:
    queue = bucket.queue("jobs", attempts_max=1)
    queue.send("x")

    def deep(left: int) -> None:
        if not left:
            raise ValueError("at the bottom")
        (deep if left % 2 else deeper)(left - 1)

    def deeper(left: int) -> None:
        deep(left - 1)

    run(queue, lambda _: deep(50))
    (letter,) = queue.dead_letters.peek()
    assert letter.reason == "ValueError: at the bottom"
    assert len(letter.failures[0]["error"]) < 4000


def test_a_handler_may_settle_by_itself(queue: Any) -> None:
    queue.send_many([*"ab"])
    if sys.modules["bucketmq.aio"].Queue is type(getattr(queue, "_real", None)):

        async def settle(delivery: Any) -> Any:
            await delivery.bury("by hand")
            raise ValueError("too late to matter")
    else:

        def settle(delivery: Any) -> Any:
            delivery.bury("by hand")
            raise ValueError("too late to matter")

    run(queue, settle)
    assert [letter.reason for letter in queue.dead_letters.peek()] == ["by hand", "by hand"]


def test_lease_lost_on_something_else_is_a_failure_like_any_other(blocking: World) -> None:
    queue = blocking.connect().queue("jobs", attempts_max=1)
    queue.send("x")

    def handle(_: Any) -> None:
        raise bucketmq.LeaseLost("of another queue")

    run(queue, handle)
    assert queue.stats().dead == 1


def test_concurrency_is_how_many_run_at_once(blocking: World) -> None:
    queue = blocking.connect().queue("jobs")
    queue.send_many(range(12))
    together = threading.Barrier(4, timeout=20)
    run(queue, lambda _: together.wait(), concurrency=4)
    assert queue.stats().depth == 0


@pytest.mark.parametrize("options", [{"concurrency": 0}, {"prefetch": 0}, {"lease_seconds": 0}, {"concurrency": -1}])
def test_options_that_cannot_work_are_invalid(queue: Any, options: dict[str, Any]) -> None:
    with pytest.raises(bucketmq.Invalid):
        run(queue, lambda _: None, **options)


def test_a_long_handler_keeps_its_lease(world: World) -> None:
    queue = world.connect().queue("jobs", lease_seconds=1, attempts_max=1)
    queue.send_many(["long", "short"])
    other = world.connect().queue("jobs")
    stolen: list[Any] = []

    def handle(delivery: Any) -> None:
        if delivery.body == "long":
            until = time.monotonic() + 2.5
            while time.monotonic() < until:
                stolen.extend(other.receive(10, wait_seconds=0.1))

    run(queue, handle)
    assert stolen == []
    stats = queue.stats()
    assert (stats.depth, stats.dead) == (0, 0)


def test_a_decorated_function_is_the_queues_handler(queue: Any) -> None:
    queue.send_many([*"ab"])
    seen: list[str] = []

    @queue.handler
    def handle(delivery: Any) -> None:
        seen.append(delivery.body)

    assert handle.queue.name == "jobs"
    result = handle.run(stop_when_empty=True, signals=False)
    if asyncio.iscoroutine(result):
        queue._loop.call(lambda: result)
    assert seen == ["a", "b"]


def test_two_workers_share_the_work(blocking: World) -> None:
    first, second = blocking.connect().queue("jobs", shards=2), blocking.connect().queue("jobs")
    first.settings()
    for _ in range(20):
        first.send_many(range(5))
    seen: dict[str, int] = {"first": 0, "second": 0}

    def count(name: str) -> Any:
        def handle(_: Any) -> None:
            seen[name] += 1

        return handle

    threads = [
        threading.Thread(target=run, args=(queue, count(name)))
        for name, queue in (("first", first), ("second", second))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sum(seen.values()) + len(drain(first)) == 100


def test_retries_go_on_until_the_message_is_dead(world: World, bucket: Any) -> None:
    queue = bucket.queue("jobs", attempts_max=3, backoff=bucketmq.Backoff(first_seconds=0.01, factor=1, jitter=0))
    queue.send("x")
    attempts: list[int] = []

    def handle(delivery: Any) -> None:
        attempts.append(delivery.attempt)
        raise ValueError(f"attempt {delivery.attempt}")

    eventually(lambda: run(queue, handle) or queue.stats().dead == 1)
    assert attempts == [1, 2, 3]
    (letter,) = queue.dead_letters.peek()
    assert [failure["error"].splitlines()[-1] for failure in letter.failures] == [
        f"ValueError: attempt {n}" for n in (1, 2, 3)
    ]


def test_a_failure_is_logged_once_with_its_message_error_and_traceback(
    bucket: Any, caplog: pytest.LogCaptureFixture
) -> None:
    queue = bucket.queue("jobs", attempts_max=1)
    sent = queue.send("x")

    def fail(_: Any) -> None:
        raise ValueError("so it goes" + "!" * 2_000)

    run(queue, fail)
    (line,) = [record for record in caplog.records if "action=handler_failed" in record.getMessage()]
    text = line.getMessage()
    assert (line.name, line.levelname) == ("bucketmq", "WARNING")
    assert f"queue=jobs subscription=main message={sent.id} attempt=1 error=ValueError: so it goes!!" in text
    assert "Traceback" in text
    assert "in fail" in text
    assert len(text) < 5_000


def test_the_worker_leaves_the_applications_logging_alone(queue: Any) -> None:
    def state() -> list[Any]:
        loggers = [logging.getLogger(), logging.getLogger("bucketmq")]
        return [(each.handlers[:], each.level, each.propagate, each.disabled) for each in loggers]

    before = state()
    queue.send("x")
    run(queue, lambda _: 1 / 0)
    assert state() == before


class Onlooker:
    """Sees what workers have handled."""

    def __init__(self) -> None:
        self.seen: list[tuple[Any, ...]] = []

    def on_handled(self, *what: Any) -> None:
        self.seen.append(what)
        raise RuntimeError("an observer's own error")


def test_an_observer_sees_what_became_of_every_message_and_cannot_harm_it(bucket: Any) -> None:
    queue, onlooker = bucket.queue("jobs", attempts_max=1), Onlooker()
    bucket.observe(onlooker)
    queue.send_many(["ok", "bury", "fail"])

    def handle(delivery: Any) -> Any:
        return {"ok": None, "bury": Bury("why")}[delivery.body]

    run(queue, handle)
    assert [(*what[:2], what[2].message.body, what[2].shard, what[2].offset) for what in onlooker.seen] == [
        ("jobs", "main", "ok", 0, 0),
        ("jobs", "main", "bury", 0, 1),
        ("jobs", "main", "fail", 0, 2),
    ]
    done, buried, failed = (outcome for *_, outcome, _ in onlooker.seen)
    assert (done, buried) == (Done(), Bury("why"))
    assert "KeyError" in failed.reason
    assert all(0 <= seconds < 10 for *_, seconds in onlooker.seen)
    assert (queue.stats().depth, queue.stats().dead) == (0, 2)
