"""The `where` of a target: which rows are written to it. The language of rules' filters, with columns for fields.

`flagged`, `score >= 0.8 AND kind IN ("a", "b")`, `verdict.label = "spam"`: a column of truth values alone, or
conditions on columns and on fields of structs. As in SQL only what is true counts: a row whose value is missing is not
written.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bucketmq.errors import Invalid
from bucketmq.events.event import ObjectEvent
from bucketmq.events.filters.evaluate import YES, Step, compiled
from bucketmq.events.filters.fields import UNFETCHED
from bucketmq.events.filters.grammar import Compare, Field, In, IsNull, Leaf, Like, Node, Regexp, Value, leaves
from bucketmq.events.filters.normal import normal
from bucketmq.events.filters.parser import parse_text
from bucketmq.pipeline.columns import arrow_schema

if TYPE_CHECKING:
    import pyarrow as pa

_NO_EVENT = ObjectEvent(id="", kind="created", key="", at="", source="trigger")
"""Conditions on rows read columns alone."""


class Where:
    """A condition on rows of declared columns. `Invalid` if it cannot be read, or names a column that is not there."""

    def __init__(self, text: str, columns: str) -> None:
        self._schema = arrow_schema(columns)
        self._step: Step = compiled(normal(self._root(text)))

    def rows(self, batch: pa.RecordBatch) -> list[bool]:
        """For each row whether the condition is true of it."""
        needed = batch.select(self._names)
        return [self._step(_NO_EVENT, UNFETCHED, row) == YES for row in needed.to_pylist()]

    def _root(self, text: str) -> Node:
        alone = text.strip().strip("`")
        if alone in self._schema.names:
            if str(self._schema.field(alone).type) != "bool":
                raise Invalid(f"where is {text!r}, a column of no truth values; write {alone} = ..., or IS NOT NULL")
            root: Node = Compare(Field("body", (alone,)), "=", True)
        else:
            root = parse_text(text, self._field)
            for leaf in leaves(root):
                self._check_values(leaf)
        self._names = sorted({str(leaf.field.path[0]) for leaf in leaves(root)})
        if not self._names:
            raise Invalid("where is empty; leave it out, or name a column such as flagged")
        return root

    def _field(self, parts: tuple[str | int, ...]) -> Field:
        """A column, or a field inside it: what filters call a part of the body, the row being the body here."""
        from pyarrow import types

        kind: Any = None
        for part in parts:
            known: Mapping[str, Any] = {field.name: field.type for field in (self._schema if kind is None else kind)}
            if part not in known:
                raise Invalid(f"there is no column {'.'.join(map(str, parts))!r}\nThere are {', '.join(known)}.")
            kind = known[str(part)]
            if part is not parts[-1] and not types.is_struct(kind):
                raise Invalid(f"column {part!r} is {kind} and has no fields\nCompare it as a whole.")
        if _sort(kind) is None:
            raise Invalid(
                f"column {'.'.join(map(str, parts))!r} is {kind}\n"
                "where compares text, numbers and truth values; let a stage give a column of truth values."
            )
        return Field("body", parts)

    def _check_values(self, leaf: Leaf) -> None:
        """A text is never equal to a number: a condition that compares them is never true, which nobody means."""
        kind: Any = self._schema
        for part in leaf.field.path:
            kind = kind.field(part).type
        wanted = _sort(kind)
        assert wanted is not None
        match leaf:
            case Compare(value=value):
                values: tuple[Value, ...] = (value,)
            case In(values=values):
                pass
            case Like() | Regexp():
                values = ("",)
            case IsNull():
                return
        odd = next((each for each in values if _sort_of_value(each) != wanted), None)
        if odd is not None:
            name = ".".join(map(str, leaf.field.path))
            raise Invalid(
                f"column {name!r} is {kind}, which is never compared with {odd!r}\nWrite {_EXAMPLES[wanted]}."
            )


_EXAMPLES = {"text": 'a text, like "x"', "number": "a number, like 5", "truth": "true or false"}


def _sort_of_value(value: Value) -> str:
    if isinstance(value, bool):
        return "truth"
    return "text" if isinstance(value, str) else "number"


def _sort(kind: pa.DataType) -> str | None:
    """With what a column of this type is compared; None if with nothing."""
    from pyarrow import types

    if types.is_boolean(kind):
        return "truth"
    if types.is_string(kind):
        return "text"
    return "number" if types.is_integer(kind) or types.is_floating(kind) else None
