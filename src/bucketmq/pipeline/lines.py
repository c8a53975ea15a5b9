"""Lines: what the sink writes, put together of whole columns of JSON texts. Byte for byte what `log.segment` encodes.

A column of texts is an Arrow array of binary, with offsets that hold any size. No request is made here, and which
column of a row means what is `bucketmq.pipeline.letters`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketmq.errors import Invalid
from bucketmq.log import bodies
from bucketmq.pipeline.texts import Numbers, are_values, bounds_of, held_by

_DIGITS = 100
_LOOKED_AT = 1310 * _DIGITS
"""Bytes that are looked at together, few enough for the processor's cache."""


def joined(*columns: Any) -> pa.Array:
    """The texts of each row one after the other. A column may also be one text for all rows; null is not text."""
    pieces: list[Any] = []
    for each in columns:
        if isinstance(each, bytes) and pieces and isinstance(pieces[-1], bytes):
            pieces[-1] += each
        else:
            pieces.append(each)
    made = [pa.scalar(each, pa.large_binary()) if isinstance(each, bytes) else each for each in [*pieces, b""]]
    return pc.binary_join_element_wise(*made, null_handling="replace", null_replacement=b"")


def optional(name: bytes, texts: pa.Array, there: pa.Array) -> pa.Array:
    """A field of the line in those rows that have it."""
    field = joined(b',"' + name + b'":', texts)
    return field if there.true_count == len(there) else pc.if_else(there, field, pa.scalar(None, pa.large_binary()))


def numbers(first: int, count: int) -> pa.Array:
    """The numbers from `first` on, as texts."""
    return pa.array(np.arange(first, first + count)).cast(pa.large_string()).cast(pa.large_binary())


def encoded(values: Sequence[Any]) -> pa.Array:
    """The JSON text of each value; `Invalid` for what has none."""
    return _not_too_deep(_cut(bodies.encode_bodies(values)))


def texts_of(column: pa.Array) -> list[Any]:
    """The JSON text of each value of a column, in pieces for `joined`: the bytes that `encoded` makes of the values,
    without making the values wherever Arrow can join texts itself."""
    if _depth(column.type) > bodies.DEPTH_MAX:
        raise Invalid(f"a body of this type is nested deeper than {bodies.DEPTH_MAX}; flatten it")
    try:
        return _pieces(column)
    except Invalid:
        bodies.check_finite(values_of(column), b"null")  # names the row and the field, which a piece does not know
        raise


def _pieces(column: pa.Array) -> list[Any]:
    kind = column.type
    if pa.types.is_string(kind):
        made = quoted(column)
    elif pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        made = [column.cast(pa.large_string()).cast(pa.large_binary())]
    elif pa.types.is_struct(kind) and kind.num_fields:
        made = _of_struct(column)
    elif pa.types.is_list(kind):
        made = _of_list(column)
    else:
        return [encoded(values_of(column))]
    if not column.null_count:
        return made
    return [pc.if_else(column.is_valid(), joined(*made), pa.scalar(b"null", pa.large_binary()))]


def _of_struct(column: pa.StructArray) -> list[Any]:
    names = [field.name for field in column.type]
    _row_type(tuple(names))  # refuses two of one name
    made: list[Any] = []
    for name, inner in zip(names, column.flatten(), strict=True):
        made += [b"," if made else b"{", msgspec.json.encode(name), b":", *_pieces(inner)]
    return [*made, b"}"]


def _of_list(column: pa.ListArray) -> list[Any]:
    bounds = np.zeros(len(column) + 1, np.int64)
    np.cumsum(pc.list_value_length(column).fill_null(0).to_numpy(), out=bounds[1:])
    inner = column.flatten()
    texts = joined(*_pieces(inner)) if len(inner) else pa.array([], pa.large_binary())
    items = pa.LargeListArray.from_arrays(pa.array(bounds), texts)
    return [b"[", pc.binary_join(items, pa.scalar(b",", pa.large_binary())), b"]"]


def _depth(kind: pa.DataType) -> int:
    """How deep the values of a type are nested, at most."""
    return 1 + max((_depth(kind.field(place).type) for place in range(kind.num_fields)), default=0)


def checked(column: pa.Array) -> pa.Array:
    """A column of JSON that others wrote, as it is; what goes over several lines is made compact. `Invalid` if one is
    not JSON, or has a number that no worker could read. Spaces may stay: readers look for names of fields in lines
    without decoding them, but not in bodies."""
    texts = column.cast(pa.large_binary())
    if texts.null_count:
        texts = texts.fill_null(b"null")
    if not are_values(texts) or any(feed in bytes(held_by(texts)) for feed in (b"\n", b"\r")):
        texts = _cut(b"".join([_line(text) for text in texts.to_pylist()]))
    return _without_huge_numbers(_not_too_deep(texts))


def quoted(column: pa.Array) -> list[Any]:
    """A column of texts as JSON, for `joined`; nulls may become anything."""
    texts = column.cast(pa.large_binary())
    held = np.frombuffer(held_by(texts), np.uint8)
    if ((held == ord('"')) | (held == ord("\\")) | (held < ord(" "))).any():
        return [encoded(column.to_pylist())]
    return [b'"', texts, b'"']


