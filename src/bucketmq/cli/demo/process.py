"""What each process of the demo runs: `python -m bucketmq.cli.demo ROLE NAME URL RECORDS SECONDS`."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from pathlib import Path

from bucketmq.cli.demo import plan
from bucketmq.cli.demo.records import FAILED, HANDLED, SENT, Record
from bucketmq.client import Bucket, Delivery, connect

COUNT_EVERY_SECONDS = 0.5


def main(role: str, name: str, url: str, records: str, seconds: str) -> None:
    logging.basicConfig(stream=sys.stderr, format="%(message)s")
    record = Record(Path(records), name)
    with connect(url, probe=False) as bucket:
        threading.Thread(target=_keep_counting, args=(bucket, record, os.getppid()), daemon=True).start()
        if role == "producer":
            produce(bucket, record, int(name.rpartition("-")[2]), float(seconds))
        else:
            work(bucket, record)
    record.count(bucket.requests)


def _keep_counting(bucket: Bucket, record: Record, parent: int) -> None:
    """Write the counts down now and then, and end with the demo if it dies."""
    while os.getppid() == parent:
        record.count(bucket.requests)
        time.sleep(COUNT_EVERY_SECONDS)
    os._exit(1)


def produce(bucket: Bucket, record: Record, producer: int, seconds: float) -> None:
    queue = bucket.queue(plan.QUEUE)
    end, sent = time.monotonic() + seconds, 0
    while sent < plan.SEND_MESSAGES_MAX and time.monotonic() < end:
        began = time.monotonic()
        numbers = range(sent + 1, sent + 1 + plan.SEND_BATCH)
        bodies = [{"producer": producer, "number": n, "kind": plan.kind_of(n)} for n in numbers]
        record.note(*((SENT, each.id, 0) for each in queue.send_many(bodies)))
        sent += plan.SEND_BATCH
        time.sleep(max(0.0, plan.SEND_EVERY_SECONDS - (time.monotonic() - began)))


def work(bucket: Bucket, record: Record) -> None:
    def handle(delivery: Delivery) -> None:
        kind = delivery.body["kind"]
        if kind == "poison":
            record.note((FAILED, delivery.id, delivery.attempt))
            raise ValueError(f"message {delivery.body['number']} can never be handled")
        time.sleep(plan.SLOW_SECONDS if kind == "slow" else plan.WORK_SECONDS)
        record.note((HANDLED, delivery.id, delivery.attempt))

    bucket.queue(plan.QUEUE).run(handle, concurrency=plan.CONCURRENCY)
