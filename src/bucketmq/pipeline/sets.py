"""Sets of objects as a source: a row when all objects of a set are there, or at its deadline with what is missing.

A rule gathers (`procedures.rules.fan_in`), and its handler sends each set to a queue, once. The pipeline reads that
queue, so it keeps its place, has dead letters and can be redriven as with any other.
"""

from __future__ import annotations

from typing import Any

import msgspec

from bucketmq.errors import Invalid
from bucketmq.pipeline.columns import MESSAGE_OWN, ddl_of
from bucketmq.procedures.queues import check_queue_name
from bucketmq.procedures.rules.fan_in import Complete, Gather

SET_COLUMNS = {
    "set": "string",
    "values": "map<string,string>",
    "keys": "array<string>",
    "missing": "array<string>",
    "complete": "boolean",
    "versions": "map<string,string>",
    "first_at": "timestamp",
    "last_at": "timestamp",
}
"""A set as a row, and as the body of a message."""

ONCE_SECONDS = 86400.0
"""For so long a set that is sent again, because a process died, is recognised."""


class FromSets(msgspec.Struct, frozen=True, kw_only=True):
    """Sets of objects, each a row when its last object has come, or at its deadline.

    `keys` are key templates such as `parts/{job}/a.json`: keys whose placeholders have the same values are one set.
    Sets are gathered by a rule named like `queue` and sent to that queue; `gather(bucket)` registers it with
    `bucket.run_watchers`, in this process or any other.

    Columns: `set` (its name, the same for the same values), `values` of the placeholders, `keys` that are there,
    `missing` ones, `complete`, `versions` by key, `first_at` and `last_at` (when its objects came); and the message's
    own, as for a queue. A row that is not complete is one whose deadline came first.
    """

    queue: str
    keys: tuple[str, ...]
    deadline_seconds: float | None = None

    def __post_init__(self) -> None:
        check_queue_name(self.queue)
        keys: object = self.keys
        if isinstance(keys, str):
            raise Invalid(f"keys are a tuple of key templates, not {keys!r}; write ({keys!r},)")
        Gather(self.keys, self.deadline_seconds)

    @property
    def columns(self) -> str:
        return ddl_of(SET_COLUMNS | MESSAGE_OWN)

    @property
    def log(self) -> str:
        """The queue that is read."""
        return self.queue

    def gather(self, bucket: Any, *, start: object = "now", **options: Any) -> None:
        """Register the watcher that gathers, on a bucket of either facade. `start` and `options` as for `when_all`."""
        queue = bucket.queue(self.queue, dedup_seconds=ONCE_SECONDS)

        def send(found: Complete) -> Any:
            once = f"{found.name}/{found.began_at}"
            sending = queue.send(body_of(found), key=found.name, dedup_key=once)
            return _done(sending) if hasattr(sending, "__await__") else None

        named = {"name": self.queue, "deadline_seconds": self.deadline_seconds, "start": start, **options}
        bucket.when_all(*self.keys, **named)(send)


async def _done(sending: Any) -> None:
    await sending


def body_of(found: Complete) -> dict[str, Any]:
    """A set as the body of a message."""
    return {
        "set": found.name,
        "values": found.values,
        "keys": list(found.keys),
        "missing": list(found.missing),
        "complete": not found.missing,
        "versions": found.versions,
        "first_at": found.first_at,
        "last_at": found.last_at,
    }
