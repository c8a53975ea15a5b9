"""Typed rows: a model in place of a column list. Its columns, rows made models, and models made columns again.

A field that has a default takes it where the column is null: columns cannot tell a null from nothing.
"""

from __future__ import annotations

import dataclasses
import enum
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from bucketmq.errors import Invalid, Unfit
from bucketmq.pipeline.columns import DEPTH_MAX, quoted
from bucketmq.pipeline.fitting import Misshapen
from bucketmq.typed import check_model, fitted, is_model, is_pydantic, plain

if TYPE_CHECKING:
    import pyarrow as pa

_SIMPLE: dict[Any, str] = {
    str: "string",
    bytes: "binary",
    bool: "boolean",
    int: "bigint",
    float: "double",
    datetime: "timestamp",
    date: "date",
    Decimal: "decimal(38,9)",
    UUID: "string",
}


class Field(msgspec.Struct, frozen=True):
    """A field of a model: the name it is read by, its type, and whether it may be left out."""

    name: str
    type: Any
    has_default: bool


def fields_of(model: Any) -> list[Field]:
    """The fields of a model, in their order."""
    check_model(model, "a model")
    if is_pydantic(model):
        return [
            Field(each.validation_alias or each.alias or name, each.annotation, not each.is_required())
            for name, each in model.model_fields.items()
        ]
    hints = typing.get_type_hints(model)
    if issubclass(model, msgspec.Struct):
        return [Field(each.encode_name, hints[each.name], not each.required) for each in msgspec.structs.fields(model)]
    missing = dataclasses.MISSING
    return [
        Field(each.name, hints[each.name], each.default is not missing or each.default_factory is not missing)
        for each in dataclasses.fields(model)
        if each.init
    ]


def columns_of(model: type) -> str:
    """The columns of a model, as Spark writes them. `Invalid` if a field has a type that no column has."""
    return ", ".join(
        f"{quoted(field.name)} {_column(field.type, f'{model.__name__}.{field.name}', 1)}" for field in fields_of(model)
    )


def _column(kind: Any, path: str, depth: int) -> str:
    if depth > DEPTH_MAX:
        raise Invalid(f"{path}: models nest deeper than {DEPTH_MAX}; a column cannot hold itself")
    kind = _bare(kind)
    if kind in _SIMPLE:
        return _SIMPLE[kind]
    if is_model(kind):
        inside = (
            f"{quoted(each.name)}:{_column(each.type, f'{path}.{each.name}', depth + 1)}" for each in fields_of(kind)
        )
        return f"struct<{','.join(inside)}>"
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return _column_of_values([each.value for each in kind], path)
    origin, given = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return _column_of_values(given, path)
    if origin in (list, set, frozenset, Sequence) or (origin is tuple and given[1:] == (...,)):
        return f"array<{_column(given[0], f'{path}[]', depth + 1)}>"
    if origin in (dict, Mapping):
        key, value = (_column(each, f"{path}{{}}", depth + 1) for each in given)
        return f"map<{key},{value}>"
    raise Invalid(
        f"{path} is {kind}, for which there is no column; use str, int, float, bool, bytes, a time, a list, a dict or "
        "a model"
    )


def _bare(kind: Any) -> Any:
    """A type without `Annotated`, `None` and the like: every column may be null."""
    while True:
        origin = typing.get_origin(kind)
        if origin is typing.Annotated:
            kind = typing.get_args(kind)[0]
        elif origin in (typing.Union, types.UnionType):
            others = [each for each in typing.get_args(kind) if each not in (type(None), msgspec.UnsetType)]
            if len(others) != 1:
                return kind
            kind = others[0]
        else:
            return kind


def _column_of_values(values: Iterable[Any], path: str) -> str:
    kinds = {type(each) for each in values}
    if len(kinds) != 1 or (kind := kinds.pop()) not in (str, int, bool):
        raise Invalid(f"{path} has values of several kinds, for which there is no column")
    return _SIMPLE[kind]


def models_of(batch: pa.RecordBatch, model: type) -> tuple[dict[int, Any], dict[int, str]]:
    """The rows as models, and what does not fit: both by their places."""
    made: dict[int, Any] = {}
    failed: dict[int, str] = {}
    for place, row in enumerate(batch.to_pylist()):
        try:
            made[place] = fitted(_present(row, model), model)
        except Unfit as error:
            failed[place] = str(error)
    return made, failed


def _present(row: Any, kind: Any) -> Any:
    """A value without nulls where there is a default, and with maps as they are in Python."""
    kind = _bare(kind)
    if row is None:
        return None
    if is_model(kind):
        fields = {field.name: field for field in fields_of(kind)}
        return {
            name: _present(value, fields[name].type)
            for name, value in row.items()
            if name in fields and (value is not None or not fields[name].has_default)
        }
    origin, given = typing.get_origin(kind), typing.get_args(kind)
    if origin in (dict, Mapping):
        return {key: _present(value, given[1]) for key, value in row}
    if isinstance(row, list) and given:
        return [_present(each, given[0]) for each in row]
    return row


def batch_of_models(returned: Any, model: type, schema: pa.Schema, what: str) -> pa.RecordBatch:
    """What a stage returned, as columns."""
    import pyarrow as pa

    if not isinstance(returned, list | tuple):
        raise Misshapen(f"{what} is {type(returned).__name__}; it should be a list of {model.__name__}")
    odd = next((each for each in returned if not isinstance(each, model)), None)
    if odd is not None:
        raise Misshapen(f"{what} has a {type(odd).__name__} among its rows; all should be {model.__name__}")
    return pa.RecordBatch.from_pylist([plain(each) for each in returned], schema=schema)
