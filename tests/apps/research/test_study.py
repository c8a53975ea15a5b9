"""A study in the bucket: whatever dies or repeats, nothing counts twice and the report is the same byte for byte.

Faults are as in `procedures/objects/world.py`: one bad answer, or a death, at every single request.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from procedures.objects.world import DEATHS, FAULTS, Killed, World

import bucketmq
from bucketmq.apps.research import study
from bucketmq.apps.research.plan import Plan
from bucketmq.apps.research.record import (
    CLOSED,
    PLAN,
    REMARKS,
    SYNTHESIS,
    TRIALS,
    Closed,
    Round,
    result_key,
    round_key,
    study_key,
)
from bucketmq.client import Bucket
from bucketmq.errors import Corrupt
from bucketmq.procedures.abreast import abreast
from bucketmq.server.place import bus_of, run_now

from .studies import advance, carry_out, plan_of, report_of, start, work_off

RANGE = {"name": "x", "low": 0.0, "high": 1.0}
SMALL = {"parameters": [RANGE], "seeds": 2, "search": {"by": "halving", "points": 2, "keep": 2}}
"""Two rounds of two trials and one."""


def closed_of(bucket: Bucket, plan: Plan) -> Closed:
    return msgspec.json.decode(bucket.get(study_key(plan.study, CLOSED)).body, type=Closed)


def test_a_study_runs_from_its_plan_to_its_report(bucket: Bucket) -> None:
    plan = plan_of()
    carry_out(bucket, plan)
    files = report_of(bucket, plan)
    assert sorted(files) == ["closed.json", "figures/cost.svg", "report.html", "report.md", "synthesis.json"]
    assert closed_of(bucket, plan).why == "all in"
    assert run_now(bucket, study.check(bus_of(bucket), plan.study)) == []
    status = run_now(bucket, study.status(bus_of(bucket), plan.study))
    assert (status.state, status.planned, status.results, status.best) == ("finished", 12, 12, "x=1")


def test_rounds_follow_one_another_until_the_search_is_over(bucket: Bucket) -> None:
    plan = plan_of(parameters=[RANGE], seeds=9, search={"by": "halving", "points": 9})
    carry_out(bucket, plan)
    assert closed_of(bucket, plan).rounds == 3
    assert len(closed_of(bucket, plan).counted) == 21


def test_the_same_plan_again_is_the_same_study_and_another_is_refused(bucket: Bucket) -> None:
    assert start(bucket, plan_of()) is True
    assert start(bucket, plan_of()) is False
    with pytest.raises(bucketmq.Invalid, match="another plan"):
        start(bucket, plan_of(budget=99))
    assert msgspec.json.decode(bucket.get(study_key("s1", PLAN)).body, type=Plan) == plan_of()


def test_starting_again_sends_what_was_lost_and_nothing_runs_twice(bucket: Bucket) -> None:
    plan = plan_of()
    start(bucket, plan)
    work_off(bucket, plan, limit=5)
    bucket.queue(TRIALS).purge()
    start(bucket, plan)
    bodies = [each.body for each in bucket.queue(TRIALS).peek(100)]
    assert len(bodies) == 7
    assert all(each["again"] for each in bodies)
    carry_out(bucket, plan)


def test_a_study_that_is_not_there_is_said_to_be_so(bucket: Bucket) -> None:
    for verb in (study.status, study.stop, study.check, study.read_closed):
        for name in ("nobody", "../x", ""):
            with pytest.raises(bucketmq.NotFound, match="there is no study"):
                run_now(bucket, verb(bus_of(bucket), name))


def test_two_planners_agree_on_the_next_round() -> None:
    world = World("copying")
    plan = plan_of(**SMALL)
    one, other = world.connect(), world.connect()
    start(one, plan)
    work_off(one, plan)
    memories = study.Memory(), study.Memory()
    run_now(other, study.status(bus_of(other), plan.study, memories[1]))
    assert advance(one, plan, memories[0]) == "running"
    assert advance(other, plan, memories[1]) == "running"
    rounds = [msgspec.json.decode(one.get(round_key("s1", number)).body, type=Round) for number in (0, 1)]
    assert [len(each.trials) for each in rounds] == [2, 1]
    assert work_off(one, plan) == 1  # the second planner has sent nothing again
    assert advance(other, plan, memories[1]) == "finished"
    assert advance(one, plan, memories[0]) == "finished"
    world.close()


def test_at_the_deadline_the_report_is_made_of_what_is_there_and_stays() -> None:
    world = World("copying")
    plan = plan_of(deadline_seconds=100.0)
    bucket = world.connect()
    start(bucket, plan)
    work_off(bucket, plan, limit=5)
    assert advance(bucket, plan) == "running"
    world.advance(101)
    assert advance(bucket, plan) == "finished"
    closed = closed_of(bucket, plan)
    assert (closed.why, len(closed.counted), len(closed.missing)) == ("deadline", 5, 7)
    before = report_of(bucket, plan)
    assert b"7](#e1" in before["report.md"]
    work_off(bucket, plan)  # late
    assert advance(bucket, plan) == "finished"
    assert report_of(bucket, plan) == before
    assert run_now(bucket, study.check(bus_of(bucket), plan.study)) == []
    world.close()


def test_a_study_that_is_stopped_has_a_report_of_what_is_there(bucket: Bucket) -> None:
    plan = plan_of()
    start(bucket, plan)
    work_off(bucket, plan, limit=3)
    run_now(bucket, study.stop(bus_of(bucket), plan.study))
    assert advance(bucket, plan) == "finished"
    assert (closed_of(bucket, plan).why, len(closed_of(bucket, plan).counted)) == ("stopped", 3)


def test_a_study_without_any_result_has_a_report_that_says_so(bucket: Bucket) -> None:
    plan = plan_of()
    start(bucket, plan)
    run_now(bucket, study.stop(bus_of(bucket), plan.study))
    assert advance(bucket, plan) == "finished"
    assert b"No trial has brought a value" in report_of(bucket, plan)["report.md"]


def test_what_is_no_result_of_its_trial_is_a_failed_one(bucket: Bucket) -> None:
    plan = plan_of()
    start(bucket, plan)
    ids = [each.body["id"] for each in bucket.queue(TRIALS).peek(100)]
    bucket.put(result_key("s1", ids[0]), b"garbage")
    bucket.put(
        result_key("s1", ids[1]), {"id": ids[2], "parameters": {"x": 9}, "seed": 1, "simulator": "", "version": ""}
    )
    work_off(bucket, plan)
    bucket.put(result_key("s1", ids[3]), {"id": ids[3], "parameters": {}, "seed": 1, "simulator": "", "version": ""})
    assert advance(bucket, plan) == "finished"
    assert b"the object is not a result" in report_of(bucket, plan)["report.md"]
    assert run_now(bucket, study.check(bus_of(bucket), plan.study)) == []


def test_a_report_that_somebody_changed_in_the_bucket_is_refused(bucket: Bucket) -> None:
    plan = plan_of()
    carry_out(bucket, plan)
    key = study_key("s1", "report.md")
    text = bucket.get(key).body.decode()
    bucket.put(key, text.replace("## Points", "We are 3 times faster.\n\n## Points"))
    problems = run_now(bucket, study.check(bus_of(bucket), plan.study))
    assert problems == [
        f"report.md: line {text[: text.index('## Points')].count(chr(10)) + 1}: '3' is a number without evidence, in "
        "'We are 3 times faster.'"
    ]


def test_a_summary_that_somebody_changed_in_the_bucket_is_refused(bucket: Bucket) -> None:
    plan = plan_of()
    carry_out(bucket, plan)
    key = study_key("s1", SYNTHESIS)
    right = bucket.get_json(key)
    for wrong in ({**right, "best": "x=99"}, {**right, "gain": 3}, {**right, "numbers": {}}):
        bucket.put(key, wrong)
        (problem,) = run_now(bucket, study.check(bus_of(bucket), plan.study))
        assert problem.startswith("synthesis.json: ") and "is not what the results give" in problem
    bucket.put(key, b"3 times better")
    assert "cannot be read" in run_now(bucket, study.check(bus_of(bucket), plan.study))[0]


def test_prose_that_is_refused_is_named_and_the_report_comes_when_it_is_gone(bucket: Bucket) -> None:
    plan = plan_of()
    bucket.put(study_key("s1", REMARKS), {"text": "It is 3 times better."})
    with pytest.raises(Corrupt, match=r"'3' is a number.*correct studies/s1/remarks.json, or delete it"):
        carry_out(bucket, plan)
    bucket.delete(study_key("s1", REMARKS))
    assert advance(bucket, plan) == "finished"


def test_a_round_whose_planner_died_before_sending_is_sent_by_another() -> None:
    plan = plan_of(**SMALL)
    for at in range(200):
        world = World("copying")
        dying = world.connect(at=at, fault="dies before")
        try:
            start(dying, plan)
        except Killed:
            pass
        else:
            assert at > 10
            world.close()
            return
        bucket = world.connect()
        run_now(bucket, study.create(bus_of(bucket), study_key("s1", PLAN), plan))
        world.advance(study.RESEND_SECONDS + 1)
        state = advance(bucket, plan)
        while state == "running":
            assert work_off(bucket, plan), at
            world.advance(study.RESEND_SECONDS + 1)
            state = advance(bucket, plan)
        assert closed_of(bucket, plan).why == "all in"
        world.close()
    raise AssertionError("it never got through")


def _attempt(world: World, plan: Plan, bucket: Any) -> None:
    start(bucket, plan)
    memory = study.Memory()
    while advance(bucket, plan, memory) == "running":
        if not work_off(bucket, plan):
            world.advance(study.RESEND_SECONDS + 61)


@pytest.fixture(scope="module")
def undisturbed() -> dict[str, bytes]:
    world = World("copying")
    bucket = world.connect()
    _attempt(world, plan_of(**SMALL), bucket)
    found = report_of(bucket, plan_of(**SMALL))
    assert SYNTHESIS in found
    world.close()
    return found


@pytest.mark.parametrize("fault", [*DEATHS, *FAULTS])
def test_the_report_is_the_same_whatever_goes_wrong_at_any_request(fault: str, undisturbed: dict[str, bytes]) -> None:
    plan = plan_of(**SMALL)
    stride = 1 if fault in DEATHS else 3
    for at in range(0, 1000, stride):
        world = World("copying")
        bad = world.connect(at=at, fault=fault)
        try:
            _attempt(world, plan, bad)
        except (Killed, bucketmq.BucketMQError):
            pass
        world.advance(120)
        _attempt(world, plan, world.connect())
        assert report_of(world.connect(), plan) == undisturbed, (fault, at)
        world.close()
        if not bad.hands.hit:
            assert at > 60
            return
    raise AssertionError("it never got through")


def test_what_a_study_costs(bucket: Bucket) -> None:
    """Requests of everything but the workers: a GET for each result, and a fixed number a round."""
    plan = plan_of(parameters=[{"name": "x", "values": list(range(50))}], budget=200)
    before = bucket.requests
    start(bucket, plan)
    started = bucket.requests - before
    assert started.create + started.replace <= 22
    assert started.list <= 10  # most of them because the queue and the log of events are new
    work_off(bucket, plan)
    before = bucket.requests
    assert advance(bucket, plan) == "finished"
    spent = bucket.requests - before
    assert spent.list <= 2
    assert spent.get - len(closed_of(bucket, plan).counted) <= 8
    assert spent.create + spent.replace <= 16


def test_two_who_look_at_the_same_time_and_share_what_they_know_read_each_round_once(bucket: Bucket) -> None:
    plan = plan_of()
    carry_out(bucket, plan)
    bus, memory = bus_of(bucket), study.Memory()
    looks = [study.status(bus, plan.study, memory) for _ in range(3)]
    found = run_now(bucket, abreast(looks))
    assert [each.rounds for each in found if isinstance(each, study.Status)] == [1, 1, 1]
    assert len(memory.rounds[plan.study]) == 1
