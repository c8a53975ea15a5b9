"""Promise: a bucket tells where it lies and what time it is there, and carries out what other programs bring along."""

from __future__ import annotations

from typing import Any

from procedures.world import PREFIX, World

from bucketmq.procedures.requests import Procedure


def test_a_bucket_tells_where_it_lies(world: World, bucket: Any) -> None:
    assert bucket.prefix == PREFIX
    assert bucket.store is world.store


def test_the_time_is_the_stores(world: World, bucket: Any) -> None:
    world.advance(1000)
    assert abs(bucket.now_seconds - world.now()) < 5


def test_a_procedure_of_another_program_is_carried_out(blocking: World) -> None:
    bucket = blocking.connect()

    def twice() -> Procedure[list[bytes]]:
        yield from bucket.api.put("a", b"1")
        first = yield from bucket.api.get("a")
        yield from bucket.api.put("a", b"2")
        return [first.body, (yield from bucket.api.get("a")).body]

    assert bucket.run(twice()) == [b"1", b"2"]
