"""State by key: what a stage declares to keep for each key, and how it is kept: as bytes.

On Spark it is Spark's own keyed state (`spark.running.keyed`), without a register of the bucket (`pipeline.registers`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.errors import Invalid
from bucketmq.pipeline.columns import arrow_schema, column_names
from bucketmq.pipeline.fitting import Misshapen, joined
from bucketmq.pipeline.models import columns_of, models_of
from bucketmq.typed import plain

if TYPE_CHECKING:
    import pyarrow as pa


class Keyed(msgspec.Struct, frozen=True):
    """What a stage keeps for each key."""

    key: str
    state: str
    """The columns of what is kept."""
    model: type | None = None
    timeout_seconds: float | None = None

    def check(self, stage: str, takes: str) -> None:
        if self.key not in column_names(takes):
            raise Invalid(f"stage {stage!r}: the key {self.key!r} must be one of the columns it takes")
        arrow_schema(self.state)
        if self.timeout_seconds is not None and self.timeout_seconds <= 0:
            raise Invalid(f"stage {stage!r}: timeout_seconds must be more than 0, not {self.timeout_seconds}")

    def value(self, name: str, takes: str) -> Any:
        """A key as the function is given it, from its JSON."""
        import pyarrow as pa

        kind = arrow_schema(takes).field(self.key).type
        if pa.types.is_binary(kind):
            return msgspec.json.decode(name, type=bytes | None)
        return pa.array([msgspec.json.decode(name)]).cast(kind).to_pylist()[0]

    def loaded(self, kept: bytes | None) -> Any:
        """What the function is given."""
        if kept is None:
            return None
        batch = unpacked(kept)
        if self.model is None:
            return batch.to_pylist()[0]
        models, failed = models_of(batch, self.model)
        if failed:
            raise Misshapen(f"what is kept {failed[0]}; a model that keeps its old fields can read it")
        return models[0]

    def dumped(self, state: Any, stage: str) -> bytes | None:
        """What the function returned, as it is kept; `Misshapen` if it is something else than declared."""
        import pyarrow as pa

        if state is None:
            return None
        row = plain(state) if self.model is not None and isinstance(state, self.model) else state
        names = column_names(self.state)
        if not isinstance(row, dict) or set(row) - set(names):
            raise Misshapen(f"the state that stage {stage!r} returned is {row!r}; it should have {', '.join(names)}")
        try:
            return packed(pa.RecordBatch.from_pylist([row], schema=arrow_schema(self.state)))
        except (pa.ArrowException, TypeError) as error:
            raise Misshapen(f"the state that stage {stage!r} returned does not fit {self.state!r}: {error}") from None


def keyed_of(stage: str, key: str, state: str | type, timeout_seconds: float | None) -> Keyed | None:
    if not key and not state and timeout_seconds is None:
        return None
    if not key or not state:
        raise Invalid(f"stage {stage!r}: key= and state= go together, and timeout_seconds= with both")
    if isinstance(state, type):
        return Keyed(key, columns_of(state), state, timeout_seconds)
    return Keyed(key, state, None, timeout_seconds)


def packed(batch: pa.RecordBatch) -> bytes:
    """A batch as bytes, with its schema."""
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema) as writer:
        writer.write_batch(batch)
    made: bytes = sink.getvalue().to_pybytes()
    return made


def unpacked(data: bytes) -> pa.RecordBatch:
    import pyarrow as pa

    with pa.ipc.open_stream(data) as reader:
        return joined(list(reader))
