"""Arrow arrays of texts: the bytes they hold, and whether these are JSON."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Numbers = np.ndarray[Any, np.dtype[Any]]


class _Object(msgspec.Struct, gc=False):
    """Whatever the fields of an object are, they are looked at and let go."""


_any_object = msgspec.json.Decoder(_Object)
_any_json = msgspec.json.Decoder(msgspec.Raw)


def bounds_of(texts: pa.Array) -> Numbers:
    """Where each text begins in the buffer, and where the last one ends."""
    large = pa.types.is_large_binary(texts.type) or pa.types.is_large_string(texts.type)
    bounds: Numbers = np.frombuffer(texts.buffers()[1], np.int64 if large else np.int32)
    return bounds[texts.offset : texts.offset + len(texts) + 1]


def held_by(texts: pa.Array) -> memoryview:
    """All texts, one after the other, without a copy. What is under a null may be anything."""
    data = texts.buffers()[2]
    if not len(texts) or data is None:
        return memoryview(b"")
    bounds = bounds_of(texts)
    return memoryview(data)[bounds[0] : bounds[-1]]


def are_objects(texts: pa.Array) -> bool:
    """Whether each text is one JSON object, without white space around it. There is no null among them.

    The decoder takes values in a row for lines. Two texts meet as `}{`, which JSON has between two values alone: so if
    there are as many values as texts, each text is one.
    """
    bounds, data = bounds_of(texts), np.frombuffer(texts.buffers()[2] or b"", np.uint8)
    if not len(texts) or (bounds[1:] == bounds[:-1]).any():
        return False
    if (data[bounds[:-1]] != ord("{")).any() or (data[bounds[1:] - 1] != ord("}")).any():
        return False
    found = _decoded(_any_object, held_by(texts))
    return found is not None and len(found) == len(texts)


def are_values(texts: pa.Array) -> bool:
    """Whether each text is one JSON value, without white space around it. There is no null among them.

    The decoder also lets a value go on over several lines. So each must be as long as its own text. Numbers in a row
    are one number, so they need the line feeds between them.
    """
    if are_objects(texts):
        return True
    sizes = pc.binary_length(texts).to_numpy()
    # Not made when this is imported: the first value that Arrow is given makes it import pandas.
    feed, nothing = (pa.scalar(text, pa.large_binary()) for text in (b"\n", b""))
    ended = pc.binary_join_element_wise(texts.cast(pa.large_binary()), feed, nothing)
    found = _decoded(_any_json, held_by(ended))
    if found is None or len(found) != len(sizes):
        return False
    return np.array_equal(np.fromiter(map(len, found), np.int64, len(found)), sizes)


def _decoded(decoder: msgspec.json.Decoder[Any], data: memoryview) -> list[Any] | None:
    try:
        return decoder.decode_lines(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
