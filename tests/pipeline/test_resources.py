"""Resources: made once, shared, closed, never pickled; and what cannot be made holds nothing against a row."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("pyarrow")

import pyarrow as pa

import bucketmq
from bucketmq.pipeline import FromQueue, Pipeline, ToQueue, stage
from bucketmq.pipeline.chain import Chain
from bucketmq.pipeline.resources import Resources, of_process, resources_of


class Model:
    """Counts how often it was made and closed."""

    made: int = 0
    closed: int = 0

    def __init__(self) -> None:
        type(self).made += 1

    def close(self) -> None:
        type(self).closed += 1


class Loads(msgspec.Struct, frozen=True):
    """How a model is made, as a value."""

    size: int

    def __call__(self) -> list[int]:
        return [self.size]


@pytest.fixture(autouse=True)
def counts() -> None:
    of_process().close()
    Model.made = Model.closed = 0


def counted(batch: Any, model: Model) -> dict[str, Any]:
    return {"made": [model.made] * batch.num_rows}


def rows(count: int = 2) -> Any:
    return pa.RecordBatch.from_pydict({"n": range(count)})


TALLY = stage(takes="n bigint", adds="made bigint", uses=Model, name="tally")(counted)
SOURCE, TARGET = FromQueue("numbers", "n bigint"), ToQueue(queue="out")


def test_a_resource_is_made_once_for_all_stages_that_use_the_same_callable() -> None:
    others = {"model": Model}
    again = stage(takes="n bigint", adds="again bigint", uses=others, name="again")(
        lambda batch, model: {"again": [model.made] * batch.num_rows}
    )
    with bucketmq.connect("memory://") as bucket:
        Pipeline(name="p", source=SOURCE, stages=(TALLY, again), target=TARGET).watcher(bucket)
        ran = Chain([TALLY, again]).run(rows())
        assert ran.batches[0].to_pylist()[0] == {"n": 0, "made": 1, "again": 1}
        assert (Model.made, Model.closed) == (1, 0)
    assert (Model.made, Model.closed) == (1, 1)


def test_a_resource_is_closed_with_the_last_bucket_whose_watchers_use_it() -> None:
    pipeline = Pipeline(name="p", source=SOURCE, stages=(TALLY,), target=TARGET)
    first, second = bucketmq.connect("memory://"), bucketmq.connect("memory://")
    for bucket in (first, second):
        bucket.queue("numbers").send({"n": 1})
        bucket.queue("numbers").run(pipeline.watcher(bucket), stop_when_empty=True, signals=False)
    first.close()
    assert (Model.made, Model.closed) == (1, 0)
    second.close()
    assert (Model.made, Model.closed) == (1, 1)


def test_many_threads_get_the_same_one() -> None:
    resources, got = Resources(), []
    threads = [threading.Thread(target=lambda: got.append(resources.lend("s", TALLY.uses)["model"])) for _ in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({id(each) for each in got}) == 1
    assert Model.made == 1
    resources.close()
    resources.close()
    assert Model.closed == 1


def test_a_context_manager_is_entered_and_left() -> None:
    told = []

    @contextmanager
    def connection() -> Iterator[str]:
        told.append("in")
        yield "handed"
        told.append("out")

    resources = Resources()
    (used,) = resources_of("s", connection, lambda batch, c: None)
    assert resources.lend("s", [used]) == {"c": "handed"}
    resources.close()
    assert told == ["in", "out"]


def test_only_the_way_to_make_it_travels() -> None:
    TALLY.run(rows())
    before = Model.made
    stages = [TALLY, stage(takes="n bigint", adds="size array<bigint>", uses=Loads(3))(sized)]
    for travelled in pickle.loads(pickle.dumps(stages)):
        travelled.run(rows())
    assert Model.made == before, "what came back uses what is there already"


def sized(batch: Any, model: list[int]) -> dict[str, Any]:
    return {"size": [model] * batch.num_rows}


def test_a_function_inside_a_function_is_told_from_others_wherever_it_goes() -> None:
    make = partial(Loads(1))
    (one,), (same,), (other,) = (
        resources_of("s", each, lambda batch, model: None) for each in (make, make, partial(Loads(1)))
    )
    assert one.key == same.key != other.key


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (RuntimeError("no such file: model.onnx"), bucketmq.Unsupported),
        (bucketmq.Unavailable("not now"), bucketmq.Unavailable),
        (bucketmq.Invalid("no key"), bucketmq.Unsupported),
    ],
)
def test_a_resource_that_cannot_be_made_says_which_and_whose_and_no_row_is_touched(
    error: Exception, kind: type[bucketmq.BucketMQError]
) -> None:
    def broken() -> Any:
        raise error

    made = stage(takes="n bigint", adds="made bigint", uses=broken, name="tally")(counted)
    with pytest.raises(kind, match=r"stage 'tally' cannot load 'model' \(.*broken\): .*; no row was touched"):
        Chain([made]).run(rows())
    pipeline = Pipeline(name="p", source=SOURCE, stages=(made,), target=TARGET)
    with bucketmq.connect("memory://") as bucket:
        bucket.queue("numbers").send({"n": 1})
        with pytest.raises(kind, match="cannot load 'model'"):
            bucket.queue("numbers").run(pipeline.watcher(bucket), stop_when_empty=True, signals=False)
        assert bucket.queue("numbers").dead_letters.peek() == []
        assert len(bucket.queue("numbers").receive(10)) == 1


@pytest.mark.parametrize(
    ("uses", "function", "complaint"),
    [
        (Model, lambda batch: batch, "its function takes the rows alone"),
        ({"model": Model}, lambda batch, client: batch, "no parameter of that name"),
        ({"client": "http://model"}, lambda batch, client: batch, "must be a class or function that makes it"),
    ],
)
def test_what_a_function_cannot_be_handed_is_told_when_the_stage_is_made(
    uses: Any, function: Any, complaint: str
) -> None:
    with pytest.raises(bucketmq.Invalid, match=complaint):
        stage(takes="n bigint", adds="m bigint", uses=uses, name="s")(function)


ENDS = """
import os, signal, sys
from pathlib import Path
from bucketmq.pipeline.resources import of_process, resources_of
from bucketmq.spark.worker import close_before_exit

class Noted:
    def close(self): Path(sys.argv[1]).write_text("closed")

of_process().lend("s", resources_of("s", Noted, lambda batch, noted: None))
if sys.argv[2] != "end":
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # a run without a terminal may have it ignored, and hands that on
    close_before_exit()
    os._exit(0) if sys.argv[2] == "exit" else os.kill(os.getpid(), int(sys.argv[2]))
"""


@pytest.mark.parametrize("how", ["end", "exit", str(int(signal.SIGHUP)), str(int(signal.SIGTERM))])
def test_a_resource_is_closed_however_its_process_ends(tmp_path: Path, how: str) -> None:
    if how != "end":
        pytest.importorskip("pyspark")
    noted = tmp_path / "noted"
    code = subprocess.run([sys.executable, "-c", ENDS, str(noted), how], check=False, env=os.environ).returncode
    assert noted.read_text() == "closed"
    assert code == (0 if how in ("end", "exit") else 128 + int(how))
