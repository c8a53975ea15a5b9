"""Frames: where the fields of plain lines lie, found for many lines at once and without an object for any field.

A plain line is as senders write most of them, with these fields in this order and no others:

    {"id":"...","at":"2026-11-16T12:00:00.000Z","key":"...","body":...}

`key` may be missing. There is no escape in id and key, and the time is as wide as here. The words between the fields
are compared eight bytes at a time. What is left of a line must be one JSON value: each body is checked to be one, and
so nothing follows it, unless the segment is vouched for. Other lines are not looked at here: `bucketmq.spark.read.rows`
decodes them.
"""

from __future__ import annotations

import re

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bucketmq.pipeline.texts import Numbers, are_values, held_by, is_utf8

ARRAY_BYTES_MAX = 1 << 31
"""So many bytes fit into one Arrow array of the kind that Spark takes."""

SIZES_TRIED = 16
"""Ids have few lengths, and so have most keys. Where a text ends is found for all lines that have one of them at once,
then for one line after the other."""


_quote = re.compile(b'"')
_plain = re.compile(rb'\{"id":"[^"\\]*","at":"[^"\\]{24}"(,"key":"[^"\\]*")?,"body":')

_TIME = pa.timestamp("us", "UTC")
_TIME_SIZE = len("2026-11-16T12:00:00.000Z")


def _word(text: bytes) -> int:
    return int.from_bytes(text, "little")


_ID, _AT, _KEY, _BODY = map(_word, (b'{"id":"\0', b'","at":"', b'","key":', b'","body"'))
_ID_BYTES = _word(b"\xff" * 7)


class Frames(msgspec.Struct, frozen=True):
    """The plain lines among some lines: which ones they are, and their columns."""

    places: Numbers
    """Which lines are plain, counted from 0."""
    ids: pa.Array
    times: pa.Array
    keys: pa.Array
    bodies: pa.Array
    """Their JSON, as text."""
    rest: bytes
    """The other lines."""


def find(data: memoryview, ends: Numbers, *, vouched: bool = False) -> Frames | None:
    """The frames of lines that end there; None if all of them are to be decoded: as the first is not plain and
    neighbours are alike, or because something may be wrong with them, which the decoder can tell best. Lines that are
    `vouched` for are messages in UTF-8 whose body comes last."""
    if not _plain.match(data) or len(data) >= ARRAY_BYTES_MAX or not (vouched or is_utf8(data)):
        return None
    return _Lines(data, ends).frames(vouched=vouched)


