"""What is a list to the library is given as one: a single thing in its place would be taken apart in silence."""

from __future__ import annotations

from typing import Any

import pytest

from bucketmq.client import Bucket, Queue
from bucketmq.errors import Invalid
from bucketmq.events import filters

SINGLE: list[Any] = ["abc", b"abc", bytearray(b"abc"), memoryview(b"abc"), {"n": 1}, None, 7]


@pytest.mark.parametrize("bodies", SINGLE, ids=lambda each: type(each).__name__)
def test_one_body_is_not_several(queue: Queue, bodies: Any) -> None:
    with pytest.raises(Invalid, match="bodies are a list"):
        queue.send_many(bodies)
    assert queue.peek(10) == []


def test_any_row_of_bodies_is(queue: Queue) -> None:
    for bodies in (["a", "b"], ("a", "b"), (each for each in "ab"), dict.fromkeys("ab").keys()):
        assert len(queue.send_many(bodies)) == 2


@pytest.mark.parametrize("given", ["abc", b"abc", None, 7], ids=str)
def test_one_key_is_not_several_objects(bucket: Bucket, given: Any) -> None:
    verbs: list[Any] = [bucket.put_many, bucket.get_many, bucket.move_many, bucket.delete_many]
    for verb in verbs:
        with pytest.raises(Invalid, match="are a list"):
            verb(given)


@pytest.mark.parametrize("given", [None, 7, b"size > 1", ["size > 1"]], ids=str)
def test_a_filter_is_a_text(bucket: Bucket, given: Any) -> None:
    for read in (bucket.watch, filters.parse):
        with pytest.raises(Invalid, match="a filter is a text"):
            read(given)
