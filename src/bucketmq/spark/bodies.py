"""Bodies with a schema: JSON text to structs, and what does not fit into a column of its own.

Strict: a number is not text, a fraction is no integer. A field that does not fit is null and lies, as it was, in the
rescued column together with the fields that the schema does not know; a body that is no object at all lies there whole.
Nothing is lost and no row fails a query.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Sequence
from typing import Annotated, Any

import msgspec
import pyarrow as pa

from bucketmq.errors import Invalid

RESCUED = "_rescued"

_INTEGERS = {pa.int8(): 7, pa.int16(): 15, pa.int32(): 31, pa.int64(): 63}
_KEPT = (bytes, datetime.datetime, datetime.date, decimal.Decimal)


class BodyReader:
    """Parses bodies into structs of one Arrow type."""

    def __init__(self, kind: pa.DataType) -> None:
        if not pa.types.is_struct(kind):
            raise Invalid("bodySchema must be the fields of an object, like 'user string, amount double'")
        self._whole = msgspec.json.Decoder(_struct(kind, "body", exact=True))
        self._exact = {field.name: _python_type(field.type, field.name, exact=True) for field in kind}
        self._loose = {field.name: _python_type(field.type, field.name, exact=False) for field in kind}

    def parse(self, texts: Sequence[bytes | None]) -> tuple[list[dict[str, Any] | None], list[bytes | None]]:
        """The structs, and what is left of each body."""
        found: list[dict[str, Any] | None] = []
        rescued: list[bytes | None] = []
        for text in texts:
            if text is None:
                found.append(None)
                rescued.append(None)
                continue
            try:
                found.append(msgspec.to_builtins(self._whole.decode(text), builtin_types=_KEPT))
                rescued.append(None)
            except msgspec.ValidationError:
                fits, rest = self._rescue(text)
                found.append(fits)
                rescued.append(rest)
        return found, rescued

    def _rescue(self, text: bytes) -> tuple[dict[str, Any] | None, bytes]:
        try:
            fields = msgspec.json.decode(text, type=dict[str, msgspec.Raw])
        except msgspec.ValidationError:
            return None, text
        fits: dict[str, Any] = {}
        for name in self._exact.keys() & fields.keys():
            try:
                fits[name] = _decode(fields[name], self._exact[name])
                del fields[name]
            except msgspec.ValidationError:
                try:  # an object with fields too many inside: what is known of it fits, and all of it is rescued
                    fits[name] = _decode(fields[name], self._loose[name])
                except msgspec.ValidationError:
                    continue
        return fits, msgspec.json.encode(fields)


def _decode(raw: msgspec.Raw, kind: Any) -> Any:
    return msgspec.to_builtins(msgspec.json.decode(raw, type=kind), builtin_types=_KEPT)


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
