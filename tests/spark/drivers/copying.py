"""A driver that copies a queue, `jobs` to `copy`, and in which things go wrong: run by tests, as a program.

Imports nothing from the tests: on a cluster only what was shipped is there.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from pathlib import Path

import bucketmq
from bucketmq.spark.setup.session import session
from bucketmq.spark.write.parts import BATCH_ID

WAIT_SECONDS_MAX = 60.0


def first_time(folder: str, name: str) -> bool:
    """True for whoever asks first, on whichever executor."""
    try:
        os.close(os.open(f"{folder}/{name}", os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def kill_executor() -> None:
    """The JVM that this Python worker works for: its parent's parent."""
    daemon = os.getppid()
    status = Path(f"/proc/{daemon}/status").read_text().splitlines()
    (jvm,) = [int(line.split()[1]) for line in status if line.startswith("PPid:")]
    assert Path(f"/proc/{jvm}/comm").read_text().strip() == "java"
    os.kill(jvm, signal.SIGKILL)
    os._exit(1)  # what a task does after its executor died is of no consequence


def troubled(folder: str, faults: tuple[str, ...]):  # type: ignore[no-untyped-def]
    """A function over Arrow batches that hands rows on as they are, and breaks what it is told to break, each once."""

    def hand_on(batches):  # type: ignore[no-untyped-def]
        from pyspark import TaskContext

        import bucketmq

        context = TaskContext.get()
        where = Path(folder, f"came-from-{os.getpid()}")
        where.write_text(bucketmq.__file__)
        for number, batch in enumerate(batches):
            yield batch
            if number or not context or context.partitionId() != 0:
                continue
            if "executor" in faults and first_time(folder, "executor-killed"):
                kill_executor()
            if "speculation" in faults:
                Path(folder, f"attempt-{context.attemptNumber()}").touch()
                until = time.monotonic() + WAIT_SECONDS_MAX
                while len(list(Path(folder).glob("attempt-*"))) < 2:  # until a second attempt overtakes this one
                    assert time.monotonic() < until, "no second attempt was started"
                    time.sleep(0.05)
            if (
                "driver" in faults
                and int(context.getLocalProperty(BATCH_ID)) > 0
                and first_time(folder, "driver-killed")
            ):
                os.kill(int(Path(folder, "driver.pid").read_text()), signal.SIGKILL)

    return hand_on


def copy(spark, url: str, checkpoint: str, folder: str, faults: tuple[str, ...]):  # type: ignore[no-untyped-def]
    jobs = spark.readStream.format("bucketmq").option("path", url).option("queue", "jobs")
    jobs = jobs.option("minPartitions", 2).option("maxRowsPerTrigger", 2000).load()
    rows = jobs.mapInArrow(troubled(folder, faults), jobs.schema)
    query = (
        rows.writeStream.format("bucketmq")
        .option("path", url)
        .option("queue", "copy")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return [progress.numInputRows for progress in query.recentProgress if progress.numInputRows]


def main() -> None:
    given = json.loads(sys.argv[1])
    folder = given["folder"]
    spark = session(given.get("master"), given.get("conf", {}), name="copying")
    bucketmq.spark.register(spark)
    jvm = spark._jvm.java.lang.ProcessHandle.current().pid()
    Path(folder, "driver.pid").write_text(str(jvm))
    result = {"driver": bucketmq.__file__, "master": spark.sparkContext.master, "batches": {}}
    for name, faults in given["runs"].items():
        result["batches"][name] = copy(spark, given["url"], given["checkpoint"], folder, tuple(faults))
    result["executors"] = sorted({path.read_text() for path in Path(folder).glob("came-from-*")})
    Path("result.json").write_text(json.dumps(result))
    with contextlib.suppress(Exception):
        spark.stop()


if __name__ == "__main__":
    main()
