"""A table as a target: rows that take the place of the rows that were there, or have them deleted.

What a commit is lives in `bucketmq.procedures.tables`; here is how the rows of a batch become one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from bucketmq.errors import Invalid
from bucketmq.pipeline.columns import arrow_schema, ddl_of_schema
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.tables.commit import commit_steps
from bucketmq.procedures.tables.opened import OpenTable, open_table
from bucketmq.procedures.tables.steps import check_type, latest
from bucketmq.queue.settings import check_name
from bucketmq.tables.head import Shape

if TYPE_CHECKING:
    import pyarrow as pa


class ToUpserts(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Rows of a table of this bucket (`bucket.table`), put in place of those that were there, in one step for a batch.

    `key` is the column that tells rows apart. With `group`, the column of a document's key for instance, a batch
    replaces everything that its groups had: what the new version of a document does not have is gone. `newer_by`, the
    column of a whole number or a time, says which state of a group is newer: an older one that comes late changes
    nothing, and of several in a batch the newest counts. A row whose column `delete_when` is true deletes its group; a
    document without any rows left must give such a row.

    At least once and idempotent in a watcher; once for each batch on Spark.
    """

    table: str
    key: str
    group: str | None = None
    newer_by: str | None = None
    delete_when: str | None = None
    columns: tuple[str, ...] = ()
    """The columns that the table has, in this order, with those named above among them; all, if none are named."""
    where: str | None = None
    """Which rows: a column of truth values, or a condition like `score >= 0.8 AND kind = "image"`."""

    def __post_init__(self) -> None:
        check_name(self.table, "table name")
        if self.group is not None and self.newer_by is None:
            raise Invalid("group goes with newer_by: two versions of a group in one batch must be told apart")
        if self.group == self.key:
            raise Invalid("key tells the rows of a group apart, so it is another column than group; leave group out")
        if self.delete_when is not None and self.delete_when in (self.key, self.group, self.newer_by):
            raise Invalid("delete_when is a column of its own, true in rows that delete")
        left_out = [name for name in self.meaning if name is not None and self.columns and name not in self.columns]
        if left_out:
            raise Invalid(f"the {self.title} needs a column {left_out[0]!r}; name it among its columns too")

    @property
    def shape(self) -> Shape:
        return Shape(key=self.key, group=self.group, newer_by=self.newer_by)

    @property
    def meaning(self) -> tuple[str | None, ...]:
        """The columns that it needs."""
        return self.key, self.group, self.newer_by, self.delete_when

    @property
    def title(self) -> str:
        """What it is called in errors and logs."""
        return f"table {self.table!r}"


def columns_of(target: ToUpserts, gives: str) -> str:
    """The columns of the table, of those that come out of the last stage."""
    import pyarrow as pa

    if not target.columns:
        return gives
    schema = arrow_schema(gives)
    return ddl_of_schema(pa.schema([schema.field(name) for name in target.columns]))


def check_target(target: ToUpserts, schema: pa.Schema) -> None:
    """Raise `Invalid` if columns of these types cannot be a table's."""
    if target.delete_when is not None and str(schema.field(target.delete_when).type) != "bool":
        raise Invalid(f"delete_when is a column that is true or false; {target.delete_when!r} is not")
    for name in (target.key, target.group, target.newer_by):
        if name is not None:
            check_type(name, schema.field(name).type, may_be_time=name == target.newer_by)


def check_rows(target: ToUpserts, batch: pa.RecordBatch) -> None:
    """Raise `Invalid` if a row is among these that a table cannot take. One that deletes a group needs no key."""
    import pyarrow.compute as pc

    living = batch
    if target.delete_when is not None:
        living = batch.filter(pc.invert(pc.fill_null(batch.column(target.delete_when), False)))
    for rows, names in ((batch, (target.group or target.key, target.newer_by)), (living, (target.key,))):
        for name in names:
            if name is not None and rows.column(name).null_count:
                raise Invalid(f"column {name!r} is null here; a row of table {target.table!r} needs a value there")


def table_of(bucket: OpenBucket, target: ToUpserts) -> OpenTable:
    return open_table(bucket, target.table, target.shape)


def write_rows(bucket: OpenBucket, target: ToUpserts, columns: Sequence[pa.Array]) -> Procedure[None]:
    """Commit rows, given as columns of structs with null for those that are not meant. Two GETs and two PUTs for one
    document, shared with others of this process."""
    import pyarrow as pa

    living = [each for each in (column.drop_null() for column in columns) if len(each)]
    if living:
        rows = pa.Table.from_batches([pa.RecordBatch.from_struct_array(each) for each in living])
        yield from commit_steps(table_of(bucket, target), [latest(rows, target.shape, target.delete_when)])
