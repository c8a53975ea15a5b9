"""Fitting: batches brought to declared columns, and from and to pandas. Where values cannot be, `Misshapen`.

What runs on the batches is `pipeline.stages`; what columns are written like is `pipeline.columns`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bucketmq.errors import Invalid
from bucketmq.pipeline.columns import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

FLOAT_WHOLE_MAX, NAN = 2**53, float("nan")
"""Up to where a float tells whole numbers apart, and what pandas has for a number that is missing."""


class Misshapen(Invalid):
    """A stage gave something else than it declares: the stage is wrong, whatever the rows are."""


def empty(columns: str) -> pa.RecordBatch:
    """No rows with these columns."""
    import pyarrow as pa

    return pa.RecordBatch.from_pylist([], schema=arrow_schema(columns))


def fit(batch: pa.RecordBatch, wanted: pa.Schema, what: str) -> pa.RecordBatch:
    """These columns alone, in this order, of exactly these types. `Misshapen` if one is missing or of another kind."""
    import pyarrow as pa

    if batch.schema.equals(wanted):
        return batch
    arrays = []
    for field in wanted:
        if field.name not in batch.schema.names:
            raise Misshapen(f"{what} lacks column {field.name!r}; there are {', '.join(batch.schema.names) or 'none'}")
        arrays.append(_cast(batch.column(field.name), field, what))
    return pa.RecordBatch.from_arrays(arrays, schema=wanted)


def _cast(column: pa.Array, field: pa.Field, what: str) -> pa.Array:
    if column.type == field.type:
        return column
    if not _is_kin(column.type, field.type):
        raise Misshapen(f"{what}: column {field.name!r} is {column.type}, not {field.type} as declared")
    return column.cast(field.type)


def _is_kin(found: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether values of one type are values of the other, written differently: text is not a number."""
    from pyarrow import types

    if types.is_dictionary(found):
        return _is_kin(found.value_type, wanted)
    if types.is_null(found):
        return True
    family = _family(found)
    if family != _family(wanted):
        return False
    match family:
        case "struct":
            names = {field.name for field in found}
            return names == {field.name for field in wanted} and all(
                _is_kin(found.field(field.name).type, field.type) for field in wanted
            )
        case "map":
            return _is_kin(found.key_type, wanted.key_type) and _is_kin(found.item_type, wanted.item_type)
        case "list":
            return _is_kin(found.value_type, wanted.value_type)
    return True


def _family(kind: pa.DataType) -> str:
    from pyarrow import types

    families = {
        "text": (types.is_string, types.is_large_string, types.is_string_view),
        "bytes": (types.is_binary, types.is_large_binary, types.is_binary_view, types.is_fixed_size_binary),
        "number": (types.is_integer, types.is_floating, types.is_decimal),
        "truth": (types.is_boolean,),
        "date": (types.is_date,),
        "map": (types.is_map,),
        "list": (types.is_list, types.is_large_list, types.is_fixed_size_list),
        "struct": (types.is_struct,),
    }
    if types.is_timestamp(kind):
        return "moment" if kind.tz is not None else "time"
    return next((name for name, tests in families.items() if any(test(kind) for test in tests)), str(kind))


def batch_of(returned: Any, what: str) -> pa.RecordBatch:
    import pyarrow as pa

    if isinstance(returned, dict):
        returned = pa.RecordBatch.from_pydict(returned)
    if isinstance(returned, pa.Table):
        returned = _of_table(returned)
    if not isinstance(returned, pa.RecordBatch):
        raise Misshapen(f"{what} is {type(returned).__name__}; it should be a pyarrow RecordBatch or Table")
    return returned


def to_pandas(batch: pa.RecordBatch) -> Any:
    """The rows as a `DataFrame`. Whole numbers beside nulls are floats, as pandas has it, unless that would change one
    of them: then they stay Python's own, so that no row's number is another one because of its neighbours."""
    import pandas as pd  # type: ignore[import-untyped]  # it has no stubs of its own
    import pyarrow as pa
    import pyarrow.compute as pc

    frame = batch.to_pandas(integer_object_nulls=True)
    for field in batch.schema:
        column = batch.column(field.name)
        if not pa.types.is_integer(field.type) or not column.null_count:
            continue
        least, most = pc.min_max(column).as_py().values()
        if least is None or -FLOAT_WHOLE_MAX <= least <= most <= FLOAT_WHOLE_MAX:
            frame[field.name] = frame[field.name].astype("float64")
        else:
            frame[field.name] = pd.Series([NAN if n is None else n for n in column.to_pylist()], dtype=object)
    return frame


def from_pandas(returned: Any, wanted: pa.Schema, what: str) -> pa.RecordBatch:
    import pandas as pd
    import pyarrow as pa

    if not isinstance(returned, pd.DataFrame):
        raise Misshapen(f"{what} is {type(returned).__name__}; it should be a pandas DataFrame")
    arrays, names = [], []
    for field in wanted:
        if field.name in returned.columns:
            # What Arrow would guess for nested values depends on the values; plain ones show what they are.
            kind = field.type if pa.types.is_nested(field.type) else None
            arrays.append(pa.array(returned[field.name], type=kind, from_pandas=True))
            names.append(field.name)
    arrays = [array.combine_chunks() if isinstance(array, pa.ChunkedArray) else array for array in arrays]
    return fit(pa.RecordBatch.from_arrays(arrays, names=names), wanted, what)


def _of_table(table: pa.Table) -> pa.RecordBatch:
    import pyarrow as pa

    return pa.RecordBatch.from_arrays([join_chunks(column) for column in table.columns], schema=table.schema)


def join_chunks(column: pa.ChunkedArray) -> pa.Array:
    """One array of all chunks."""
    import pyarrow as pa

    return pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], column.type)


def joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    return _of_table(pa.Table.from_batches(batches))
