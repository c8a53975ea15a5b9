"""Pipelines: stages of plain functions between a source and a target. The public names; none of them needs PySpark.

```python
from bucketmq.pipeline import FromQueue, Pipeline, ToQueue, stage
```

Running one without Spark is `Pipeline.watcher`, on Spark `bucketmq.spark.start`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bucketmq.pipeline.ends import FromEvents, FromQueue, FromTable, ToObjects, ToQueue, ToTable
    from bucketmq.pipeline.fitting import Misshapen
    from bucketmq.pipeline.pipeline import Pipeline
    from bucketmq.pipeline.results import Later, Outcomes
    from bucketmq.pipeline.sets import FromSets
    from bucketmq.pipeline.stages import Stage, stage
    from bucketmq.pipeline.upserts import ToUpserts

_HOMES = {
    "ends": ("FromEvents", "FromQueue", "FromTable", "ToObjects", "ToQueue", "ToTable"),
    "pipeline": ("Pipeline",),
    "fitting": ("Misshapen",),
    "results": ("Later", "Outcomes"),
    "sets": ("FromSets",),
    "stages": ("Stage", "stage"),
    "upserts": ("ToUpserts",),
}
"""Where the names live. A module is imported when a name of it is used: most processes of Spark need few of them."""

if not TYPE_CHECKING:  # a type checker that saw this would take any name for one of ours

    def __getattr__(name: str) -> object:
        from importlib import import_module

        for home, names in _HOMES.items():
            if name in names:
                return getattr(import_module(f"bucketmq.pipeline.{home}"), name)
        raise AttributeError(f"module 'bucketmq.pipeline' has no attribute {name!r}")


__all__ = [
    "FromEvents",
    "FromQueue",
    "FromSets",
    "FromTable",
    "Later",
    "Misshapen",
    "Outcomes",
    "Pipeline",
    "Stage",
    "ToObjects",
    "ToQueue",
    "ToTable",
    "ToUpserts",
    "stage",
]
