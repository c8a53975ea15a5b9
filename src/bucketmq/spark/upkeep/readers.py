"""What a queue knows of queries, forgotten by hand: readers of its log, and transactions that wrote to it."""

from __future__ import annotations

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


def find(url: str, queue: str, name: str, *, txn: bool = False) -> Reader | Publication:
    """How far the reader `name` of a queue has come, or what the queue remembers of a transaction that wrote to it;
    `NotFound` if there is none."""
    found = opened(place_of(url, queue, {}))
    if txn:
        return found.run(register_of(found.queue, check_name(name, "txn")))
    return found.run(find_reader(found.queue, name))


def forget(url: str, queue: str, name: str, *, txn: bool = False) -> Reader | Publication:
    """Delete that; returns what it was. From then on a reader holds back nothing.

    For queries and loads that ended for good. A query that goes on makes its reader again, and what was trimmed
    meanwhile is gone; a batch that was published would be published once more.
    """
    known = find(url, queue, name, txn=txn)
    found = opened(place_of(url, queue, {}))
    found.run((forget_register if txn else forget_reader)(found.queue, name))
    return known


def register_of(queue: OpenQueue, txn: str) -> Procedure[Publication]:
    """What the queue remembers of a transaction; `NotFound` if nothing."""
    found = yield from get_document(Publication, queue.keys.publication(txn))
    if found is None:
        raise NotFound(f"{queue.name!r} has no register of {txn!r}; look below {queue.keys.publications}")
    return found[0]
