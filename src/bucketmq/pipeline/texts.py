"""Arrow arrays of texts: the bytes they hold, and whether these are text and JSON."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

Numbers = np.ndarray[Any, np.dtype[Any]]

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


def is_utf8(data: memoryview) -> bool:
    """Whether all of it is text."""
    bounds = pa.py_buffer(np.array([0, len(data)], np.int64))
    try:
        pa.Array.from_buffers(pa.large_binary(), 1, [None, bounds, pa.py_buffer(data)]).cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    return True


def are_objects(texts: pa.Array) -> bool:
    """Whether each text is one JSON object, without white space around it. There is no null among them."""
    if not len(texts) or not are_values(texts):
        return False
    firsts = np.frombuffer(texts.buffers()[2], np.uint8)[bounds_of(texts)[:-1]]
    return bool((firsts == ord("{")).all())


def are_values(texts: pa.Array) -> bool:
    """Whether each text is one JSON value, without white space around it. There is no null among them.

    The decoder takes values in a row for lines as well, and lets one go on over several lines: halves of a value, even
    of a text in it, may lie in two texts. So each value must be as long as its own text. Numbers in a row are one
    number, so they need the line feeds between them.
    """
    sizes = pc.binary_length(texts).to_numpy()
    if _have(held_by(texts), sizes):
        return True
    # Not made when this is imported: the first value that Arrow is given makes it import pandas.
    feed, nothing = (pa.scalar(text, pa.large_binary()) for text in (b"\n", b""))
    return _have(held_by(pc.binary_join_element_wise(texts.cast(pa.large_binary()), feed, nothing)), sizes)


def _have(data: memoryview, sizes: Numbers) -> bool:
    """Whether these are JSON values of these sizes."""
    try:
        found = _any_json.decode_lines(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return False
    return len(found) == len(sizes) and np.array_equal(np.fromiter(map(len, found), np.int64, len(found)), sizes)
