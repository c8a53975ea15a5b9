"""Spark's way to find a data source by its name.

Spark imports every module named `pyspark_*` when it meets a format that it does not know, and registers its
`DefaultSource`. So `format("bucketmq")` works without a line of code, through Spark Connect and in pipelines as well.
"""

from bucketmq.spark.source import BucketMQSource as DefaultSource

__all__ = ["DefaultSource"]
