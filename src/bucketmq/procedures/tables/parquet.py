"""Rows as the bytes of a Parquet file, and back. Tables and the archive write the same kind."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def to_parquet(rows: pa.Table) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    sink = pa.BufferOutputStream()
    pq.write_table(rows, sink, compression="zstd")
    return bytes(sink.getvalue())


def from_parquet(body: bytes, *, columns: Sequence[str] | None = None, schema: pa.Schema | None = None) -> pa.Table:
    """The rows, or one of Arrow's errors if these are not the bytes of such a file.

    The bytes are copied into memory of Arrow's own. Its threads let go of what they read a moment after it was handed
    over; if that is memory of Python's and the interpreter is ending by then, the process aborts.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    own = pa.BufferOutputStream()
    own.write(body)
    wanted = None if columns is None else list(columns)
    return pq.read_table(pa.BufferReader(own.getvalue()), columns=wanted, schema=schema)
