"""Arrow arrays of texts: the bytes they hold, and the JSON values in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

_any_json = msgspec.json.Decoder(msgspec.Raw)
_FEED, _NOTHING = (pa.scalar(text, pa.large_binary()) for text in (b"\n", b""))


def bounds_of(texts: pa.Array) -> Any:
    """Where each text begins in the buffer, and where the last one ends."""
    large = pa.types.is_large_binary(texts.type) or pa.types.is_large_string(texts.type)
    bounds = np.frombuffer(texts.buffers()[1], np.int64 if large else np.int32)
    return bounds[texts.offset : texts.offset + len(texts) + 1]


def held_by(texts: pa.Array) -> memoryview:
    """All texts, one after the other, without a copy. What is under a null may be anything."""
    data = texts.buffers()[2]
    if not len(texts) or data is None:
        return memoryview(b"")
    bounds = bounds_of(texts)
    return memoryview(data)[bounds[0] : bounds[-1]]


def values(texts: pa.Array) -> list[msgspec.Raw] | None:
    """The JSON value that each text is, without white space around it; None if one is none. There is no null in them.

    The decoder takes values in a row for lines as well, and lets one go on over several lines. So each must be as long
    as its own text. Numbers in a row are one number, so they need the line feeds between them.
    """
    sizes = pc.binary_length(texts).to_numpy()
    found = _decoded(held_by(texts))
    if found is None or not _have(found, sizes):
        ended = pc.binary_join_element_wise(texts.cast(pa.large_binary()), _FEED, _NOTHING)
        found = _decoded(held_by(ended))
    return found if found is not None and _have(found, sizes) else None


def _decoded(data: memoryview) -> list[msgspec.Raw] | None:
    try:
        return _any_json.decode_lines(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _have(found: Sequence[msgspec.Raw], sizes: Any) -> bool:
    """Whether these are as long as they should be."""
    return len(found) == len(sizes) and np.array_equal(np.fromiter(map(len, found), np.int64, len(found)), sizes)
