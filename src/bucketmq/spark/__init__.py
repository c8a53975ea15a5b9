"""Queues as Spark DataFrames: a data source and sink in Python, without a jar. The public names.

```python
spark = bucketmq.spark.session()                                    # or any session of yours, and then
bucketmq.spark.register(spark)
spark.readStream.format("bucketmq").option("path", "s3://inbox").option("queue", "jobs").load()
bucketmq.spark.start(pipeline, "s3://inbox", spark, checkpoint="checkpoints/pipeline")
```

Spark finds the source by its name, too, without `register`: see the module `pyspark_bucketmq`. Importing this package
does not import PySpark. Options and capabilities: `bucketmq.spark.source.BucketMQSource`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bucketmq.spark.running.draining import drain
    from bucketmq.spark.running.run import start
    from bucketmq.spark.setup.session import session
    from bucketmq.spark.source import register

_HOMES = {"drain": "running.draining", "register": "source", "session": "setup.session", "start": "running.run"}
"""Where the names live. A module is imported when its name is used: not every process that Spark starts needs it."""

if not TYPE_CHECKING:  # a type checker that saw this would take any name for one of ours

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name in _HOMES:
            return getattr(import_module(f"bucketmq.spark.{_HOMES[name]}"), name)
        raise AttributeError(f"module 'bucketmq.spark' has no attribute {name!r}")


__all__ = ["drain", "register", "session", "start"]
