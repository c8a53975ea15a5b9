"""What a queue knows of queries, forgotten by hand: readers of its log, and transactions that wrote to it."""

from __future__ import annotations

from collections.abc import Mapping

from bucketmq.errors import NotFound
from bucketmq.procedures.bulk.publish import Publication
from bucketmq.procedures.bulk.publish import forget as forget_register
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.upkeep.readers import Reader, find_reader, forget_reader
from bucketmq.procedures.verbs import get_document
from bucketmq.queue.settings import check_name
from bucketmq.spark.opened import opened
from bucketmq.spark.options import place_of


def find(url: str, queue: str, name: str, *, options: Mapping[str, str] | None = None) -> Reader:
    """How far the reader `name` of a queue has come; `NotFound` if there is none."""
    found = opened(place_of(url, queue, options or {}))
    return found.run(find_reader(found.queue, name))


def forget(url: str, queue: str, name: str, *, options: Mapping[str, str] | None = None) -> Reader:
    """Delete the reader `name` of a queue; returns how far it had come. From then on it holds back nothing.

    For queries that ended for good: one that goes on makes its reader again, and what was trimmed meanwhile is gone.
    """
    found = opened(place_of(url, queue, options or {}))
    return found.run(forget_reader(found.queue, name))


def find_transaction(url: str, queue: str, txn: str, *, options: Mapping[str, str] | None = None) -> Publication:
    """What the queue remembers of the transaction `txn` that wrote to it; `NotFound` if nothing."""
    found = opened(place_of(url, queue, options or {}))
    return found.run(_register(found.queue, txn))


def forget_transaction(url: str, queue: str, txn: str, *, options: Mapping[str, str] | None = None) -> Publication:
    """Delete what a queue remembers of the transaction `txn`; returns it.

    For queries and loads that will never be run again: a batch that was published would be published once more.
    """
    found = opened(place_of(url, queue, options or {}))
    register = found.run(_register(found.queue, txn))
    found.run(forget_register(found.queue, txn))
    return register


def _register(queue: OpenQueue, txn: str) -> Procedure[Publication]:
    key = queue.keys.publication(check_name(txn, "txn"))
    found = yield from get_document(Publication, key)
    if found is None:
        raise NotFound(f"{queue.name!r} has no register of {txn!r}; look below {queue.keys.publications}")
    return found[0]
