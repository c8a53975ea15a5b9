"""History as tables: every message of a queue once, from log and archive, with what became of it.

```python
bucketmq.history(spark, "s3://inbox", "jobs").where("outcomes['main'] = 'dead'").show()
```

How it is made is `bucketmq.spark.history.view`, which is imported when it is used: this module needs no PySpark.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def history(
    spark: SparkSession,
    bucket_url: str,
    queue: str,
    *,
    options: Mapping[str, str] | None = None,
    strict: bool = True,
) -> DataFrame:
    """The messages of a queue, each once, with what became of them. Reads nothing before the DataFrame is used.

    Columns: those of the source; `to`, the one subscription it is for, if so; `died`, of a dead letter; `outcomes`, for
    each subscription `done`, `dead` or `expired`, or what it is now (`ready`, `in flight`, `delayed`, `moving`);
    `attempts`
    where known; `deaths`, how it ended in the dead letters; `place`, whether it was read from the `log` or the
    `archive`; and of events `deliveries`, what the journal says about them.

    What it tells is as of its first use; make another for news. An outcome in the archive is what it was when archived.
    What was lost, and is not below the trim mark, fails the query, unless `strict` is false. Every use reads the whole
    queue on the executors; `options` are those of the store.
    """
    from bucketmq.spark.history.view import View

    return View(spark, bucket_url, dict(options or {}), strict=strict).history(queue)
