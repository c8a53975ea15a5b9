"""Texts to hashed n-grams: runs of 2 to 5 bytes, words, and pairs of words, each a number below `BUCKETS`.

The cheap half of the model. All texts of a batch are hashed at once by arithmetic on arrays, which makes it as fast as
models in compiled languages. Hashes are fixed for ever: the coefficients in the package belong to them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

BITS = 17
BUCKETS = 1 << BITS

_RUNS = (2, 3, 4, 5)
_BASE = np.uint64(0x9E3779B97F4A7C15)
_STEP = np.uint64(0x100000001B3)  # odd, so it has an inverse modulo 2**64
_STEP_BACK = np.uint64(pow(0x100000001B3, -1, 1 << 64))
_PAIR = np.uint64(0xC2B2AE3D27D4EB4F)
_SKIP = np.uint64(0x165667B19E3779F9)
_DIGITS = bytes.maketrans(b"123456789", b"000000000")


def _word_bytes() -> NDArray[np.bool_]:
    """Which bytes make words: letters, digits, what stands for letters, and all of UTF-8 beyond ASCII."""
    table = np.zeros(256, dtype=np.bool_)
    table[[*b"abcdefghijklmnopqrstuvwxyz0123456789'*@#$"]] = True
    table[128:] = True
    return table


_WORD_BYTE = _word_bytes()


class Grams(NamedTuple):
    """The distinct n-grams of texts: those of text `i` are `buckets[starts[i]:starts[i + 1]]`.

    Its words, as often as they occur, are `words[word_starts[i]:word_starts[i + 1]]`: whole hashes, not buckets.
    """

    buckets: NDArray[np.int64]
    starts: NDArray[np.int64]
    words: NDArray[np.uint64]
    word_starts: NDArray[np.int64]


def grams(texts: Sequence[str]) -> Grams:
    """The n-grams of texts that were made plain. Digits count as zeros: it matters that there is a number."""
    if not texts:
        return Grams(np.zeros(0, np.int64), np.zeros(1, np.int64), np.zeros(0, np.uint64), np.zeros(1, np.int64))
    coded = [b" " + text.encode("utf-8", "replace").translate(_DIGITS).replace(b"\0", b" ") + b" \0" for text in texts]
    data = np.frombuffer(b"".join(coded), dtype=np.uint8)
    owner = np.repeat(np.arange(len(texts), dtype=np.int64), [len(each) for each in coded])
    words, whose = _words(data, owner)
    keys = np.concatenate([*_runs(data, owner), *_pairs(words, whose)])
    keys.sort()
    keys = keys[np.append(True, keys[1:] != keys[:-1])]
    every = np.arange(len(texts) + 1, dtype=np.int64)
    starts = np.searchsorted(keys, every << BITS).astype(np.int64)
    return Grams(keys & (BUCKETS - 1), starts, words, np.searchsorted(whose, every).astype(np.int64))


def _key(hashes: NDArray[np.uint64], owner: NDArray[np.int64]) -> NDArray[np.int64]:
    mixed = (hashes ^ (hashes >> np.uint64(29))) * _BASE
    return (owner << BITS) | (mixed >> np.uint64(64 - BITS)).astype(np.int64)


def _runs(data: NDArray[np.uint8], owner: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Every run of 2 to 5 bytes within one text."""
    wide = data.astype(np.uint64) + np.uint64(1)
    inside = data != 0
    hashes, whole, found = wide, inside, []
    for length in range(2, max(_RUNS) + 1):
        hashes = hashes[:-1] * _STEP + wide[length - 1 :]
        whole = whole[:-1] & inside[length - 1 :]
        if length in _RUNS:
            found.append(_key(hashes[whole] + np.uint64(length), owner[: len(hashes)][whole]))
    return found


def _words(data: NDArray[np.uint8], owner: NDArray[np.int64]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """The hash of every word, and whose it is."""
    part = _WORD_BYTE[data]
    edges = np.diff(part.astype(np.int8), prepend=np.int8(0))
    begin, end = np.flatnonzero(edges == 1), np.flatnonzero(edges == -1)
    # Sums of byte * step**place: the difference of two, shifted back to place 0, is the hash of what lies between.
    power = np.cumprod(np.full(len(data), _STEP, dtype=np.uint64))
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum((data.astype(np.uint64) + np.uint64(1)) * power)])
    back = np.cumprod(np.full(len(data), _STEP_BACK, dtype=np.uint64))
    return (sums[end] - sums[begin]) * back[begin], owner[begin]


def _pairs(words: NDArray[np.uint64], whose: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Every word, every pair of neighbours, and every pair with one word between."""
    found = [_key(words, whose)]
    for distance, factor in ((1, _PAIR), (2, _SKIP)):
        same = whose[distance:] == whose[:-distance]
        found.append(_key((words[:-distance] * factor + words[distance:])[same], whose[distance:][same]))
    return found
