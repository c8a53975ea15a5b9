"""A driver that speaks to Spark through Connect alone: reads, writes and streams. Run by a test, as a program."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from pyspark.sql import SparkSession

from bucketmq.pipeline import FromQueue, Pipeline, ToQueue
from bucketmq.spark.running.progress import Figures, Stop, attend
from bucketmq.spark.running.run import start


def main() -> None:
    url, folder = sys.argv[1:]
    builder = SparkSession.builder.remote("local[2]").config("spark.ui.enabled", "false")
    spark = builder.config("spark.sql.session.timeZone", "UTC").config("spark.driver.memory", "1g").getOrCreate()
    result: dict[str, object] = {"session": type(spark).__module__}

    def named(made, queue: str):  # type: ignore[no-untyped-def]
        # The source is found by its name: nothing is registered here.
        return made.format("bucketmq").option("path", url).option("queue", queue)

    jobs = named(spark.read, "jobs").load()
    result["read"] = [row.body for row in jobs.orderBy("offset").select("body").collect()]
    rows = spark.range(5).selectExpr("struct(id as n) as body")
    for _ in range(2):
        named(rows.write, "written").option("txn", "once").mode("append").save()
    stream = named(spark.readStream, "jobs").option("maxRowsPerTrigger", 4).load()
    writer = named(stream.writeStream, "copy").option("checkpointLocation", f"{folder}/cp").trigger(availableNow=True)
    writer.start().awaitTermination()
    told: list[Figures] = []
    pipeline = Pipeline(name="piped", source=FromQueue("jobs"), target=ToQueue(queue="piped", body="body"))
    attend(start(pipeline, url, spark, checkpoint=f"{folder}/cp2", once=True), Stop(), told.append)
    result["told"] = [[each.rows, each.lag] for each in told]
    Path("result.json").write_text(json.dumps(result))
    spark.stop()


if __name__ == "__main__":
    main()
