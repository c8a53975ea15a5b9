"""Sessions: settings by where they run, what is there is taken, and a JVM that does not start is explained."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import bucketmq
from bucketmq.spark import register
from bucketmq.spark.running.failure import explained
from bucketmq.spark.setup import session as sessions
from bucketmq.spark.setup.session import is_local, local_settings, log_file, session


@pytest.mark.parametrize(
    ("master", "local"),
    [
        ("local", True),
        ("local[*,4]", True),
        ("local-cluster[2,1,1024]", True),
        ("localhost", False),
        ("spark://local:7077", False),
        ("yarn", False),
        ("k8s://https://host", False),
    ],
)
def test_which_masters_are_this_machine(master: str, local: bool) -> None:
    assert is_local(master) is local


def test_a_laptop_gives_the_jvm_some_of_its_memory() -> None:
    memory = int(local_settings()["spark.driver.memory"].removesuffix("m"))
    assert 1024 <= memory <= 4096


def test_rows_go_through_sockets_in_a_folder_that_is_closed_to_others_and_gone_afterwards(tmp_path: Path) -> None:
    code = (
        "import os, stat; from bucketmq.spark.setup.session import local_settings\n"
        "folder = local_settings()['spark.python.unix.domain.socket.dir']\n"
        "print(folder, oct(stat.S_IMODE(os.stat(folder).st_mode)))"
    )

    def settings(temporary: Path) -> str:
        run = subprocess.run(
            [sys.executable, "-c", code],
            env={**os.environ, "TMPDIR": str(temporary)},
            capture_output=True,
            text=True,
            check=False,
        )
        return run.stdout or run.stderr

    short = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        folder, mode = settings(short).split()
    finally:
        shutil.rmtree(short)
    assert (Path(folder).parent, mode) == (short, "0o700")
    assert not Path(folder).exists()
    long = tmp_path / ("x" * 80)
    long.mkdir()
    assert "KeyError" in settings(long)
    assert not list(long.iterdir())


def test_a_session_that_is_there_is_taken_as_it_is(spark: Any) -> None:
    memory = spark.conf.get("spark.driver.memory")
    assert session(conf={"spark.sql.shuffle.partitions": "3"}) is spark
    assert spark.conf.get("spark.sql.shuffle.partitions") == "3"
    assert spark.conf.get("spark.driver.memory") == memory
    assert session("local[2,4]", {"spark.sql.shuffle.partitions": "2"}) is spark
    with pytest.raises(bucketmq.Invalid, match=r"already on local\[2,4\], so its master cannot be local\[1\]"):
        session("local[1]")


def test_under_spark_submit_the_master_is_not_ours_to_choose(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import SparkContext

    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setenv(sessions.SUBMITTED, "1234")
    with pytest.raises(bucketmq.Invalid, match="spark-submit started this program, so its master cannot be yarn"):
        session("yarn")


def test_a_connect_server_that_is_not_there_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import SparkContext

    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr("urllib.request.getproxies", dict)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))  # and nobody listens
        port = free.getsockname()[1]
        with pytest.raises(bucketmq.Unavailable, match=f"no Spark Connect server at 127.0.0.1:{port}"):
            session(f"sc://127.0.0.1:{port}/;user_id=rosa")
    for wrong in ("sc://", "sc://host:many", "sc://host:70000"):
        with pytest.raises(bucketmq.Invalid, match="is not an address of a Spark Connect server"):
            session(wrong)


OWN_SESSION = """
import sys
import bucketmq, bucketmq.spark
from pyspark.sql import SparkSession

url = sys.argv[1]
with bucketmq.connect(url) as bucket:
    bucket.queue("orders").send_many([1, 2, 3])
spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()
bucketmq.spark.register(spark)
options = {"path": url, "queue": "orders"}
print(spark.read.format("bucketmq").options(**options).load().count())
stream = spark.readStream.format("bucketmq").options(**options).load().writeStream.format("bucketmq")
stream = stream.options(path=url, queue="copies", checkpointLocation=url + "-checkpoint").trigger(availableNow=True)
stream.start().awaitTermination()
with bucketmq.connect(url) as bucket:
    print(bucket.queue("copies").stats().sent)
"""

OUR_SESSION = """
import sys
import bucketmq
from bucketmq.spark.setup.session import session

url = sys.argv[1]
with bucketmq.connect(url) as bucket:
    bucket.queue("orders").send_many([1, 2, 3])
print(session("local[1]").read.format("bucketmq").options(path=url, queue="orders").load().count())
"""


@pytest.mark.usefixtures("java_here")
@pytest.mark.long
@pytest.mark.timeout(200)  # a Spark session of its own
@pytest.mark.parametrize(
    ("program", "printed"), [(OWN_SESSION, "3\n3\n"), (OUR_SESSION, "3\n")], ids=["registered", "by its name"]
)
def test_a_program_works_though_the_python_of_its_environment_is_not_on_the_path(
    tmp_path: Path, program: str, printed: str
) -> None:
    bare = tmp_path / "bin"
    bare.mkdir()
    (bare / "python3").write_text("#!/bin/sh\necho 'this is not the Python of the program' >&2\nexit 3\n")
    (bare / "python3").chmod(0o755)
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("PYSPARK", "PYTHON", "SPARK"))}
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path / "inbox")],
        env={
            **kept,
            "PATH": f"{bare}:{os.environ['PATH']}",
            "SPARK_LOCAL_IP": "127.0.0.1",
            "XDG_STATE_HOME": str(tmp_path / "state"),
        },
        capture_output=True,
        text=True,
        timeout=150,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, printed), done.stderr[-3000:]


@pytest.fixture
def of_the_path(spark: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A session that was made by a program that says nothing about Python."""
    monkeypatch.delenv("PYSPARK_PYTHON")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", "python3")
    return spark


