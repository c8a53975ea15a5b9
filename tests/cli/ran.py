"""What a command left behind, and a few things that several tests prepare."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from bucketmq.client import Bucket, Queue
from bucketmq.procedures.bulk.publish import publish
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.upkeep.readers import begin_reader


class Ran:
    """What one command left behind."""

    def __init__(self, code: int, out: str, err: str) -> None:
        self.code = code
        self.out = out
        self.err = err

    @property
    def rows(self) -> list[Any]:
        """Standard output as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def row(self) -> Any:
        (row,) = self.rows
        return row

    @property
    def error(self) -> dict[str, str]:
        """The JSON error on standard error."""
        (line,) = [line for line in self.err.splitlines() if line.startswith('{"error"')]
        error: dict[str, str] = json.loads(line)["error"]
        return error

    def __repr__(self) -> str:
        return f"<exit {self.code}>\n{self.out}\n--\n{self.err}"


Cli = Callable[..., Ran]
"""Runs a command in this process: arguments, and what it finds on standard input."""

Shell = Callable[[str], Ran]
"""Runs a shell line in processes of its own."""


def bury(queue: Queue, *reasons: str) -> None:
    """A dead letter for each reason."""
    queue.send_many(reasons)
    for delivery in queue.receive(len(reasons)):
        delivery.bury(delivery.body)
    queue.flush()


def spark_query(bucket: Bucket, *, source: str, reader: str, target: str, txn: str) -> None:
    """What a query that read one queue and wrote to another leaves in both."""

    def run(queue: str, offset: int) -> Procedure[None]:
        opened = yield from bucket.api.queue(queue).open()
        if queue == source:
            yield from begin_reader(opened, reader, {0: offset}, {}, holds=True)
        else:
            yield from publish(opened, txn, 3, [], {source: {"0": offset}})

    for queue in (source, target):
        bucket.run(run(queue, 5))
