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

FORMAT = "bucketmq"


def register(spark: SparkSession) -> None:
    """Make `format("bucketmq")` known to a session. Doing it again does no harm."""
    from bucketmq.spark.source import BucketMQSource

    spark.dataSource.register(BucketMQSource)


__all__ = ["FORMAT", "register"]
