"""Which `webhook-id`s a mounted handler has dealt with, kept in the bucket: a repeat after a restart is recognised.

One small object for each id, below the period in which it was noted; periods are two days long. An id is looked for in
this period and the one before, so it is remembered for two to four days, as long as our own rules repeat. Older periods
are removed a page at a time, when new ids are noted: what is kept is bounded by what came in four days.
"""

from __future__ import annotations

import hashlib

import msgspec

from bucketmq.api.bucket import BucketApi
from bucketmq.bucket.port import Missing
from bucketmq.log import documents
from bucketmq.log.layout import EventKeys
from bucketmq.procedures.requests import Create, Now, Procedure
from bucketmq.procedures.verbs import delete, get_many, list_page
from bucketmq.queue.settings import FORMAT

PERIOD_SECONDS = 2 * 86400.0
TIDY_EVERY = 100
"""So many ids are noted between two looks for old ones; a look removes up to twice as many."""


class SeenId(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the object holds."""

    id: str
    at: float
    """Seconds since 1970, by the store's clock."""
    format: int = FORMAT


class SeenIds:
    """Those of one handler. `name` tells handlers apart that share a bucket."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._noted = 0

    def has(self, bus: BucketApi, id: str) -> Procedure[bool]:
        """Whether the id was dealt with. Two GETs."""
        bucket = yield from bus.open()
        period = _period((yield from Now()))
        found = yield from get_many([self._key(bucket.prefix, each, id) for each in (period, period - 1)])
        return any(not isinstance(each, Missing) for each in found)

    def note(self, bus: BucketApi, id: str) -> Procedure[None]:
        """Remember an id. One PUT; now and then a LIST and some deletes.

        A write that is refused or lost is left at that: it was noted by somebody else, or a repeat is handled again.
        """
        bucket = yield from bus.open()
        now = yield from Now()
        period = _period(now)
        yield from Create(self._key(bucket.prefix, period, id), documents.encode(SeenId(id, now)))
        self._noted += 1
        if self._noted % TIDY_EVERY == 1:
            yield from self._tidy(bucket.prefix, period)

    def _tidy(self, prefix: str, period: int) -> Procedure[None]:
        root = EventKeys(prefix).seen(self._name)
        page = yield from list_page(root, limit=2 * TIDY_EVERY)
        for entry in page.entries:
            if entry.key < f"{root}{period - 1:08d}/":
                yield from delete(entry.key)

    def _key(self, prefix: str, period: int, id: str) -> str:
        digest = hashlib.sha256(id.encode("utf-8", "surrogatepass")).hexdigest()
        return f"{EventKeys(prefix).seen(self._name)}{period:08d}/{digest}.json"


def _period(now: float) -> int:
    return int(now // PERIOD_SECONDS)
