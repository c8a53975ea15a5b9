"""Below the trim mark a sender that slept may create a name again. It is not part of the log: nobody may claim it."""

from __future__ import annotations

from typing import Any

import pytest

from bucketmq.client import Bucket
from bucketmq.engines.blocking import Blocking
from bucketmq.engines.perform import Hands, Reply
from bucketmq.procedures.requests import Get, StoreRequest
from procedures.world import PREFIX, World

KEPT = [3, 4, 5]


def expire_first(world: World) -> None:
    """Trimming passes the first segment, and a sender that slept puts another message there."""
    world.overwrite(world.segment(0), world.read(world.segment(0)).replace(b'"body":0', b'"body":"asleep"'))
    world.store.create(world.key("trim/0.json"), b'{"low":3,"format":1,"before":0}\n')


@pytest.fixture
def filled(blocking: World) -> World:
    queue: Any = blocking.connect().queue("jobs")
    queue.send_many(range(3))
    queue.send_many(KEPT)
    return blocking


@pytest.mark.parametrize("wait_seconds", [0, 1], ids=["at once", "patient"])
def test_a_first_claim_takes_nothing_from_below_the_trim_mark(filled: World, wait_seconds: float) -> None:
    expire_first(filled)

    batch = filled.connect().queue("jobs").receive(10, wait_seconds=wait_seconds)

    assert [delivery.body for delivery in batch] == KEPT


class Interrupted(Hands):
    """Hands of a process that something happens to right before it reads one key."""

    def __init__(self, world: World, key: str) -> None:
        super().__init__(world.store)
        self.world, self.key = world, key

    def perform(self, request: StoreRequest) -> Reply:
        if isinstance(request, Get) and request.key == self.key:
            self.key = ""
            expire_first(self.world)
        return super().perform(request)


def test_a_name_that_dies_between_the_head_and_its_segment_is_not_claimed(filled: World) -> None:
    bucket = Bucket(Blocking(Interrupted(filled, filled.segment(0))), PREFIX, probe=False)

    batch = bucket.queue("jobs").receive(10)

    assert [delivery.body for delivery in batch] == KEPT
    bucket.close()
