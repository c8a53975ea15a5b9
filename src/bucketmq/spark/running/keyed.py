"""A stage with a key on Spark: Spark's own keyed state between two flows.

Rows are packed by their keys before Spark shuffles them, so that no value goes through pandas: a row of Spark's is the
Arrow stream of some rows of one key, and what is kept is bytes. Rows that failed pass by under a key of their own.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.errors import Invalid
from bucketmq.pipeline.bisection import NEVER_OF_AN_ITEM
from bucketmq.pipeline.chain import RAISED, Chain, Failed, Passed, Ran, error_text
from bucketmq.pipeline.columns import arrow_schema
from bucketmq.pipeline.dead import DEAD, fallen_row, read
from bucketmq.pipeline.fitting import empty, joined
from bucketmq.pipeline.intake import Taken
from bucketmq.pipeline.keyed import packed, unpacked
from bucketmq.pipeline.registers import groups_of
from bucketmq.pipeline.shape import CAUSE
from bucketmq.pipeline.stages import Stage
from bucketmq.pipeline.writing import causes_of_passed
from bucketmq.procedures.objects.metadata import Cause
from bucketmq.spark.running.flow import Flow
from bucketmq.spark.worker import close_at_the_end

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming.state import GroupState

    from bucketmq.pipeline.pipeline import Pipeline
    from bucketmq.spark.options import Place

logger = logging.getLogger("bucketmq.spark")

MESSAGE = "_message"
"""The column of packed rows that has the message each was made of, as the column `_dead` would have it; null where it
is not known."""

PACKED = f"_key string, _order string, _rows binary, {DEAD} string"
CAME = f"_rows binary, {DEAD} string, {CAUSE} string"
KEPT = "kept binary"

PASSES_BY = ""
"""The key of rows that failed before. Keys are JSON, which is never empty."""


def by_key(pipeline: Pipeline, place: Place, rows: DataFrame) -> DataFrame:
    """The rows that come out of a pipeline one of whose stages has a key."""
    before, after = Before(pipeline, place), After(pipeline, place)
    step = Step(pipeline.name, before.stage)

    def kept(key: Any, frames: Any, state: Any) -> Any:
        return step(key, frames, state)

    keyed = before.stage.keyed
    assert keyed is not None
    timeout = "NoTimeout" if keyed.timeout_seconds is None else "ProcessingTimeTimeout"
    grouped = rows.mapInArrow(before, PACKED).groupBy("_key")
    came = grouped.applyInPandasWithState(kept, CAME, KEPT, "append", timeout)
    return came.mapInArrow(after, after.gives)


def divide(stages: tuple[Stage, ...]) -> int:
    """The place of the stage that divides a pipeline: it has a key, or works on a DataFrame."""
    return next(place for place, stage in enumerate(stages) if stage.keyed is not None or stage.is_frame)


class Before(Flow):
    """The stages before the one with a key; what comes out is packed."""

    def __init__(self, pipeline: Pipeline, place: Place) -> None:
        super().__init__(pipeline, place)
        at = divide(self._chain.stages)
        self.stage = self._chain.stages[at]
        self._chain = Chain(self._chain.stages[:at])
        self.gives = PACKED

    def _living(self, raw: pa.RecordBatch, taken: Taken, ran: Ran) -> Iterator[pa.RecordBatch]:
        for passed in ran.passed:
            yield self._packed(passed, raw, taken)

    def _packed(self, passed: Passed, raw: pa.RecordBatch, taken: Taken) -> pa.RecordBatch:
        import pyarrow as pa

        batch = passed.batch
        of = None if passed.of is None else [taken.rows[row] for row in passed.of]
        unknown = pa.nulls(batch.num_rows, pa.string())
        messages = None if of is None else [self._buried(raw, Failed(row, self.stage.name, "")) for row in of]
        batch = batch.append_column(MESSAGE, unknown if messages is None else pa.array(messages, pa.string()))
        causes = [msgspec.json.encode(each).decode() for each in causes_of_passed(taken, passed)]
        batch = batch.append_column(CAUSE, pa.array(causes, pa.string()) if taken.causes else unknown)
        made = []
        for name, _, rows in groups_of(self.stage, batch):
            order = "" if of is None or "offset" not in raw.schema.names else _order(raw, of[rows[0]])
            rows_of_key = batch.take(pa.array(rows, pa.int64()))
            made.append({"_key": name, "_order": order, "_rows": packed(rows_of_key), DEAD: None})
        return pa.RecordBatch.from_pylist(made, schema=arrow_schema(PACKED))

    def _fallen(self, raw: pa.RecordBatch, lost: Any) -> pa.RecordBatch:
        import pyarrow as pa

        made = super()._fallen(raw, lost)
        place = made.schema.get_field_index("_key")
        return made.set_column(place, "_key", pa.array([PASSES_BY] * made.num_rows, pa.string()))


def _order(raw: pa.RecordBatch, row: int) -> str:
    """Sorts as the rows lie in the log."""
    return f"{raw.column('shard')[row].as_py():06d}-{raw.column('offset')[row].as_py():020d}"


class Step:
    """What Spark calls with the rows of a key and what is kept for it, or without rows when it timed out."""

    def __init__(self, pipeline: str, stage: Stage) -> None:
        self._pipeline = pipeline
        self._stage = stage

    def __call__(self, key: tuple[str], frames: Iterator[Any], state: GroupState) -> Iterator[Any]:
        import pandas as pd  # type: ignore[import-untyped]  # it has no stubs of its own

        if self._stage.uses:
            close_at_the_end()
        if key[0] == PASSES_BY:
            for frame in frames:
                yield pd.DataFrame({"_rows": None, DEAD: frame[DEAD], CAUSE: None})
            return
        pieces = sorted(
            (order, rows) for frame in frames for order, rows in zip(frame["_order"], frame["_rows"], strict=True)
        )
        batch = joined([unpacked(bytes(rows)) for _, rows in pieces]) if pieces else None
        yield pd.DataFrame(self._came(key[0], batch, state), columns=["_rows", DEAD, CAUSE])

    def _came(self, name: str, batch: pa.RecordBatch | None, state: GroupState) -> list[dict[str, Any]]:
        kept = state.get[0] if state.exists else None
        before = None if kept is None else bytes(kept)
        bare = empty(self._stage.takes) if batch is None else batch.drop_columns([MESSAGE, CAUSE])
        try:
            value = self._value(name, bare)
            came, after = self._stage.step(value, bare, before)
        except (*NEVER_OF_AN_ITEM, *RAISED):
            raise
        except BaseException as error:
            self._keep(state, before)
            return self._buried(name, batch, error)
        self._keep(state, after)
        causes = [] if batch is None else [each for each in batch.column(CAUSE).to_pylist() if each is not None]
        most = max(causes, key=lambda text: msgspec.json.decode(text, type=Cause).hops, default=None)
        return [{"_rows": packed(came), DEAD: None, CAUSE: most}] if came.num_rows else []

    def _value(self, name: str, batch: pa.RecordBatch) -> Any:
        """The key as the function is given it."""
        assert self._stage.keyed is not None
        if name == "null":
            raise Invalid("the key is null")
        if batch.num_rows:
            return batch.column(self._stage.keyed.key)[0].as_py()
        return self._stage.keyed.value(name, self._stage.takes)

    def _keep(self, state: GroupState, kept: bytes | None) -> None:
        assert self._stage.keyed is not None
        if kept is None:
            if state.exists:
                state.remove()
            return
        state.update((kept,))
        if self._stage.keyed.timeout_seconds is not None:
            state.setTimeoutDuration(max(1, int(self._stage.keyed.timeout_seconds * 1000)))

    def _buried(self, name: str, batch: pa.RecordBatch | None, error: BaseException) -> list[dict[str, Any]]:
        """The rows of the key that failed with it. After a timeout there are none, and it is called again."""
        said = error_text(self._stage.name, error)
        if batch is None:
            logger.error("action=timeout_failed stage=%s key=%s %s", self._stage.name, name, said)
            return []
        bare = batch.drop_columns([MESSAGE, CAUSE])
        buried = []
        for row, message in enumerate(batch.column(MESSAGE).to_pylist()):
            failed = Failed(row, self._stage.name, said)
            if message is None:
                text = fallen_row(bare, self._pipeline, failed)
            else:
                text = msgspec.json.encode(msgspec.structs.replace(read(message), error=said)).decode()
            buried.append({"_rows": None, DEAD: text, CAUSE: None})
        return buried


class After(Flow):
    """The stages behind the one with a key, and the target's shape. A row that fails here is buried as it is: what it
    was made of is many rows, or none."""

    def __init__(self, pipeline: Pipeline, place: Place) -> None:
        super().__init__(pipeline, place)
        self._chain = Chain(self._chain.stages[divide(self._chain.stages) + 1 :])

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self._settle_in()
        for batch in batches:
            dead = batch.column(DEAD).drop_null().to_pylist()
            if dead:
                yield self._dead(dead)
            yield from self._packed(
                [row for row in batch.select(["_rows", CAUSE]).to_pylist() if row["_rows"] is not None]
            )

    def _packed(self, packs: list[dict[str, Any]]) -> Iterator[pa.RecordBatch]:
        if not packs:
            return
        parts = [unpacked(each["_rows"]) for each in packs]
        causes = [each[CAUSE] for each, part in zip(packs, parts, strict=True) for _ in range(part.num_rows)]
        yield from self.ran(joined(parts), causes)

    def ran(self, rows: pa.RecordBatch, causes: Sequence[str | None]) -> Iterator[pa.RecordBatch]:
        """What comes of rows that are not messages any more, with what events led to each."""
        ran = self._chain.run(rows)
        for passed in ran.passed:
            of = passed.of if passed.of is not None else passed.rows
            known = [causes[row] for row in of] if len(of) == passed.batch.num_rows else [None] * passed.batch.num_rows
            yield self._beside(passed.batch, known)
        lost = [*ran.failed, *(each.failed("rows made of many cannot come back") for each in ran.put_off)]
        if lost:
            name = self._pipeline.name
            yield self._dead([fallen_row(rows, name, each) for each in lost])
