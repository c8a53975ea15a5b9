"""What an editor and mypy must refuse. A line that says `error:` is one error with these words; there are no others."""

from __future__ import annotations

import bucketmq
from bucketmq import aio

bucket = bucketmq.connect("memory://", regoin="eu-1")  # error: "regoin"
queue = bucket.queue("jobs", lease_second=30)  # error: "lease_second"
queue = bucket.queue("jobs", attempts_max="three")  # error: incompatible type "str"

queue.send(1, dely_seconds=3)  # error: "dely_seconds"
queue.send_many([1], dedup_key="a")  # error: "dedup_key"
queue.receive(10, wait=5)  # error: "wait"
queue.run(print, concurency=2)  # error: "concurency"
bucket.put("a", "x", if_versoin="1")  # error: "if_versoin"
bucket.rules.add("r", to="queue:jobs", retries=3)  # error: "retries"
bucket.existing_queue("jobs", shards=2)  # error: "shards"


@bucket.watch("", concurency=2)  # error: "concurency"
def route(change: bucketmq.Change) -> None:
    change.move("b", overwrite=True)  # error: "overwrite"


@queue.handler
def handle(delivery: bucketmq.Delivery) -> None:
    delivery.retry(delay=3)  # error: "delay"


@queue.handler  # error: incompatible type
async def of_the_other_facade(delivery: aio.Delivery) -> None: ...


handle.run(prefech=3)  # error: "prefech"


async def awaited() -> None:
    there = aio.connect("memory://")
    await there.queue("jobs", shard=2).send(1)  # error: "shard"
    await there.queue("jobs").send(1, keey="a")  # error: "keey"
    there.queue("jobs").send(1)  # error: must be used
