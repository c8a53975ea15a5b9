"""What a user can ask of a bucket: its queues, its objects and events, its rules and watchers."""

from __future__ import annotations

from typing import Any, Unpack

from bucketmq.api.objects import ObjectsApi
from bucketmq.api.options import QueueSettings
from bucketmq.api.queue import QueueApi
from bucketmq.api.rules import RulesApi
from bucketmq.api.tables import TableApi
from bucketmq.api.watching import WatchingApi
from bucketmq.procedures.queues import list_queues, names_below
from bucketmq.procedures.requests import Procedure


class BucketApi(WatchingApi, ObjectsApi):
    """One bucket."""

    def queue(self, name: str, **settings: Unpack[QueueSettings]) -> QueueApi[Any]:
        """The queue of this name, made on first use: by `receive` and `stats` too, so a mistyped name makes a queue.

        Settings given here are written to the bucket. Use `existing_queue` where the queue must be there already.
        """
        return QueueApi(self, name, dict(settings))

    def existing_queue(self, name: str) -> QueueApi[Any]:
        """The queue of this name; its first use raises `NotFound` if there is none. Never makes a queue."""
        return QueueApi(self, name, {}, create=False)

    def queues(self) -> Procedure[list[str]]:
        """The names of all queues."""
        return (yield from list_queues((yield from self.open())))

    def table(
        self, name: str, *, key: str | None = None, group: str | None = None, newer_by: str | None = None
    ) -> TableApi:
        """The table of this name. Its first commit makes it, and then `key` must be given: the column that tells rows
        apart. Rows with the same value of the column `group` are replaced and deleted together. With `newer_by`, the
        column of a whole number or a time, an older state of a group that comes late changes nothing."""
        return TableApi(self, name, key, group, newer_by)

    def tables(self) -> Procedure[list[str]]:
        """The names of all tables. One LIST for each of them."""
        return (yield from names_below((yield from self.open()), "tables"))

    @property
    def rules(self) -> RulesApi:
        return RulesApi(self)
