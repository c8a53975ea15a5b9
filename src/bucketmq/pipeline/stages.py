"""A stage: a pure function over batches of rows, with the columns it takes and the columns it gives or adds.

The same stage runs on a billion rows in Spark and on one change in a watcher. So this module needs neither PySpark nor
a JVM; Arrow is imported when a stage runs. Joining stages and finding the row that a failure belongs to is
`bucketmq.pipeline.chain`; what becomes of each row is told in `bucketmq.pipeline.results`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

import msgspec

from bucketmq.errors import Invalid, Unfit, Unsupported
from bucketmq.pipeline.columns import arrow_schema, column_names, ddl_of_schema
from bucketmq.pipeline.fitting import Misshapen, batch_of, empty, fit, from_pandas, joined, to_pandas
from bucketmq.pipeline.keyed import Keyed, keyed_of
from bucketmq.pipeline.models import batch_of_models, columns_of, models_of
from bucketmq.pipeline.resources import Resource, Uses, found_at, of_process, resources_of
from bucketmq.pipeline.results import Outcomes, Result, check_told
from bucketmq.queue.settings import check_name

if TYPE_CHECKING:
    import pyarrow as pa

Kind = Literal["arrow", "pandas", "frame"]
"""What a function is given: a RecordBatch of Arrow, a DataFrame of pandas, or a DataFrame of Spark."""

ROWS_MAX = 10_000
"""Rows that a stage is given at a time, unless it says otherwise."""

LATER_MAX = 4
"""How often a stage may put a row off, unless it says otherwise. Workers of a queue try as often by default."""


class Stage(msgspec.Struct, frozen=True, kw_only=True):
    """A function with declared columns. Make one with the decorator `stage`.

    Pure means: what becomes of a row depends on the row alone. A batch may be run again, in other company, or in part.
    """

    name: str
    takes: str
    """The columns that the function gets, in this order, as Spark writes them."""
    gives: str = ""
    """The columns that it returns, in any order. As many rows as it likes, and no other columns go on."""
    adds: str = ""
    """Or the columns that it adds: one row for each row it is given, in their order. All other columns go on, too."""
    function: Callable[..., Any]
    kind: Kind = "arrow"
    rows_max: int = ROWS_MAX
    later_max: int = LATER_MAX
    """How often a row may come back because of this stage; then it is buried."""
    uses: tuple[Resource, ...] = ()
    """What the function is handed beside the rows."""
    reads: type | None = None
    """A model: the function is given a list of these instead of a batch."""
    makes: type | None = None
    """A model: the function returns a list of these."""
    keyed: Keyed | None = None
    """What is kept for each key; the function then takes and returns more: see `stage`."""

    def __post_init__(self) -> None:
        check_name(self.name, "stage name")
        if bool(self.gives) == bool(self.adds):
            raise Invalid(f"stage {self.name!r} needs gives= (it reshapes) or adds= (other columns go on), not both")
        if self.kind not in get_args(Kind):
            raise Invalid(f"stage {self.name!r}: kind must be arrow, pandas or frame, not {self.kind!r}")
        if self.is_frame and (self.adds or self.uses or self.reads or self.makes or self.keyed):
            raise Invalid(f"stage {self.name!r} works on a DataFrame of Spark: it has takes= and gives= alone")
        if not callable(self.function):
            raise Invalid(f"stage {self.name!r} needs a function, not {self.function!r}")
        if self.rows_max < 1:
            raise Invalid(f"stage {self.name!r}: rows_max must be 1 or more, not {self.rows_max}")
        if self.keyed is not None:
            self.keyed.check(self.name, self.takes)
        if self.later_max < 0:
            raise Invalid(f"stage {self.name!r}: later_max must be 0 or more, not {self.later_max}")

    @property
    def is_frame(self) -> bool:
        """Whether its function is for a DataFrame of Spark, which nothing but Spark can run."""
        return self.kind == "frame"

    def __reduce__(self) -> Any:
        """By its name where it is the attribute of a module; otherwise its parts, the function among them."""
        module, path = self.function.__module__, getattr(self.function, "__qualname__", "")
        if module != "__main__" and found_at(module, path) is self:
            return _load, (module, path)
        return _made, ({name: getattr(self, name) for name in self.__struct_fields__},)

    def __call__(self, rows: Any, **used: Any) -> Any:
        """The plain function, as it was written."""
        return self.function(rows, **used)

    def after(self, columns: str) -> str:
        """The columns that come out, of rows that come in with these."""
        if self.gives:
            return self.gives
        known = column_names(columns)
        if not set(column_names(self.adds)) & set(known):
            return f"{columns}, {self.adds}"
        return ddl_of_schema(self._after(arrow_schema(columns)))

    def _after(self, columns: pa.Schema) -> pa.Schema:
        wanted = arrow_schema(self.gives or self.adds)
        if self.gives:
            return wanted
        for field in wanted:
            place = columns.get_field_index(field.name)
            columns = columns.append(field) if place < 0 else columns.set(place, field)
        return columns

    def check_follows(self, what: str, columns: str) -> None:
        """Raise `Invalid` unless the stage can take what comes from `what` with these columns."""
        try:
            fit(empty(columns), arrow_schema(self.takes), f"what {what} gives to stage {self.name!r}")
        except Misshapen as error:
            raise Invalid(str(error)) from None
        taken = column_names(self.takes)
        alike = {name.lower(): name for name in column_names(columns)}
        for name in column_names(self.adds) if self.adds else ():
            there = alike.get(name.lower())
            if there is not None and (there != name or name not in taken):
                raise Invalid(
                    f"stage {self.name!r} adds {name!r}, but what {what} gives has a column {there!r}; choose another "
                    "name, or let the stage take the column to replace it"
                )

    def run(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that pass: the function is given exactly what it takes, and what it returns is made exactly what it
        gives, or added to the other columns.

        Of no rows come none, and the function is not asked: many cannot do with none, and the rows that a stage before
        it left out would fail in its place.

        `Misshapen` if it returns other columns or other types; whatever it raises; `pyarrow.ArrowInvalid` if a value
        does not fit the type of its column.
        """
        return self.result(batch).batch

    def result(self, batch: pa.RecordBatch) -> Result:
        """What became of each row."""
        import pyarrow as pa

        if self.is_frame:
            raise Invalid(f"stage {self.name!r} works on a DataFrame of Spark; start its pipeline there")

        if not batch.num_rows:
            return Result(pa.RecordBatch.from_pylist([], schema=self._after(batch.schema)), ())
        starts = range(0, batch.num_rows, self.rows_max)
        pieces = [self._once(batch.slice(start, self.rows_max)) for start in starts]
        return pieces[0] if len(pieces) == 1 else _all_of(pieces, starts)

    def _once(self, batch: pa.RecordBatch) -> Result:
        import pyarrow as pa

        given = fit(batch, arrow_schema(self.takes), f"what goes into stage {self.name!r}")
        if self.reads is None:
            return self._told(batch, self._call(to_pandas(given) if self.kind == "pandas" else given))
        models, failed = models_of(given, self.reads)
        if not failed:
            return self._told(batch, self._call(list(models.values())))
        # What fits goes on alone; what becomes of it is told by its places among all rows.
        fine = list(models)
        passed = batch.take(pa.array(fine, pa.int64()))
        told = Outcomes(rows=[] if self.makes else empty(self.gives or self.adds))
        result = self._told(passed, self._call(list(models.values())) if models else told)
        return Result(
            result.batch,
            None if result.of is None else [fine[place] for place in result.of],
            failed | {fine[place]: reason for place, reason in result.failed.items()},
            {fine[place]: later for place, later in result.later.items()},
        )

    def step(self, key: Any, batch: pa.RecordBatch, before: bytes | None) -> tuple[pa.RecordBatch, bytes | None]:
        """What comes of rows that have one key, or of a timeout if there are none; and what is kept from now on."""
        assert self.keyed is not None
        batches = [batch.slice(start, self.rows_max) for start in range(0, batch.num_rows, self.rows_max)]
        came = []
        for each in batches or [batch]:
            given = fit(each, arrow_schema(self.takes), f"what goes into stage {self.name!r}")
            rows: Any = to_pandas(given) if self.kind == "pandas" else given
            if self.reads is not None:
                models, failed = models_of(given, self.reads)
                if failed:
                    raise Unfit(f"row {min(failed)} of key {key!r} {failed[min(failed)]}")
                rows = list(models.values())
            returned = self.function(key, rows, self.keyed.loaded(before), **self._used())
            if not isinstance(returned, tuple) or len(returned) != 2 or isinstance(returned[0], Outcomes):
                raise Misshapen(f"stage {self.name!r} keeps state: it returns a pair of rows and state")
            before = self.keyed.dumped(returned[1], self.name)
            came.append(self._told(each, Outcomes(rows=returned[0])).batch)
        return (came[0] if len(came) == 1 else joined(came)), before

    def _used(self) -> dict[str, Any]:
        return of_process().lend(self.name, self.uses) if self.uses else {}

    def _call(self, rows: Any) -> Outcomes:
        returned = self.function(rows, **self._used())
        return returned if isinstance(returned, Outcomes) else Outcomes(rows=returned)

    def _told(self, batch: pa.RecordBatch, told: Outcomes) -> Result:
        what = f"what stage {self.name!r} {'gives' if self.gives else 'adds'}"
        check_told(told, batch.num_rows, what)
        made = self._made(told.rows, what)
        if self.gives:
            return Result(made, _traced(told, made.num_rows, batch.num_rows, what), told.failed, told.later)
        if told.of is not None:
            raise Misshapen(f"{what} has of=, which goes with gives=: added columns have one row for each row")
        rows = [row for row in range(batch.num_rows) if row not in told.failed and row not in told.later]
        if made.num_rows != len(rows):
            raise Misshapen(f"{what} has {made.num_rows} rows for {len(rows)}: one for each, in their order")
        return Result(self._beside(batch, rows, made), rows, told.failed, told.later)

    def _made(self, rows: Any, what: str) -> pa.RecordBatch:
        wanted = arrow_schema(self.gives or self.adds)
        if self.makes is not None:
            return batch_of_models(rows, self.makes, wanted, what)
        if self.kind == "pandas":
            return from_pandas(rows, wanted, what)
        return fit(batch_of(rows, what), wanted, what)

    def _beside(self, batch: pa.RecordBatch, rows: Sequence[int], made: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that passed, with the columns that the stage made of them."""
        import pyarrow as pa

        schema = self._after(batch.schema)
        passed = batch if len(rows) == batch.num_rows else batch.take(pa.array(rows, pa.int64()))
        own = set(made.schema.names)
        columns = [(made if name in own else passed).column(name) for name in schema.names]
        return pa.RecordBatch.from_arrays(columns, schema=schema)


def stage(
    *,
    takes: str | type,
    gives: str | type = "",
    adds: str | type = "",
    uses: Uses = None,
    kind: Kind = "arrow",
    name: str | None = None,
    rows_max: int = ROWS_MAX,
    later_max: int = LATER_MAX,
    key: str = "",
    state: str | type = "",
    timeout_seconds: float | None = None,
) -> Callable[[Callable[..., Any]], Stage]:
    """A decorator that makes a function a stage, named like the function.

    ```python
    @stage(takes="text string", adds="words int")
    def count(batch):
        return {"words": [len(text.split()) for text in batch.column("text").to_pylist()]}
    ```

    With `adds` it returns the added columns alone, a row for each row; every other column goes on beside them. With
    `gives` it returns all columns that go on, and as many rows as it likes.

    With `kind="pandas"` it is given and returns a `pandas.DataFrame`, otherwise a `pyarrow.RecordBatch`; it may return
    a `pyarrow.Table` or a dict of columns too, or `Outcomes`, to say which rows failed and which should come back.

    `uses` is a class or function without arguments that makes something the function needs (a model, a client): it is
    called once in a process, and what it makes is handed to the function as its second argument. Or a dict of several,
    by the names of the function's parameters.

    With `kind="frame"` it is given and returns a `DataFrame` of Spark, with the rows of one micro-batch: for joins, SQL
    and whatever Spark itself does best. It runs on the driver, describes what the executors do, and needs `gives`.

    In place of columns there may be a model: a `msgspec.Struct`, a dataclass or a pydantic model. The function is then
    given, or returns, a list of these; a row that does not fit fails, with the path of the field.

    With `key`, a column, and `state`, columns or a model, something is kept for each key. The function is then called
    as `function(key, rows, state)` with the rows of one key and what is kept, at first None, and returns rows and what
    to keep: a dict or a model, or None to forget it. When a key had no rows for `timeout_seconds` it is called with
    none.
    """

    def made(function: Callable[..., Any]) -> Stage:
        called = name or function.__name__
        return Stage(
            name=called,
            takes=_columns(takes),
            gives=_columns(gives),
            adds=_columns(adds),
            reads=takes if isinstance(takes, type) else None,
            makes=next((each for each in (gives, adds) if isinstance(each, type)), None),
            function=function,
            kind=kind,
            rows_max=rows_max,
            later_max=later_max,
            uses=resources_of(called, uses, function, rows=3 if key else 1),
            keyed=keyed_of(called, key, state, timeout_seconds),
        )

    return made


def _columns(told: str | type) -> str:
    return columns_of(told) if isinstance(told, type) else told


def _traced(told: Outcomes, made: int, given: int, what: str) -> Sequence[int] | None:
    """Which row each came of, where it is known."""
    if told.of is None:
        return [0] * made if given == 1 else None
    if len(told.of) != made:
        raise Misshapen(f"{what} has {made} rows, but of= has {len(told.of)}: one for each")
    return told.of


def _all_of(pieces: Sequence[Result], starts: Sequence[int]) -> Result:
    """What became of a batch that was run in pieces."""
    known = all(each.of is not None for each in pieces)
    both = list(zip(pieces, starts, strict=True))
    return Result(
        joined([each.batch for each in pieces]),
        [start + row for each, start in both for row in each.of or ()] if known else None,
        {start + row: reason for each, start in both for row, reason in each.failed.items()},
        {start + row: later for each, start in both for row, later in each.later.items()},
    )


def _made(parts: dict[str, Any]) -> Stage:
    return Stage(**parts)


def _load(module: str, path: str) -> Stage:
    """A stage by its name, where it is unpickled."""
    found = found_at(module, path)
    if not isinstance(found, Stage):
        raise Unsupported(
            f"there is no stage {path!r} in a module {module!r} here; ship the module to the executors (--py-files) "
            "or install it there"
        )
    return found
