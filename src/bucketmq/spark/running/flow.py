"""The flow of a pipeline on an executor: intake, chain, and the failed rows among the others. One `mapInArrow`.

What comes out has the columns of the targets' shape, the column `_dead` (see `pipeline.dead`) and, where events
become objects, `_cause`. Rows of one batch come out in their order, those that failed behind those that did not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.pipeline.chain import Chain, Failed, PutOff, Ran
from bucketmq.pipeline.columns import arrow_schema
from bucketmq.pipeline.dead import DEAD, Back, fallen_message, fallen_row, times_back
from bucketmq.pipeline.ends import FromEvents, FromTable, ToObjects
from bucketmq.pipeline.intake import Taken, intake_of
from bucketmq.pipeline.pipeline import Pipeline
from bucketmq.pipeline.shape import CAUSE
from bucketmq.pipeline.writing import Buckets, settled
from bucketmq.spark.opened import bucket_at
from bucketmq.spark.options import Place

if TYPE_CHECKING:
    import pyarrow as pa


class Flow:
    """A pipeline, ready to be run on batches of its source. Pickled by value; it opens the bucket where it runs."""

    def __init__(self, pipeline: Pipeline, place: Place) -> None:
        self._pipeline = pipeline
        self._place = place
        self._buckets = Buckets(pipeline.name, pipeline.outputs, partial(bucket_at, place))
        self._chain: Chain = pipeline.chain(self._buckets.check_keys)
        self._tells_causes = isinstance(pipeline.source, FromEvents) and any(
            isinstance(each, ToObjects) for each in pipeline.outputs
        )
        self.gives = f"{self._chain.stages[-1].gives}, {DEAD} string"
        if self._tells_causes:
            self.gives += f", {CAUSE} string"

    def __reduce__(self) -> Any:
        return type(self), (self._pipeline, self._place)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All batches of one task."""
        self._settle_in()
        intake = intake_of(self._pipeline.source, lambda: self._buckets.of(None), follows=self._pipeline.follows)
        for raw in batches:
            for taken in intake.take(raw):
                yield from self._run(raw, taken)

    def _settle_in(self) -> None:
        """To be done when a task begins."""
        from bucketmq.spark.worker import close_at_the_end, settle_in

        settle_in()
        if any(stage.uses for stage in self._chain.stages):
            close_at_the_end()
        self._buckets.open_all()

    def _run(self, raw: pa.RecordBatch, taken: Taken) -> Iterator[pa.RecordBatch]:
        ran = self._chain.run(taken.batch)
        yield from self._living(raw, taken, ran)
        lost: list[tuple[Failed, Back | None]] = []
        lost += [(msgspec.structs.replace(each, row=taken.rows[each.row]), None) for each in ran.failed]
        lost += [self._put_off(raw, msgspec.structs.replace(each, row=taken.rows[each.row])) for each in ran.put_off]
        lost += [(each, None) for each in taken.failed]
        if lost:
            yield self._fallen(raw, lost)

    def _put_off(self, raw: pa.RecordBatch, each: PutOff) -> tuple[Failed, Back | None]:
        """A row that comes back, if it may."""
        source = self._pipeline.source
        if isinstance(source, FromTable):
            return each.failed("rows of a table cannot come back"), None
        times = times_back(raw, each.row)
        if times >= each.later_max:
            return each.failed(f"given up after coming back {times} times"), None
        return each.failed("comes back"), Back(source.log, each.later.delay_seconds, times + 1)

    def _living(self, raw: pa.RecordBatch, taken: Taken, ran: Ran) -> Iterator[pa.RecordBatch]:
        """Rows that passed. `raw` is what they were made of."""
        for each in settled(self._pipeline.outputs, taken, ran):
            yield self._beside(each.batch, [msgspec.json.encode(cause).decode() for cause in each.causes])

    def _beside(self, batch: pa.RecordBatch, causes: Sequence[str | None]) -> pa.RecordBatch:
        """Rows that passed, with the columns that describe them."""
        import pyarrow as pa

        schema = arrow_schema(self.gives)
        columns = [*batch.columns, pa.nulls(batch.num_rows, pa.string())]
        if self._tells_causes:
            columns.append(pa.array(causes, pa.string()))
        nulls = (pa.nulls(batch.num_rows, field.type) for field in schema)
        columns = [null if pa.types.is_null(each.type) else each for each, null in zip(columns, nulls, strict=True)]
        return pa.RecordBatch.from_arrays(columns, schema=schema)

    def _fallen(self, raw: pa.RecordBatch, lost: Sequence[tuple[Failed, Back | None]]) -> pa.RecordBatch:
        return self._dead([self._buried(raw, failed, back) for failed, back in lost])

    def _buried(self, raw: pa.RecordBatch, failed: Failed, back: Back | None = None) -> str:
        """A row that failed, or comes back, as text."""
        if isinstance(self._pipeline.source, FromTable):
            return fallen_row(raw, self._pipeline.name, failed)
        return fallen_message(raw, self._pipeline.name, failed, back)

    def _dead(self, texts: Sequence[str]) -> pa.RecordBatch:
        """Rows that did not pass."""
        import pyarrow as pa

        schema = arrow_schema(self.gives)
        columns = [
            pa.array(texts, pa.string()) if field.name == DEAD else pa.nulls(len(texts), field.type) for field in schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)
