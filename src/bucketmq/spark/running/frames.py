"""A stage of a DataFrame between two flows: Spark hands over each micro-batch, and the user's function describes what
is done with its rows.

The rows are kept while both halves are worked out, so that no stage runs twice. Those that failed pass by.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql.functions import col, lit

from bucketmq.pipeline.chain import Chain, Ran
from bucketmq.pipeline.columns import arrow_schema, column_names, quoted
from bucketmq.pipeline.dead import DEAD
from bucketmq.pipeline.fitting import Misshapen, fit
from bucketmq.pipeline.intake import Taken
from bucketmq.spark.running.flow import Flow
from bucketmq.spark.running.keyed import After, divide

if TYPE_CHECKING:
    import pyarrow as pa

    from bucketmq.pipeline.pipeline import Pipeline
    from bucketmq.spark.options import Place


class BeforeFrame(Flow):
    """The stages before the one of a DataFrame."""

    def __init__(self, pipeline: Pipeline, place: Place) -> None:
        super().__init__(pipeline, place)
        at = divide(self._chain.stages)
        columns = pipeline.source.columns
        for each in self._chain.stages[:at]:
            columns = each.after(columns)
        self._chain = Chain(self._chain.stages[:at])
        self._tells_causes = False
        self.gives = f"{columns}, {DEAD} string"

    def _living(self, raw: pa.RecordBatch, taken: Taken, ran: Ran) -> Iterator[pa.RecordBatch]:
        for passed in ran.passed:
            yield self._beside(passed.batch, ())


class AfterFrame(After):
    """The stages behind it, and the target's shape."""

    def __init__(self, pipeline: Pipeline, place: Place) -> None:
        super().__init__(pipeline, place)
        self._takes = pipeline.stages[divide(pipeline.stages)].gives

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self._settle_in()
        for batch in batches:
            if batch.num_rows:
                rows = fit(batch, arrow_schema(self._takes), "what the stage of a DataFrame gives")
                yield from self.ran(rows, [None] * rows.num_rows)


class Framed:
    """What Spark calls with every batch: the rows that passed go through the DataFrame, then all of them to `write`."""

    def __init__(self, pipeline: Pipeline, place: Place, write: Callable[[DataFrame, int], None]) -> None:
        self._stage = pipeline.stages[divide(pipeline.stages)]
        self._after = AfterFrame(pipeline, place)
        self._write = write

    def __call__(self, rows: DataFrame, batch: int) -> None:
        rows = rows.persist()
        try:
            made = self._made(rows.where(col(DEAD).isNull()).select(*_columns(self._stage.takes)))
            shaped = made.mapInArrow(self._after, self._after.gives)
            failed = rows.where(col(DEAD).isNotNull()).select(
                *(
                    (col(DEAD) if field.name == DEAD else lit(None).cast(field.dataType)).alias(field.name)
                    for field in shaped.schema.fields
                )
            )
            self._write(shaped.unionByName(failed), batch)
        finally:
            rows.unpersist()

    def _made(self, rows: DataFrame) -> DataFrame:
        """What the function makes of the rows; `Misshapen` if it lacks something that it declares."""
        made: Any = self._stage.function(rows)
        what = f"what stage {self._stage.name!r} gives"
        if not hasattr(made, "mapInArrow"):
            raise Misshapen(f"{what} is {type(made).__name__}; it should be a DataFrame of Spark")
        missing = [name for name in column_names(self._stage.gives) if name not in made.columns]
        if missing:
            raise Misshapen(f"{what} lacks column {missing[0]!r}; there are {', '.join(made.columns)}")
        chosen: DataFrame = made.select(*_columns(self._stage.gives))
        return chosen


def _columns(columns: str) -> list[str]:
    return [quoted(name) for name in column_names(columns)]
