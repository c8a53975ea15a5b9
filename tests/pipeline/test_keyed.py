"""State by key without Spark: counted once, timed out, and kept in the bucket."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

import bucketmq
from bucketmq.outcomes import Done
from bucketmq.pipeline import FromQueue, Misshapen, Pipeline, ToQueue, stage
from bucketmq.pipeline.chain import Chain
from bucketmq.pipeline.columns import arrow_schema
from bucketmq.pipeline.keyed import Keyed
from bucketmq.pipeline.registers import groups_of
from bucketmq.procedures.requests import Create, Procedure, Replace

SPENT = "user string, amount bigint"


def total(key: str, rows: Any, state: dict[str, Any] | None) -> Any:
    """The sum so far, for each row that comes; when nobody came for a while, the last word."""
    kept = state or {"sum": 0, "count": 0}
    if not rows.num_rows:
        return {"user": [key], "sum": [kept["sum"]], "last": [True]}, None
    if "poison" in rows.column("user").to_pylist():
        raise ValueError("poison")
    kept = {"sum": kept["sum"] + sum(rows.column("amount").to_pylist()), "count": kept["count"] + rows.num_rows}
    return {"user": [key], "sum": [kept["sum"]], "last": [False]}, kept


TOTAL = stage(
    takes=SPENT,
    gives="user string, sum bigint, last boolean",
    key="user",
    state="sum bigint, count bigint",
    timeout_seconds=60,
)(total)
TOTALS = Pipeline(name="totals", source=FromQueue("spent", SPENT), stages=(TOTAL,), target=ToQueue(queue="sums"))


@pytest.fixture
def bucket(tmp_path: Path) -> Any:
    with bucketmq.connect(str(tmp_path / "inbox")) as made:
        yield made


def work(bucket: Any, pipeline: Pipeline = TOTALS) -> None:
    bucket.queue("spent").run(pipeline.watcher(bucket), stop_when_empty=True, signals=False)


def sums(bucket: Any) -> list[tuple[str, int, bool]]:
    found = bucket.queue("sums").receive(100)
    for each in found:
        each.ack()
    return [(each.body["user"], each.body["sum"], each.body["last"]) for each in found]


def test_each_key_has_its_own_state_which_outlives_the_worker(bucket: Any) -> None:
    bucket.queue("spent").send_many([{"user": user, "amount": 1} for user in "aab"])
    work(bucket)
    bucket.queue("spent").send({"user": "a", "amount": 5})
    work(bucket)
    assert sums(bucket) == [("a", 1, False), ("a", 2, False), ("b", 1, False), ("a", 7, False)]


def test_a_message_that_is_handled_again_counts_once_and_brings_the_same(bucket: Any) -> None:
    bucket.queue("spent").send({"user": "a", "amount": 3})
    (delivery,) = bucket.queue("spent").receive(1)
    for _ in range(2):
        TOTALS.watcher(bucket)(delivery)
    delivery.ack()
    bucket.queue("spent").send({"user": "a", "amount": 1})
    work(bucket)
    assert sums(bucket) == [("a", 3, False), ("a", 3, False), ("a", 4, False)]


class Mortal:
    """A bucket of a process that dies before its next write after so many."""

    def __init__(self, bucket: Any, writes: int) -> None:
        self.api = bucket.api
        self._run = bucket.run
        self._left = writes

    def run(self, procedure: Procedure[Any]) -> Any:
        return self._run(self._counted(procedure))

    def _counted(self, procedure: Procedure[Any]) -> Procedure[Any]:
        answer = None
        while True:
            try:
                request = procedure.send(answer)
            except StopIteration as done:
                return done.value
            if isinstance(request, Create | Replace):
                if self._left == 0:
                    raise KeyboardInterrupt
                self._left -= 1
            answer = yield request


@pytest.mark.parametrize("writes", range(4))
def test_whenever_a_worker_dies_every_message_counts_once_and_none_is_lost(bucket: Any, writes: int) -> None:
    bucket.queue("spent").send({"user": "a", "amount": 3})
    bucket.queue("sums").settings()
    (delivery,) = bucket.queue("spent").receive(1)
    other = bucketmq.connect(bucket.api.where)
    try:
        TOTALS.watcher(Mortal(other, writes))(delivery)
    except KeyboardInterrupt:
        TOTALS.watcher(bucket)(delivery)
    bucket.queue("spent").send({"user": "a", "amount": 1})
    delivery.ack()
    work(bucket)
    told = sums(bucket)
    assert set(told) == {("a", 3, False), ("a", 4, False)}
    assert told[-1] == ("a", 4, False)


def test_a_row_that_fails_is_buried_and_what_is_kept_stays(bucket: Any) -> None:
    bucket.queue("spent").send_many([{"user": "a", "amount": 1}, {"user": "poison", "amount": 1}, {"amount": 1}])
    work(bucket)
    reasons = [each.reason for each in bucket.queue("spent").dead_letters.peek()]
    assert reasons == ["stage total: ValueError: poison", "stage total: Invalid: the key is null"]
    assert sums(bucket) == [("a", 1, False)]


@pytest.mark.parametrize("restarted", [False, True])
def test_a_key_that_nobody_came_for_times_out_once_and_begins_anew(bucket: Any, restarted: bool) -> None:
    kept = Keyed("user", "sum bigint, count bigint", timeout_seconds=0.001)
    soon = msgspec.structs.replace(TOTAL, keyed=kept)
    pipeline = Pipeline(name="totals", source=TOTALS.source, stages=(soon,), target=TOTALS.target)
    queue = bucket.queue("spent")
    handle = pipeline.watcher(bucket)
    for user, amount in (("a", 1), ("b", 2), ("a", 4)):
        queue.send({"user": user, "amount": amount})
        (delivery,) = queue.receive(1)
        (pipeline.watcher(bucket) if restarted else handle)(delivery)
        delivery.ack()
    told = sums(bucket)
    assert [each for each in told if not each[2]] == [("a", 1, False), ("b", 2, False), ("a", 4, False)]
    assert sorted(each for each in told if each[2]) == [("a", 1, True), ("b", 2, True)]


def test_a_timeout_that_fails_is_no_fault_of_the_messages_that_come(bucket: Any) -> None:
    def broken(key: str, rows: Any, state: dict[str, Any] | None) -> Any:
        if not rows.num_rows:
            raise ValueError(f"no farewell for {key}")
        return {"user": [key], "sum": [1], "last": [False]}, {"sum": 1, "count": 1}

    kept = Keyed("user", "sum bigint, count bigint", timeout_seconds=0.001)
    stages = (msgspec.structs.replace(TOTAL, function=broken, keyed=kept),)
    pipeline = Pipeline(name="totals", source=TOTALS.source, stages=stages, target=TOTALS.target)
    queue = bucket.queue("spent")
    handle = pipeline.watcher(bucket)
    for user in "abcd":
        queue.send({"user": user, "amount": 1})
        (delivery,) = queue.receive(1)
        assert isinstance(handle(delivery), Done)
        delivery.ack()
    assert [user for user, _, _ in sums(bucket)] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("kind", "value"), [("string", "é"), ("binary", b"\xff\x00"), ("double", 1.5), ("boolean", True)]
)
def test_a_key_is_the_same_value_when_it_times_out(kind: str, value: Any) -> None:
    keeps = stage(takes=f"k {kind}", gives="n int", key="k", state="n int", name="keeps")(total)
    batch = pa.RecordBatch.from_pylist([{"k": value}], schema=arrow_schema(f"k {kind}"))
    ((text, given, _),) = groups_of(keeps, batch)
    assert keeps.keyed is not None
    assert keeps.keyed.value(text, keeps.takes) == given == value


class Window(msgspec.Struct):
    names: list[str] = []


class Seen(msgspec.Struct):
    user: str
    others: int


class Spent(msgspec.Struct):
    user: str
    amount: int


def test_models_are_rows_and_state_alike(bucket: Any) -> None:
    @stage(takes=Spent, gives=Seen, key="user", state=Window)
    def seen(key: str, rows: list[Spent], state: Window | None) -> tuple[list[Seen], Window]:
        window = Window([*(state or Window()).names, *(str(row.amount) for row in rows)])
        return [Seen(key, len(window.names))], window

    bucket.queue("spent").send_many([{"user": "a", "amount": n} for n in range(3)])
    work(bucket, Pipeline(name="seen", source=TOTALS.source, stages=(seen,), target=TOTALS.target))
    assert [each.body["others"] for each in bucket.queue("sums").receive(9)] == [1, 2, 3]


def test_a_stage_with_a_key_may_add_columns_and_use_something(bucket: Any) -> None:
    @stage(takes="user string", adds="nth bigint", key="user", state="n bigint", uses=lambda: 100)
    def numbered(key: str, rows: Any, state: Any, start: int) -> Any:
        n = (state or {"n": start})["n"]
        return {"nth": range(n, n + rows.num_rows)}, {"n": n + rows.num_rows}

    bucket.queue("spent").send_many([{"user": "a", "amount": n} for n in range(3)])
    work(bucket, Pipeline(name="nth", source=TOTALS.source, stages=(numbered,), target=TOTALS.target))
    found = [(each.body["amount"], each.body["nth"]) for each in bucket.queue("sums").receive(9)]
    assert found == [(0, 100), (1, 101), (2, 102)]


@pytest.mark.parametrize("state", [{"sum": "text"}, {"other": 1}, 7])
def test_a_state_that_was_not_declared_is_wrong_whatever_the_rows_are(bucket: Any, state: Any) -> None:
    odd = stage(takes=SPENT, gives="user string", key="user", state="sum bigint", name="odd")(
        lambda key, rows, before: ({"user": [key]}, state)
    )
    with pytest.raises(Misshapen, match="the state that stage 'odd' returned"):
        odd.step("a", pa.RecordBatch.from_pylist([{"user": "a", "amount": 1}], schema=arrow_schema(SPENT)), None)


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"key": "user"}, "key= and state= go together"),
        ({"key": "other", "state": "n int"}, "must be one of the columns it takes"),
        ({"key": "user", "state": "n int", "timeout_seconds": 0}, "must be more than 0"),
    ],
)
def test_a_key_without_state_is_told_when_the_stage_is_made(options: Any, complaint: str) -> None:
    with pytest.raises(bucketmq.Invalid, match=complaint):
        stage(takes=SPENT, gives="user string", name="s", **options)(total)


def test_one_stage_of_a_pipeline_keeps_state_and_none_outside_of_one() -> None:
    again = stage(takes="user string", gives="user string", key="user", state="n int", name="again")(total)
    with pytest.raises(bucketmq.Invalid, match="several stages with a key"):
        Pipeline(name="p", source=TOTALS.source, stages=(TOTAL, again), target=TOTALS.target)
    with pytest.raises(bucketmq.Invalid, match="keeps state; run it in a pipeline"):
        Chain([TOTAL]).run(pa.RecordBatch.from_pylist([{"user": "a", "amount": 1}], schema=arrow_schema(SPENT)))


def test_a_message_of_a_key_costs_one_read_and_one_write_of_its_register(bucket: Any) -> None:
    queue = bucket.queue("spent")
    handle = TOTALS.watcher(bucket)
    for _ in range(2):
        queue.send({"user": "a", "amount": 1})
        (delivery,) = queue.receive(1)
        before = msgspec.structs.asdict(bucket.requests)
        handle(delivery)
        after = msgspec.structs.asdict(bucket.requests)
        delivery.ack(wait=True)
    counts = {kind: after[kind] - before[kind] for kind in ("get", "look", "list", "create", "replace", "delete")}
    assert {kind: count for kind, count in counts.items() if count} == {"get": 1, "replace": 1, "create": 1}, (
        "the register, and the message that comes of it"
    )
