"""A notifier that runs: it notices rules that come, change, pause and go, and does the chores of writers that died."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from bucketmq.procedures.rules import notifier
from bucketmq.testing.endpoints import Reply, endpoint
from procedures.objects.world import Killed, World, told
from procedures.rules.test_deliver import add, keys
from procedures.world import eventually


class Running:
    """A notifier on a thread."""

    def __init__(self, bucket: Any) -> None:
        self.bucket = bucket
        self.notifier: Any = None
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._ready.wait(30)

    def _run(self) -> None:
        self.bucket.notify(signals=False, started=self._started)

    def _started(self, notifier: Any) -> None:
        self.notifier = notifier
        notifier.ready.on_open(self._ready.set)

    def stop(self) -> None:
        self.notifier.stop()
        self._thread.join(30)
        assert not self._thread.is_alive()


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at the rules more often than once a second."""
    monkeypatch.setattr(notifier, "RULES_SECONDS_LOCAL", 0.05)


@pytest.fixture
def running(memory: World) -> Iterator[Running]:
    made = Running(memory.connect())
    yield made
    made.stop()


def test_a_rule_is_run_from_when_it_comes_to_when_it_goes(memory: World, running: Running) -> None:
    bucket = memory.connect()
    with endpoint() as first, endpoint() as second:
        add(bucket, first)
        bucket.put("a", "x")
        first.wait_for(1)
        add(bucket, second, replace=True)  # the same rule, elsewhere
        eventually(lambda: [run.rule.to.url for run in running.notifier.runs()] == [second.url])
        bucket.put("b", "x")
        second.wait_for(1)
        bucket.rules.pause("r", "for repairs")
        eventually(lambda: running.notifier.runs() == [])
        bucket.put("c", "x")
        bucket.rules.resume("r")
        second.wait_for(2)
        bucket.rules.remove("r")
        eventually(lambda: running.notifier.runs() == [])
        assert (keys(first), keys(second)) == (["a"], ["b", "c"])


def test_410_pauses_a_rule_that_runs_and_a_resume_goes_on(memory: World, running: Running) -> None:
    bucket = memory.connect()
    with endpoint([Reply(410), Reply()]) as there:
        add(bucket, there, concurrency=1)
        bucket.put("a", "x")
        eventually(lambda: bucket.rules.get("r").paused)
        bucket.rules.resume("r")
        there.wait_for(2)
        assert keys(there) == ["a", "a"]


def test_what_a_dead_writer_left_is_told_by_a_notifier_that_runs(memory: World) -> None:
    bucket = memory.connect()
    with pytest.raises(Killed):
        memory.connect(at=3, fault="dies after").put("a", "x")
    assert told(bucket) == []
    memory.advance(60)
    running = Running(bucket)
    try:
        eventually(lambda: [event.key for event in told(bucket)] == ["a"])
        eventually(lambda: memory.notes() == [])
    finally:
        running.stop()


@pytest.mark.parametrize("how", ["bad filter", "broken", "later format"])
def test_a_rule_that_this_program_cannot_read_does_not_stop_the_others(memory: World, how: str) -> None:
    bucket = memory.connect()
    with endpoint() as there:
        add(bucket, there, "good")
        add(bucket, there, "bad")
        body = memory.everything()["rules/bad.json"]
        bodies = {
            "bad filter": body.replace(b'"name":"bad"', b'"name":"bad","filter":"WHERE nonsense ="'),
            "broken": body[:-5],
            "later format": body.replace(b'"name":"bad"', b'"name":"bad","format":99'),
        }
        assert bodies[how] != body
        heads = {key for key in memory.everything() if "/heads/rule-bad" in key}
        memory.write("rules/bad.json", bodies[how])
        bucket.put("a", "x")
        running = Running(bucket)
        try:
            there.wait_for(1)
            assert [run.rule.name for run in running.notifier.runs()] == ["good"]
        finally:
            running.stop()
        assert "good" in [rule.name for rule in bucket.rules.list()]
        memory.advance(1000)
        bucket.rules.tidy()
        assert heads <= set(memory.everything())  # whoever can read it goes on where it was


def test_stopping_gives_back_what_was_not_begun(memory: World) -> None:
    bucket = memory.connect()
    hold = threading.Event()
    with endpoint([Reply(until=hold)]) as there:
        add(bucket, there, concurrency=1)
        for n in range(10):
            bucket.put(f"k{n}", "x")
        running = Running(bucket)
        there.wait_for(1)
        running.notifier.stop()
        hold.set()
        running.stop()
        done = len(there.requests)
        assert done < 10
        memory.connect().notify(stop_when_empty=True, signals=False)  # no lease has to run out
        assert sorted(keys(there)) == sorted(f"k{n}" for n in range(10))
