"""Sets of objects as the source of a pipeline: a row for each, once, complete or at its deadline, whoever dies."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from procedures.objects.world import World
from procedures.rules.test_watchers import run, run_until_death
from spark.conftest import Inbox

import bucketmq
from bucketmq.pipeline import FromSets, Pipeline, ToQueue, stage
from pipeline.test_pipeline import run as run_on_spark

SETS = FromSets(queue="nights", keys=("a/{day}", "b/{day}"), deadline_seconds=60)


@stage(
    takes="set string, values map<string,string>, keys array<string>, missing array<string>, complete boolean, "
    "versions map<string,string>, first_at timestamp, last_at timestamp",
    gives="day string, keys array<string>, missing array<string>, complete boolean, seconds double",
)
def close(batch: Any) -> Any:
    rows = batch.to_pylist()
    return {
        "day": [dict(row["values"])["day"] for row in rows],
        "keys": [row["keys"] for row in rows],
        "missing": [row["missing"] for row in rows],
        "complete": [row["complete"] for row in rows],
        "seconds": [(row["last_at"] - row["first_at"]).total_seconds() for row in rows],
    }


NIGHTS = Pipeline(name="nights", source=SETS, stages=(close,), target=ToQueue(queue="closed"))


@pytest.fixture
def memory() -> Iterator[World]:
    made = World("copying")
    yield made
    made.close()


@pytest.fixture(params=["blocking", "asyncio"])
def both(request: pytest.FixtureRequest, memory: World) -> Any:
    return memory.connect() if request.param == "blocking" else memory.connect_async()


def rows(bucket: Any) -> list[Any]:
    """What the pipeline has made of all sets so far."""
    bucket.queue("nights").run(NIGHTS.watcher(bucket), stop_when_empty=True, signals=False)
    return [message.body for message in bucket.queue("closed").peek(100)]


def test_a_row_for_each_set_complete_or_at_its_deadline(memory: World, both: Any) -> None:
    SETS.gather(both, start="beginning")
    plain = memory.connect()
    plain.put("a/mon", 1)
    plain.put("a/tue", 1)
    run(both, "nights")
    memory.advance(5)
    plain.put("b/mon", 1)
    plain.put("b/mon", 2)  # told twice
    run(both, "nights")
    (monday,) = rows(plain)
    assert {**monday, "seconds": round(monday["seconds"])} == {
        "day": "mon",
        "keys": ["a/mon", "b/mon"],
        "missing": [],
        "complete": True,
        "seconds": 5,
    }
    memory.advance(60)
    run(both, "nights")
    run(both, "nights")
    assert rows(plain)[1:] == [
        {"day": "tue", "keys": ["a/tue"], "missing": ["b/tue"], "complete": False, "seconds": 0.0}
    ]
    plain.put("b/tue", 1)  # too late
    run(both, "nights")
    assert len(rows(plain)) == 2


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")  # its threads die with it
def test_a_gatherer_killed_between_any_two_requests_sends_each_set_once() -> None:
    at, dead = 0, True
    while dead:
        world = World("copying")
        living = world.connect()
        SETS.gather(living, start="beginning", lease_seconds=5)
        run(living, "nights")
        living.put("a/mon", 1)
        living.put("b/mon", 1)
        living.put("a/tue", 1)
        dying = world.connect(at=at, fault="dies after")
        SETS.gather(dying, start="beginning", lease_seconds=5)
        run_until_death(dying)
        for _ in range(6):  # its leases end, then comes the deadline
            world.advance(30)
            run(living, "nights")
        made = sorted((row["day"], row["complete"], row["missing"]) for row in rows(living))
        assert made == [("mon", True, []), ("tue", False, ["b/tue"])], at
        dead = dying.hands.dead
        world.close()
        at += 1
    assert at > 30


def test_a_set_that_fails_is_a_dead_letter_of_its_queue_and_can_be_redriven(memory: World) -> None:
    bucket = memory.connect()
    SETS.gather(bucket, start="beginning")
    bucket.put("a/bad", 1)
    bucket.put("b/bad", 1)
    run(bucket, "nights")
    fails = [True]

    @stage(takes="keys array<string>", gives="n int")
    def count(batch: Any) -> Any:
        if fails:
            raise ValueError("not yet")
        return {"n": [len(keys) for keys in batch.column("keys").to_pylist()]}

    counting = Pipeline(name="count", source=SETS, stages=(count,), target=ToQueue(queue="counts"))
    queue = bucket.queue("nights")
    queue.run(counting.watcher(bucket), stop_when_empty=True, signals=False)
    (letter,) = queue.dead_letters.peek()
    assert letter.body["values"] == {"day": "bad"}
    fails.clear()
    queue.dead_letters.redrive()
    queue.run(counting.watcher(bucket), stop_when_empty=True, signals=False)
    assert [message.body for message in bucket.queue("counts").peek()] == [{"n": 2}]


@pytest.mark.timeout(300)
def test_without_spark_the_same_comes_of_the_same(inbox: Inbox, tmp_path: Path) -> None:
    sets = Pipeline(name="nights", source=SETS, target=ToQueue(queue="closed"))
    other = Inbox(tmp_path / "other")
    found = []
    for each in (inbox, other):
        SETS.gather(each.bucket, start="beginning")
        for key in ("a/mon", "b/mon", "a/tue", "a/wed", "b/wed"):
            each.bucket.put(key, 1)
        each.bucket.run_watchers(stop_when_empty=True, signals=False)
        if each is inbox:
            run_on_spark(each, sets)
        else:
            each.bucket.queue("nights").run(sets.watcher(each.bucket), stop_when_empty=True, signals=False)
        bodies = sorted(each.bodies("closed"), key=lambda body: str(body["values"]))
        assert [(body["values"], body["keys"], body["missing"], body["complete"]) for body in bodies] == [
            ({"day": "mon"}, ["a/mon", "b/mon"], [], True),
            ({"day": "wed"}, ["a/wed", "b/wed"], [], True),
        ]
        assert all(body["first_at"] <= body["last_at"] and body["message_id"] for body in bodies)
        found.append([(body["set"], sorted(body)) for body in bodies])
    assert found[0] == found[1]
    other.bucket.close()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"queue": "x", "keys": "a/{id}"}, "keys are a tuple"),
        ({"queue": "x", "keys": ()}, "1 to 1000 different keys"),
        ({"queue": "x", "keys": ("a/{id}", "b/{name}")}, "same placeholders"),
        ({"queue": "x", "keys": ("a",), "deadline_seconds": 0}, "deadline_seconds"),
        ({"queue": "x.dead", "keys": ("a",)}, "for dead letters"),
    ],
)
def test_what_cannot_work_is_refused_when_it_is_written_down(options: dict[str, Any], says: str) -> None:
    with pytest.raises(bucketmq.Invalid, match=says):
        FromSets(**options)
