"""Queues as Spark DataFrames: a data source and sink in Python, without a jar.

```python
bucketmq.spark.register(spark)
spark.readStream.format("bucketmq").option("path", "s3://inbox").option("queue", "jobs").load()
```

Spark finds the source by its name, too, without `register`: see the module `pyspark_bucketmq`. Importing this package
does not import PySpark. Options and capabilities: `bucketmq.spark.source.BucketMQSource`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bucketmq.spark.draining import drain

FORMAT = "bucketmq"


def register(spark: SparkSession) -> None:
    """Make `format("bucketmq")` known to a session. Doing it again does no harm."""
    from bucketmq.spark.source import BucketMQSource

    spark.dataSource.register(BucketMQSource)


if not TYPE_CHECKING:  # a type checker that saw this would take any name for one of ours

    def __getattr__(name: str) -> object:
        if name == "drain":  # imported when it is used: not every process that Spark starts needs it
            from bucketmq.spark.draining import drain

            return drain
        raise AttributeError(f"module 'bucketmq.spark' has no attribute {name!r}")


__all__ = ["FORMAT", "drain", "register"]
