"""A program for test_folder.py to kill: it writes for ever and says on stdout what the store has promised to keep.

Every body carries its own checksum and length, so that whoever reads it later can tell whether it is whole.
"""

from __future__ import annotations

import itertools
import os
import random
import sys
import zlib

from bucketmq.bucket.folder import FolderStore
from bucketmq.bucket.port import Object, Written


def sealed(sequence: int, size: int) -> bytes:
    filling = random.Random(sequence).randbytes(size)
    return b"%d %d %d\n" % (sequence, size, zlib.crc32(filling)) + filling


def opened(body: bytes) -> int:
    """The sequence number of a body that is whole."""
    head, _, filling = body.partition(b"\n")
    sequence, size, checksum = map(int, head.split())
    assert len(filling) == size
    assert zlib.crc32(filling) == checksum
    return sequence


def acknowledge(key: str, sequence: int) -> None:
    os.write(1, f"{key} {sequence}\n".encode())


def main(root: str, name: str) -> None:
    store = FolderStore(root)
    sizes = itertools.cycle([10, 100_000, 0, 5_000])
    for sequence in itertools.count():
        key = f"log/{name}/{sequence % 7}/{sequence:08}"
        if isinstance(store.create(key, sealed(sequence, next(sizes))), Written):
            acknowledge(key, sequence)
        advance(store, "heads/shared", next(sizes))


def advance(store: FolderStore, key: str, size: int) -> None:
    found = store.get(key)
    assert isinstance(found, Object)
    sequence = opened(found.body) + 1
    if isinstance(store.replace(key, sealed(sequence, size), found.version), Written):
        acknowledge(key, sequence)


if __name__ == "__main__":
    main(*sys.argv[1:])
