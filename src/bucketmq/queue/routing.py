"""Which shard a message goes to."""

from __future__ import annotations

import hashlib


def shard_of(shards: int, key: str | None, turn: int) -> int:
    """A keyed message always goes to its key's shard; others go round.

    The placement is a jump consistent hash: when the count is raised, a key stays where it is or goes to a new shard,
    never from one old shard to another (Lamping and Veach, 2014, arXiv:1406.2294).
    """
    if shards == 1:
        return 0
    if key is None:
        return turn % shards
    state = int.from_bytes(hashlib.blake2b(key.encode(), digest_size=8).digest(), "big")
    shard, candidate = -1, 0
    while candidate < shards:
        shard = candidate
        state = (state * 2862933555777941757 + 1) & 0xFFFFFFFFFFFFFFFF
        candidate = int((shard + 1) * (1 << 31) / ((state >> 33) + 1))
    return shard


def digits_of(dedup_key: str) -> str:
    """The 24 hexadecimal digits that stand for a deduplication key in its register, and say which register that is."""
    return hashlib.blake2b(dedup_key.encode(), digest_size=12).hexdigest()