def bytes_of(texts: pa.Array) -> bytes:
    """All texts, one after the other."""
    return bytes(held_by(texts))


def values_of(column: pa.Array) -> list[Any]:
    """The values of a column as JSON has them. Structs are put together of columns, which spares a dictionary for each
    row."""
    kind = column.type
    if pa.types.is_struct(kind) and kind.num_fields:
        made = list(map(_row_type(tuple(field.name for field in kind)), *map(values_of, column.flatten())))
        if column.null_count:
            return [row if there else None for row, there in zip(made, column.is_valid().to_pylist(), strict=True)]
        return made
    if _has_maps(kind):
        return [plain(value, kind) for value in column.to_pylist()]
    return list(column.to_pylist())


def _has_maps(kind: pa.DataType) -> bool:
    inner = [kind.field(place).type for place in range(kind.num_fields)]
    return bool(pa.types.is_map(kind)) or any(map(_has_maps, inner))


@functools.cache
def _row_type(names: tuple[str, ...]) -> type[msgspec.Struct]:
    """A struct with these fields; a column may be named like no attribute can."""
    if len(set(names)) < len(names):
        raise Invalid(f"a struct has two fields of one name among {', '.join(names)}; rename one")
    attributes = [f"f{place}" for place in range(len(names))]
    fields = [(attribute, Any) for attribute in attributes]
    return msgspec.defstruct("Row", fields, rename=dict(zip(attributes, names, strict=True)), gc=False)


def plain(value: Any, kind: pa.DataType) -> Any:
    """One value as JSON has it: maps come out of Arrow as pairs; in JSON they are objects."""
    if value is None:
        return None
    if pa.types.is_map(kind):
        return {str(name): plain(item, kind.item_type) for name, item in value}
    if pa.types.is_struct(kind):
        return {field.name: plain(value[field.name], field.type) for field in kind}
    if pa.types.is_list(kind):
        return [plain(item, kind.value_type) for item in value]
    return value


def _cut(data: bytes) -> pa.Array:
    """Lines as a column of texts without line feeds. JSON has none but between tokens, and these are compact."""
    ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
    offsets = np.zeros(len(ends) + 1, np.int64)
    offsets[1:] = ends - np.arange(len(ends))
    data = data.replace(b"\n", b"")
    return pa.Array.from_buffers(pa.large_binary(), len(ends), [None, pa.py_buffer(offsets), pa.py_buffer(data)])


def _not_too_deep(texts: pa.Array) -> pa.Array:
    """The same; `Invalid` if one is nested too deep. Short ones cannot be."""
    long = pc.greater(pc.binary_length(texts), 2 * bodies.DEPTH_MAX)
    if long.true_count:
        for text in texts.filter(long).to_pylist():
            bodies.check_depth(text)
    return texts


def _without_huge_numbers(texts: pa.Array) -> pa.Array:
    """The same; `Invalid` if one has a number that is JSON and cannot be read: it would stop its whole segment."""
    bounds = bounds_of(texts)
    rows = np.unique(np.searchsorted(bounds, _maybe_huge(held_by(texts)) + bounds[0], "right") - 1)
    if len(rows):
        try:
            msgspec.json.Decoder().decode_lines(b"\n".join(texts.take(pa.array(rows)).to_pylist()))
        except msgspec.DecodeError as error:
            raise Invalid(f"a body has a number that is too large ({error}); write it as text") from None
    return texts


def _maybe_huge(data: memoryview) -> Numbers:
    """Places in some numbers, among them all that are too large for a double or have more digits than Python reads; and
    in some texts. Such a number has a power of three digits (there may be a sign before), or two hundred digits."""
    found = [np.empty(0, np.int64)]
    everything = np.frombuffer(data, np.uint8)
    for start in range(0, len(data) - len("1e400") + 1, _LOOKED_AT):
        some = everything[start : start + _LOOKED_AT + _DIGITS]
        digit = some - ord("0") < 10
        power = (some[1:-3] | 32) == ord("e")
        for before, after in ((0, 4), (3, 1), (4, 0)):
            power &= digit[before : len(digit) - after]
        # Of two hundred digits in a row a hundred lie between two multiples of a hundred.
        long = digit[: 1 - _DIGITS : _DIGITS] & digit[_DIGITS // 2 : -_DIGITS // 2 + 1 : _DIGITS]
        long &= digit[_DIGITS - 1 :: _DIGITS]
        found += [np.flatnonzero(power) + start, np.flatnonzero(long) * _DIGITS + start]
    return np.concatenate(found)


def _line(text: bytes) -> bytes:
    """One text in one line, and its line feed."""
    try:
        compact = msgspec.json.format(text, indent=-1)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Invalid(
            f"a body is not JSON ({error}): {text[:60]!r}; set bodyFormat to text if bodies are plain text"
        ) from None
    is_line = b"\n" not in text and b"\r" not in text and text.strip() == text
    return (text if is_line else compact) + b"\n"
