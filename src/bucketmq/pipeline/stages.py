"""A stage: a pure function over batches of rows, with the columns it takes and the columns it gives.

The same stage runs on a billion rows in Spark and on one change in a watcher. So this module needs neither PySpark nor
a JVM; Arrow is imported when a stage runs. Joining stages and finding the row that a failure belongs to is
`bucketmq.pipeline.chain`.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from bucketmq.errors import Invalid, Unsupported
from bucketmq.pipeline.columns import arrow_schema
from bucketmq.queue.settings import check_name

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["arrow", "pandas"]

ROWS_MAX = 10_000
"""Rows that a stage is given at a time, unless it says otherwise."""

FLOAT_WHOLE_MAX, NAN = 2**53, float("nan")
"""Up to where a float tells whole numbers apart, and what pandas has for a number that is missing."""


class Misshapen(Invalid):
    """A stage gave something else than it declares: the stage is wrong, whatever the rows are."""


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """A function with declared columns. Make one with the decorator `stage`.

    Pure means: what becomes of a row depends on the row alone. A batch may be run again, in other company, or in part.
    """

    name: str
    takes: str
    """The columns that the function gets, in this order, as Spark writes them."""
    gives: str
    """The columns that it returns, in any order. As many rows as it likes."""
    function: Callable[[Any], Any]
    kind: Kind = "arrow"
    rows_max: int = ROWS_MAX

    def __post_init__(self) -> None:
        check_name(self.name, "stage name")
        if self.kind not in get_args(Kind):
            raise Invalid(f"stage {self.name!r}: kind must be arrow or pandas, not {self.kind!r}")
        if not callable(self.function):
            raise Invalid(f"stage {self.name!r} needs a function, not {self.function!r}")
        if self.rows_max < 1:
            raise Invalid(f"stage {self.name!r}: rows_max must be 1 or more, not {self.rows_max}")

    def __reduce__(self) -> Any:
        """By its name where it is the attribute of a module; otherwise its parts, the function among them."""
        found = _found(self.function.__module__, getattr(self.function, "__qualname__", ""))
        if found is self and self.function.__module__ != "__main__":
            return _load, (self.function.__module__, self.function.__qualname__)
        return _made, (msgspec.structs.asdict(self),)

    def __call__(self, rows: Any) -> Any:
        """The plain function, as it was written."""
        return self.function(rows)

    def run(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The function on these rows: given exactly what it takes, and what it returns made exactly what it gives.

        Of no rows come none, and the function is not asked: many cannot do with none, and the rows that a stage before
        it left out would fail in its place.

        `Misshapen` if it returns other columns or other types; whatever it raises; `pyarrow.ArrowInvalid` if a value
        does not fit the type of its column.
        """
        import pyarrow as pa

        given = fit(batch, arrow_schema(self.takes), f"what goes into stage {self.name!r}")
        if not given.num_rows:
            return pa.RecordBatch.from_pylist([], schema=arrow_schema(self.gives))
        pieces = [self._once(given.slice(start, self.rows_max)) for start in range(0, given.num_rows, self.rows_max)]
        return pieces[0] if len(pieces) == 1 else _joined(pieces)

    def _once(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        wanted = arrow_schema(self.gives)
        what = f"what stage {self.name!r} gives"
        if self.kind == "pandas":
            return _from_pandas(self.function(_to_pandas(batch)), wanted, what)
        return fit(_batch_of(self.function(batch), what), wanted, what)


def stage(
    *,
    takes: str,
    gives: str,
    kind: Kind = "arrow",
    name: str | None = None,
    rows_max: int = ROWS_MAX,
) -> Callable[[Callable[[Any], Any]], Stage]:
    """A decorator that makes a function a stage, named like the function.

    ```python
    @stage(takes="id string, text string", gives="id string, words int")
    def count(batch):
        words = [len(text.split()) for text in batch.column("text").to_pylist()]
        return pa.RecordBatch.from_pydict({"id": batch.column("id"), "words": words})
    ```

    With `kind="pandas"` it is given and returns a `pandas.DataFrame`, otherwise a `pyarrow.RecordBatch`; it may return
    a `pyarrow.Table` or a dict of columns too.
    """

    def made(function: Callable[[Any], Any]) -> Stage:
        return Stage(
            name=name or function.__name__, takes=takes, gives=gives, function=function, kind=kind, rows_max=rows_max
        )

    return made


def _made(parts: dict[str, Any]) -> Stage:
    return Stage(**parts)


def _load(module: str, path: str) -> Stage:
    """A stage by its name, where it is unpickled."""
    found = _found(module, path)
    if not isinstance(found, Stage):
        raise Unsupported(
            f"there is no stage {path!r} in a module {module!r} here; ship the module to the executors (--py-files) "
            "or install it there"
        )
    return found


def _found(module: str, path: str) -> Any:
    """What a module has at `path`, or None."""
    try:
        found: Any = importlib.import_module(module)
        for part in path.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError):
        return None
    return found


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


def _batch_of(returned: Any, what: str) -> pa.RecordBatch:
    import pyarrow as pa

    if isinstance(returned, dict):
        returned = pa.RecordBatch.from_pydict(returned)
    if isinstance(returned, pa.Table):
        returned = _of_table(returned)
    if not isinstance(returned, pa.RecordBatch):
        raise Misshapen(f"{what} is {type(returned).__name__}; it should be a pyarrow RecordBatch or Table")
    return returned


def _to_pandas(batch: pa.RecordBatch) -> Any:
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


def _from_pandas(returned: Any, wanted: pa.Schema, what: str) -> pa.RecordBatch:
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


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    import pyarrow as pa

    return _of_table(pa.Table.from_batches(batches))
