"""The flow of a pipeline on an executor: intake, chain, and the failed rows among the others. One `mapInArrow`.

What comes out has the columns of the target's shape, the column `_dead` (see `pipeline.dead`) and, where events
become objects, `_cause`. Rows of one batch come out in their order, those that failed behind those that did not.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.pipeline.chain import Chain, Failed, Passed, PutOff
from bucketmq.pipeline.columns import arrow_schema
from bucketmq.pipeline.dead import DEAD, Back, fallen_message, fallen_row, times_back
from bucketmq.pipeline.ends import FromEvents, FromTable, ToObjects
from bucketmq.pipeline.intake import Bucket, Taken, causes_of, intake_of
from bucketmq.pipeline.objects import check_keys
from bucketmq.pipeline.pipeline import Pipeline
from bucketmq.pipeline.shape import CAUSE

if TYPE_CHECKING:
    import pyarrow as pa

    from bucketmq.spark.options import Place


class Flow:
    """A pipeline, ready to be run on batches of its source. Pickled by value; it opens the bucket where it runs."""

    def __init__(self, pipeline: Pipeline, place: Place) -> None:
        self._pipeline = pipeline
        self._place = place
        self._chain: Chain = pipeline.chain(self._check_keys)
        self._tells_causes = isinstance(pipeline.source, FromEvents) and isinstance(pipeline.target, ToObjects)
        last = self._chain.stages[-1] if self._chain.stages else None
        self.gives = f"{last.gives if last is not None and last.gives else pipeline.gives}, {DEAD} string"
        if self._tells_causes:
            self.gives += f", {CAUSE} string"

    def __reduce__(self) -> Any:
        return type(self), (self._pipeline, self._place)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """All batches of one task."""
        from bucketmq.spark.worker import close_at_the_end, settle_in

        settle_in()
        if any(stage.uses for stage in self._chain.stages):
            close_at_the_end()
        intake = intake_of(self._pipeline.source, self._bucket)
        for raw in batches:
            for taken in intake.take(raw):
                yield from self._run(raw, taken)

    def _bucket(self) -> Bucket:
        from bucketmq.spark.opened import opened

        here = opened(self._place, create=True)
        return Bucket(here.queue.bucket, here.run)

    def _check_keys(self, keys: Sequence[str]) -> None:
        bucket = self._bucket()
        bucket.run(check_keys(bucket.open, keys))

    def _run(self, raw: pa.RecordBatch, taken: Taken) -> Iterator[pa.RecordBatch]:
        ran = self._chain.run(taken.batch)
        for passed in ran.passed:
            yield self._living(passed, raw, taken)
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

    def _living(self, passed: Passed, raw: pa.RecordBatch, taken: Taken) -> pa.RecordBatch:
        """Rows that passed. `raw` is what they were made of."""
        if not self._tells_causes:
            return self._beside(passed.batch, ())
        of_rows = [taken.causes[row] for row in (passed.rows if passed.of is None else passed.of)]
        told = causes_of(of_rows, passed.batch.num_rows)
        return self._beside(passed.batch, [msgspec.json.encode(each).decode() for each in told])

    def _beside(self, batch: pa.RecordBatch, causes: Sequence[str | None]) -> pa.RecordBatch:
        """Rows that passed, with the columns that tell of them."""
        import pyarrow as pa

        columns = [*batch.columns, pa.nulls(batch.num_rows, pa.string())]
        if self._tells_causes:
            columns.append(pa.array(causes, pa.string()))
        return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(self.gives))

    def _fallen(self, raw: pa.RecordBatch, lost: Sequence[tuple[Failed, Back | None]]) -> pa.RecordBatch:
        name = self._pipeline.name
        if isinstance(self._pipeline.source, FromTable):
            texts = [fallen_row(raw, name, failed, f"row-{uuid.uuid4().hex}") for failed, _ in lost]
        else:
            texts = [fallen_message(raw, name, failed, back) for failed, back in lost]
        return self._dead(texts)

    def _dead(self, texts: Sequence[str]) -> pa.RecordBatch:
        """Rows that did not pass."""
        import pyarrow as pa

        schema = arrow_schema(self.gives)
        columns = [
            pa.array(texts, pa.string()) if field.name == DEAD else pa.nulls(len(texts), field.type) for field in schema
        ]
        return pa.RecordBatch.from_arrays(columns, schema=schema)
