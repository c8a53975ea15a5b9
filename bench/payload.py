"""The bodies that are sent: about 200 bytes of JSON, as in the measurements of other queues."""

from __future__ import annotations

from typing import Any

TEXT = "the quick brown fox jumps over the lazy dog, then has a rest and a look around before it goes on"


def body(number: int) -> dict[str, Any]:
    return {"n": number, "kind": "order.created", "user": "user-4711", "text": TEXT, "price": 12.5, "tags": ["a", "b"]}


def batch(start: int, count: int) -> list[dict[str, Any]]:
    return [body(number) for number in range(start, start + count)]


def checksum(count: int) -> int:
    """What the numbers of `count` bodies add up to: a cheap sign that each came exactly once."""
    return count * (count - 1) // 2