def test_a_session_of_this_machine_runs_the_python_of_its_program(of_the_path: Any) -> None:
    def which(batches: Any) -> Any:
        import pyarrow as pa

        yield from (pa.RecordBatch.from_pydict({"python": [sys.executable]}) for _ in batches)

    register(of_the_path)
    assert of_the_path.range(1).mapInArrow(which, "python string").collect()[0].python == sys.executable


@pytest.mark.parametrize("choice", ["variable", "setting"])
def test_a_python_that_was_chosen_stays(of_the_path: Any, monkeypatch: pytest.MonkeyPatch, choice: str) -> None:
    context = of_the_path.sparkContext
    if choice == "variable":
        monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    else:
        monkeypatch.setattr(context, "pythonExec", "/opt/other/python")
    before = context.pythonExec
    register(of_the_path)
    assert context.pythonExec == before


def test_on_a_cluster_the_python_is_not_ours_to_choose(
    of_the_path: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(of_the_path.sparkContext, "master", "spark://127.0.0.1:7077")
    monkeypatch.setenv("PATH", "/nowhere")
    register(of_the_path)
    assert of_the_path.sparkContext.pythonExec == "python3"
    assert "set PYSPARK_PYTHON" in caplog.text and sys.executable in caplog.text


@pytest.mark.parametrize(
    "said",
    [
        "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: bucketmq. Make sure the provider name is correct",
        "[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: Traceback (most recent call last):\n"
        "  File \"x.py\", line 1\nModuleNotFoundError: No module named 'bucketmq'\n SQLSTATE: 38000",
    ],
    ids=["no such source", "no such module"],
)
def test_a_python_without_bucketmq_is_told_with_the_cure(said: str) -> None:
    error = explained(RuntimeError(said))
    assert type(error) is bucketmq.Unsupported
    assert "set PYSPARK_PYTHON" in str(error)


def test_a_level_that_is_none_is_refused() -> None:
    with pytest.raises(bucketmq.Invalid, match="'loud' is not a level"):
        session(log_level="loud")


def test_names_of_log_files_stay_in_their_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert log_file("../../etc/x y").parent == tmp_path / "bucketmq" / "logs"


@pytest.mark.parametrize(
    ("log", "said"),
    [
        (
            "WARNING: x\nInvalid maximum heap size: -Xmxlots\nError: Could not create the Java Virtual Machine.\n"
            "Error: A fatal exception has occurred. Program will exit.",
            "Invalid maximum heap size: -Xmxlots",
        ),
        (
            'WARN y\nException in thread "main" org.apache.spark.SparkException: Master must be yarn\n\tat a.B(C)',
            "Master must be yarn",
        ),
        ("", "it said nothing"),
    ],
    ids=["Java's words", "an exception", "nothing"],
)
def test_the_last_words_of_a_jvm_are_those_that_say_why(tmp_path: Path, log: str, said: str) -> None:
    (tmp_path / "log").write_text(log)
    assert sessions._last_words(tmp_path / "log") == said


def test_a_master_that_does_not_answer_is_told_as_that(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import SparkContext

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(SparkContext, "_gateway", object())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))  # a session on a cluster changes it

    def stopped(*_: object, **__: object) -> None:
        log_file("x").write_text(
            "11:00 ERROR Backend: Application has been killed. Reason: All masters are unresponsive!"
        )
        raise RuntimeError("Cannot call methods on a stopped SparkContext.\nThis stopped SparkContext was created at:")

    monkeypatch.setattr(SparkContext, "__init__", stopped)
    with pytest.raises(bucketmq.Unavailable, match=r"on spark://127\.0\.0\.1:1: All masters are unresponsive!"):
        session("spark://127.0.0.1:1", name="x")


def test_a_jvm_that_does_not_start_is_told_with_its_last_words(tmp_path: Path) -> None:
    fake = tmp_path / "home" / "bin" / "java"
    fake.parent.mkdir(parents=True)
    fake.write_text(
        "#!/bin/sh\n"
        'if [ "$1" = -version ]; then echo \'openjdk version "17.0.1"\' >&2; exit 0; fi\n'
        "echo 'Could not reserve enough space' >&2\nexit 1\n"
    )
    fake.chmod(0o755)
    code = "from bucketmq.spark.setup.session import session; session(name='try')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "JAVA_HOME": str(tmp_path / "home"), "XDG_STATE_HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    last = done.stderr.splitlines()[-1]
    assert "bucketmq.errors.Unsupported: Spark's JVM did not start: Could not reserve enough space" in last
    assert str(tmp_path / "bucketmq" / "logs" / "try.log") in last
    assert done.stdout == ""


def test_a_failure_inside_spark_comes_out_as_it_went_in(spark: Any) -> None:
    def fail(batches: Any) -> Any:
        for batch in batches:
            raise bucketmq.NotFound("there is no queue 'x';\nmake it first")
            yield batch

    with pytest.raises(Exception) as caught:
        spark.range(1).mapInArrow(fail, "id bigint").collect()
    error = explained(caught.value)
    assert type(error) is bucketmq.NotFound
    assert str(error) == "there is no queue 'x';\nmake it first"


def test_a_failure_of_others_is_told_by_its_kind_and_words(spark: Any) -> None:
    def fail(batches: Any) -> Any:
        yield from batches
        raise ZeroDivisionError("division by zero")

    with pytest.raises(Exception) as caught:
        spark.range(1).mapInArrow(fail, "id bigint").collect()
    assert str(explained(caught.value)) == "ZeroDivisionError: division by zero"
    with pytest.raises(Exception) as caught:
        spark.read.parquet("/nothing/here")
    assert "PATH_NOT_FOUND" in str(explained(caught.value)) and "\tat " not in str(explained(caught.value))
