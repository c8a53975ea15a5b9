"""Bodies with a schema: JSON text to structs, and what does not fit into a column of its own.

Strict: a number is not text, a fraction is not an integer. A field that does not fit is null and lies, as it was, in
the rescued column together with the fields that the schema does not know; a body that is not an object lies there
whole. Nothing is lost and no row fails a query.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence
from operator import attrgetter
from typing import Annotated, Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.json

from bucketmq.errors import Corrupt, Invalid
from bucketmq.pipeline.texts import are_objects, held_by

RESCUED = "_rescued"

_INTEGERS = {pa.int8(): 7, pa.int16(): 15, pa.int32(): 31, pa.int64(): 63}
_FLOAT_MAX = float(np.finfo(np.float32).max)
_KEPT = (bytes, datetime.datetime, datetime.date, decimal.Decimal)


class BodyReader:
    """Parses bodies into structs of one Arrow type."""

    def __init__(self, kind: pa.DataType) -> None:
        if not pa.types.is_struct(kind):
            raise Invalid("bodySchema must be the fields of an object, like 'user string, amount double'")
        self._kind = kind
        self._type = _struct(kind, "body", exact=True)
        self._whole = msgspec.json.Decoder(self._type)
        self._exact = {field.name: _python_type(field.type, field.name, exact=True) for field in kind}
        self._loose = {field.name: _python_type(field.type, field.name, exact=False) for field in kind}
        self._attributes = {field.name: f"f{place}" for place, field in enumerate(kind)}
        self._columns = pa.schema(list(kind)) if kind.num_fields and _arrow_reads(kind) else None

    def arrays(self, texts: pa.Array) -> tuple[pa.Array, pa.Array]:
        """From bodies as they are stored (an array of binary, each one JSON value or null) to the structs, and to what
        is left of each body, as text."""
        structs = self._by_arrow(texts)
        if structs is not None:
            return structs, pa.nulls(len(texts), pa.string())
        bodies: list[bytes | None] = texts.to_pylist()
        found = self._all(bodies)
        if found is not None:
            return _array(found, self._kind), pa.nulls(len(found), pa.string())
        parsed = [self._parse(body) for body in bodies]
        rescued = pa.array([rest for _, rest in parsed], pa.binary()).cast(pa.string())
        return _array([fits for fits, _ in parsed], self._kind), rescued

    def _by_arrow(self, texts: pa.Array) -> pa.Array | None:
        """The structs, if every body that there is fits and Arrow's own reader knows the types: no object for any
        value. It wants nothing but objects, and would take two halves for a whole, so these are looked for before."""
        there = texts.drop_null()
        if self._columns is None or not len(there) or not are_objects(there):
            return None
        data = pa.py_buffer(held_by(there))
        try:
            found = pyarrow.json.read_json(
                pa.BufferReader(data),
                pyarrow.json.ReadOptions(use_threads=False, block_size=len(data)),
                pyarrow.json.ParseOptions(explicit_schema=self._columns, unexpected_field_behavior="error"),
            ).combine_chunks()
        except pa.ArrowInvalid:  # at least one does not fit
            return None
        if found.num_rows != len(there):
            return None
        structs = pa.StructArray.from_arrays([column.chunk(0) for column in found.columns], fields=list(self._kind))
        if len(there) == len(texts):
            return structs
        places = np.cumsum(texts.is_valid().to_numpy(zero_copy_only=False)) - 1
        return structs.take(pa.array(places, mask=texts.is_null().to_numpy(zero_copy_only=False)))

    def _all(self, bodies: list[bytes | None]) -> list[Any] | None:
        """The structs, if every body that there is fits: decoded in one go."""
        there = [body for body in bodies if body is not None]
        try:
            found: list[Any] = self._whole.decode_lines(b"\n".join(there))
        except msgspec.DecodeError:
            return None
        if len(found) != len(there):
            return None
        if len(there) == len(bodies):
            return found
        rest = iter(found)
        return [None if body is None else next(rest) for body in bodies]

    def _parse(self, body: bytes | None) -> tuple[Any, bytes | None]:
        """One struct, and what is left of its body."""
        if body is None:
            return None, None
        try:
            return self._whole.decode(body), None
        except msgspec.ValidationError:
            return self._rescue(body)
        except msgspec.DecodeError as error:
            raise Corrupt(f"a large body is not the JSON that it was ({error}): {body[:60]!r}; restore it") from None

    def _rescue(self, body: bytes) -> tuple[Any, bytes]:
        try:
            fields = msgspec.json.decode(body, type=dict[str, msgspec.Raw])
        except msgspec.ValidationError:
            return None, body
        fits: dict[str, Any] = {}
        for name in self._exact.keys() & fields.keys():
            attribute = self._attributes[name]
            try:
                fits[attribute] = msgspec.json.decode(fields[name], type=self._exact[name])
                del fields[name]
            except msgspec.ValidationError:
                try:  # an object with fields too many inside: what is known of it fits, and all of it is rescued
                    fits[attribute] = msgspec.json.decode(fields[name], type=self._loose[name])
                except msgspec.ValidationError:
                    continue
        return self._type(**fits), msgspec.json.encode(fields)


def _arrow_reads(kind: pa.DataType) -> bool:
    """Whether Arrow's reader takes the same JSON for this type as we do."""
    if pa.types.is_struct(kind):
        names = [field.name for field in kind]
        return len(set(names)) == len(names) > 0 and all(_arrow_reads(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _arrow_reads(kind.value_type)
    return kind in _INTEGERS or kind in (pa.float64(), pa.bool_(), pa.string())


def _array(values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    """An array of decoded values. Structs are taken apart field by field: no dictionary for any row."""
    if pa.types.is_struct(kind):
        fields = [_array(_field(values, f"f{place}"), field.type) for place, field in enumerate(kind)]
        nothing = pa.array([value is None for value in values], pa.bool_())
        if not fields:
            return pa.array([None if value is None else {} for value in values], kind)
        return pa.StructArray.from_arrays(fields, fields=list(kind), mask=nothing)
    if _has_structs(kind):  # in lists or maps
        return pa.array([msgspec.to_builtins(value, builtin_types=_KEPT) for value in values], kind)
    return pa.array(values, kind)


def _has_structs(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):  # itself a list of structs, to Arrow
        return _has_structs(kind.item_type)
    inner = [kind.field(place).type for place in range(kind.num_fields)]
    return bool(pa.types.is_struct(kind)) or any(map(_has_structs, inner))


def _field(values: Sequence[Any], attribute: str) -> list[Any]:
    get = attrgetter(attribute)
    try:
        return list(map(get, values))
    except AttributeError:  # some are None
        return [None if value is None else get(value) for value in values]


def _struct(kind: pa.StructType, name: str, *, exact: bool) -> Any:
    fields = [
        (f"f{place}", _python_type(field.type, field.name, exact=exact), None) for place, field in enumerate(kind)
    ]
    names = {f"f{place}": field.name for place, field in enumerate(kind)}  # a column may be named like no attribute can
    return msgspec.defstruct(name, fields, rename=names, forbid_unknown_fields=exact, gc=False, kw_only=True)


def _python_type(kind: pa.DataType, name: str, *, exact: bool) -> Any:
    """What JSON must be to fit into a column of this type."""
    return _plain_type(kind, name, exact=exact) | None


def _plain_type(kind: pa.DataType, name: str, *, exact: bool) -> Any:
    if kind in _INTEGERS:
        limit = 1 << _INTEGERS[kind]
        return Annotated[int, msgspec.Meta(ge=-limit, le=limit - 1)]
    if kind == pa.float32():  # a larger one would become infinite
        return Annotated[float, msgspec.Meta(ge=-_FLOAT_MAX, le=_FLOAT_MAX)]
    if pa.types.is_floating(kind):
        return float
    if pa.types.is_boolean(kind):
        return bool
    if pa.types.is_string(kind):
        return str
    if pa.types.is_binary(kind):
        return bytes
    if pa.types.is_date(kind):
        return datetime.date
    if pa.types.is_timestamp(kind):
        return Annotated[datetime.datetime, msgspec.Meta(tz=bool(kind.tz))]
    if pa.types.is_list(kind):
        return list[_python_type(kind.value_type, name, exact=exact)]  # type: ignore[misc]  # made at run time
    if pa.types.is_map(kind) and pa.types.is_string(kind.key_type):
        return dict[str, _python_type(kind.item_type, name, exact=exact)]  # type: ignore[misc]
    if pa.types.is_struct(kind):
        return _struct(kind, name, exact=exact)
    raise Invalid(f"bodySchema has a field {name!r} of type {kind}, which JSON does not have; use string and cast it")
