"""One stretch of the posts that wait for a person, found by listing: four LISTs, however many posts were ever reviewed.

The four prefixes that matter hold the same names (`flagged/p1.json`, `reviewed/p1.json`), so one page of each from the
same name on, cut where the shortest of them ends, says of every post in between whether it waits. Going on from there,
stretch by stretch, comes round the whole bucket. What to do with what was found is `index`'s.
"""

from __future__ import annotations

import msgspec

from bucketmq.api.bucket import BucketApi
from bucketmq.apps.moderation.ids import SUFFIX, id_of
from bucketmq.apps.moderation.places import ESCALATED
from bucketmq.apps.moderation.posts import Entry
from bucketmq.apps.moderation.record import FLAGGED, NEEDS_REVIEW, REVIEWED, Outcome
from bucketmq.bucket.port import Entry as Listed
from bucketmq.procedures.objects.keys import full_key
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.verbs import list_page


class Stretch(msgspec.Struct, frozen=True):
    """What lies after one name, up to and including another."""

    entries: tuple[Entry, ...]
    """The posts that wait."""
    reviewed: int
    """How many posts people have decided."""
    end: str
    """The last name of the stretch; empty when it reached the end of the bucket."""


def survey(bus: BucketApi, after: str) -> Procedure[Stretch]:
    """The next stretch after the name `after`; empty begins at the first. Four LISTs."""
    bucket = yield from bus.open()
    reviewed, reviewed_end = yield from _page(bucket, REVIEWED, after)
    escalated, escalated_end = yield from _page(bucket, ESCALATED, after)
    flagged, flagged_end = yield from _page(bucket, FLAGGED, after)
    unsure, unsure_end = yield from _page(bucket, NEEDS_REVIEW, after)
    # A page that was cut does not show what comes behind it.
    end = min((each for each in (reviewed_end, escalated_end, flagged_end, unsure_end) if each), default="")
    outcomes: tuple[tuple[Outcome, dict[str, Listed]], ...] = ((FLAGGED, flagged), (NEEDS_REVIEW, unsure))
    entries = [
        Entry(id, f"{outcome}{name}", outcome, found.stored_at, _state(found), name in escalated)
        for outcome, page in outcomes
        for name, found in page.items()
        if (not end or name <= end) and name not in reviewed and (id := _id_in(name)) is not None
    ]
    decided = sum((not end or name <= end) and _id_in(name) is not None for name in reviewed)
    return Stretch(tuple(entries), decided, end)


def _page(bucket: OpenBucket, prefix: str, after: str) -> Procedure[tuple[dict[str, Listed], str]]:
    """Names below a prefix, and the last of them if there are more."""
    root = full_key(bucket, prefix)
    page = yield from list_page(root, after=f"{root}{after}" if after else "")
    names = {entry.key.removeprefix(root): entry for entry in page.entries}
    return names, max(names) if page.more else ""


def _id_in(name: str) -> str | None:
    return id_of(name.removesuffix(SUFFIX)) if name.endswith(SUFFIX) else None


def _state(found: Listed) -> str:
    return found.version or f"{found.stored_at}-{found.size_bytes}"