class _Lines:
    """Where everything lies in the lines, supposed that all are plain, and which ones really are."""

    def __init__(self, data: memoryview, ends: Numbers) -> None:
        self._data = data
        self._bytes = np.frombuffer(data, np.uint8)
        self._words = np.ndarray(len(data) - 7, "<u8", data, 0, (1,))
        """The eight bytes from each place on."""
        self._begins = np.concatenate([[0], ends[:-1]])
        self._ends = ends - len("}\n")
        self._ids = self._begins + len('{"id":"')
        self._id_ends = self._find(self._ids, _AT)
        self._times = self._id_ends + len('","at":"')
        self._time_ends = self._times + _TIME_SIZE
        self._keyed = self._read(self._time_ends, _KEY)
        self._keys = np.where(self._keyed, self._time_ends + len('","key":"'), self._time_ends)
        self._key_ends = self._find_key_ends()
        self._bodies = self._key_ends + len('","body":')

    def frames(self, *, vouched: bool) -> Frames | None:
        there = np.flatnonzero(self._framed())
        ids, keys = self._texts(self._ids, self._id_ends, there), self._texts(self._keys, self._key_ends, there)
        odd = _odd(ids) | _odd(keys)
        if odd.any():
            there = there[~odd]
            ids, keys = ids.filter(pa.array(~odd)), keys.filter(pa.array(~odd))
        bodies, times = self._texts(self._bodies, self._ends, there), self._parsed_times(there)
        if times is None or not (vouched or are_values(bodies)):
            return None
        keys = _without(keys, ~self._keyed[there])
        bodies = _without(bodies, pc.equal(bodies, "null").to_numpy(zero_copy_only=False))
        return Frames(there, ids, times, keys, bodies, self._others(there))

    def _framed(self) -> Numbers:
        """Which lines have the words of a plain one. An empty key would be none that anybody sends."""
        found: Numbers = self._read(self._begins, _ID, _ID_BYTES)
        found &= (self._id_ends > 0) & (self._key_ends > 0) & (self._bodies < self._ends)
        found &= self._is(self._bodies - 1, ":") & (~self._keyed | self._is(self._keys - 1, '"'))
        found &= self._is(self._ends, "}")
        return found

    def _find_key_ends(self) -> Numbers:
        """Where the keys end, or the times of lines without: before the word that comes ahead of a body. 0 if it does
        not come."""
        ends = self._find(self._keys, _BODY, self._keyed)
        keyless = np.flatnonzero(~self._keyed)
        ends[keyless] = np.where(self._read(self._time_ends[keyless], _BODY), self._time_ends[keyless], 0)
        return ends

    def _find(self, begins: Numbers, after: int, wanted: Numbers | None = None) -> Numbers:
        """Where the texts that begin there end: at a quote that is followed as in this word. 0 if they do not."""
        ends = np.zeros_like(begins)
        left = np.arange(len(begins)) if wanted is None else np.flatnonzero(wanted)
        for _ in range(SIZES_TRIED):
            if not len(left):
                return ends
            first = int(begins[left[0]])
            tried = begins[left] + (self._next_quote(first) - first)
            fits = self._read(tried, after)
            ends[left[fits]] = tried[fits]
            fits[0] = True  # or this line is not plain, and done with
            left = left[~fits]
        tried = np.array([self._next_quote(begin) for begin in begins[left].tolist()], np.int64)
        ends[left] = np.where(self._read(tried, after), tried, 0)
        return ends

    def _next_quote(self, begin: int) -> int:
        found = _quote.search(self._data, begin)
        return found.start() if found else -1

    def _parsed_times(self, there: Numbers) -> pa.Array | None:
        """The times; None if one of them is not a time. Neighbours mostly have the same, which is parsed once."""
        texts = np.ndarray(len(self._data) - _TIME_SIZE + 1, f"V{_TIME_SIZE}", self._data, 0, (1,))[self._times[there]]
        first, second, third = texts.view("<u8").reshape(-1, 3).T
        new = np.ones(len(there), np.bool_)
        new[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1]) | (third[1:] != third[:-1])
        try:
            different = self._texts(self._times, self._time_ends, there[new]).cast(_TIME)
        except pa.ArrowInvalid:
            return None
        return different.take(pa.array(np.cumsum(new) - 1))

    def _texts(self, begins: Numbers, ends: Numbers, there: Numbers) -> pa.Array:
        """Slices of the lines: every other text of an array that has what lies between them as texts, too."""
        if not len(there):
            return pa.array([], pa.string())
        bounds = np.empty(2 * len(there), np.int32)
        bounds[::2], bounds[1::2] = begins[there], ends[there]
        buffers = [None, pa.py_buffer(bounds), pa.py_buffer(self._data)]
        both = pa.Array.from_buffers(pa.string(), len(bounds) - 1, buffers)
        return both.take(pa.array(np.arange(0, len(bounds), 2, dtype=np.int32)))

    def _others(self, there: Numbers) -> bytes:
        if len(there) == len(self._begins):
            return b""
        others = np.setdiff1d(np.arange(len(self._begins)), there, assume_unique=True)
        begins, ends = self._begins[others].tolist(), (self._ends[others] + len("}\n")).tolist()
        return b"".join([self._data[begin:end] for begin, end in zip(begins, ends, strict=True)])

    def _read(self, places: Numbers, word: int, only: int | None = None) -> Numbers:
        """Whether this word is read there. Place -1 is as good as any that is wrong."""
        found = self._words[np.minimum(places, len(self._words) - 1)]
        same: Numbers = (found if only is None else found & np.uint64(only)) == np.uint64(word)
        return same

    def _is(self, places: Numbers, char: str) -> Numbers:
        same: Numbers = self._bytes[np.minimum(places, len(self._bytes) - 1)] == ord(char)
        return same


def _odd(texts: pa.Array) -> Numbers:
    """Which of these have a quote, an escape or a control character in them: those are not one text as it was sent."""
    held = np.frombuffer(held_by(texts), np.uint8)
    if not ((held == ord('"')) | (held == ord("\\")) | (held < ord(" "))).any():
        return np.zeros(len(texts), np.bool_)
    found: Numbers = pc.match_substring_regex(texts, r'["\\\x00-\x1f]').to_numpy(zero_copy_only=False)
    return found


def _without(texts: pa.Array, missing: Numbers) -> pa.Array:
    return pc.if_else(pa.array(missing), pa.scalar(None, pa.string()), texts) if missing.any() else texts
