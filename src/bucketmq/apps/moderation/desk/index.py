"""The waiting posts, in memory: listed once, then kept up by events, so that ten thousand of them can be searched.

The first listing goes all round the bucket, stretch by stretch (`survey`); only objects that are new or changed are
read. After that the log of events names the posts to look at again. A few stretches every two minutes find what no
event named: what that costs does not grow with the posts that were ever reviewed, only how long a round takes does. The
register decides about each post: the index may be behind, and a decision that was made on an old view of a post is
refused by `posts.review`.
"""

from __future__ import annotations

import asyncio
import base64
import heapq
import itertools
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from bucketmq import aio
from bucketmq.api.bucket import BucketApi
from bucketmq.apps.moderation import posts, routing
from bucketmq.apps.moderation.desk.survey import survey
from bucketmq.apps.moderation.ids import id_at, key_of
from bucketmq.apps.moderation.places import ESCALATED
from bucketmq.apps.moderation.posts import Entry
from bucketmq.apps.moderation.record import (
    CATEGORIES,
    FLAGGED,
    NEEDS_REVIEW,
    REVIEWED,
    Category,
    Outcome,
    Record,
)
from bucketmq.bucket.port import Missing
from bucketmq.dashboard.follow import Follower
from bucketmq.errors import Invalid
from bucketmq.events.event import seconds_of
from bucketmq.procedures.objects.keys import full_key
from bucketmq.procedures.queues import EVENTS
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.verbs import get_many
from bucketmq.server.place import bus_of, run

PAGE = 50
READ_AT_A_TIME = 64
ITEMS_MAX = 50_000
"""Kept at a time, those waiting longest. The rest follows when some of these are decided."""
TEXT_CHARS_KEPT = 2_000
"""Of each post, for lists and the search; the whole text is read when the post is opened."""
FOLLOW_SECONDS = 1.0
LIST_SECONDS = 120.0
"""How often some of the bucket is listed again, for changes that no event named."""
STRETCHES_MAX = 5
"""Listed each time, of up to 999 objects below each prefix: a million reviewed posts are gone round in seven hours."""
LOOK_AT_A_TIME = 16
DECIDED_MAX = 10_000
BACK_SECONDS = 5.0

WATCHED = (FLAGGED, NEEDS_REVIEW, REVIEWED, ESCALATED)

Sort = Literal["oldest", "newest", "surest", "least-sure"]


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A waiting post as lists show it."""

    id: str
    outcome: Outcome
    stored_at: float
    state: str
    escalated: bool
    revision: int
    text: str
    cut: bool
    """Whether there is more text."""
    media_url: str | None
    categories: tuple[Category, ...]
    violation: bool
    confidence: float
    rationale: str
    doubt: str | None
    model: str
    created_at: str


class Query(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What somebody wants to see."""

    outcome: Literal["", "flagged/", "needs-review/"] = ""
    category: str = ""
    q: str = ""
    """Words that must all be in the text or the id."""
    min: float = 0.0
    """The confidence of the category, or of any if none is named, is at least this."""
    max: float = 1.0
    """And at most this."""
    escalated: bool = False
    sort: Sort = "oldest"
    after: str = ""
    """The cursor of the page before."""
    limit: int = PAGE

    def __post_init__(self) -> None:
        if self.category and self.category not in CATEGORIES:
            raise Invalid(f"there is no category {self.category[:50]!r}; there are {', '.join(CATEGORIES)}")
        if not 0 <= self.min <= self.max <= 1:
            raise Invalid(f"min and max are confidences, 0 to 1, min not above max; not {self.min} and {self.max}")
        if not 1 <= self.limit <= PAGE:
            raise Invalid(f"limit must be 1 to {PAGE}, not {self.limit}")
        if len(self.q) > 200:
            raise Invalid("the search has more than 200 characters")


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A page of waiting posts."""

    items: tuple[Item, ...]
    matching: int
    waiting: int
    escalated: int
    reviewed: int
    generation: int
    """Grows with every change of the index."""
    complete: bool
    """Whether everything was listed at least once."""
    unread: int
    """Posts that were listed and not read yet."""
    left_off: int
    """Posts beyond those that are kept."""
    next: str | None


class Index:
    """The waiting posts of one bucket. Belongs to one event loop."""

    def __init__(self, bucket: aio.Bucket) -> None:
        self._bucket = bucket
        self._bus = bus_of(bucket)
        self._items: dict[str, Item] = {}
        self._names: dict[str, str] = {}
        """Under which name each of them is listed."""
        self._events = Follower(bucket, EVENTS, BACK_SECONDS)
        self._pending: dict[str, None] = {}
        """Posts to look at again, because an event named them."""
        self._decided: OrderedDict[str, int] = OrderedDict()
        """The revision of posts that were seen decided: a listing from before does not bring them back."""
        self._touched: set[str] = set()
        """Posts looked at while a stretch was being listed: what is known of them is newer than the listing."""
        self._work: asyncio.Task[None] | None = None
        self._round = Round()
        self._listed_at = self._followed_at = float("-inf")
        self._lock = asyncio.Lock()
        self.complete = False
        """Whether everything was listed once."""
        self.generation = 0
        self.reviewed = 0
        self.unread = 0
        self.left_off = 0

    async def refresh(self, *, wait_seconds: float = 2.0) -> None:
        """See what is new. Nothing is asked more than once a second; the first listing is waited for a little."""
        loop = asyncio.get_running_loop()
        async with self._lock:
            if loop.time() - self._followed_at > FOLLOW_SECONDS:
                # The log is read before a stretch is listed: nothing falls between the two.
                await self._follow()
                self._followed_at = loop.time()
            due = not self.complete or loop.time() - self._listed_at > LIST_SECONDS
            if self._work is None and (self._pending or due):
                self._work = asyncio.create_task(self._catch_up(list_too=due))
        work = self._work
        if work is not None and (not self._items or (self.complete and self._pending)):
            await asyncio.wait({work}, timeout=wait_seconds)
        if work is not None and work.done():
            if self._work is work:
                self._work = None
            work.result()  # the error is raised to the caller

    async def close(self) -> None:
        if self._work is not None:
            self._work.cancel()
            await asyncio.wait({self._work})

    def get(self, id: str) -> Item | None:
        return self._items.get(id)

    def matching(self, query: Query) -> list[Item]:
        """All that matches, in order."""
        found = [item for item in self._items.values() if _fits(item, query)]
        return sorted(found, key=lambda item: _place(item, query.sort))

    def find(self, query: Query) -> Found:
        """A page of what matches."""
        matching = self.matching(query)
        start = 0
        if query.after:
            last: Place = read_cursor(query.after, Place)
            start = next((n for n, item in enumerate(matching) if _place(item, query.sort) > last), len(matching))
        page = matching[start : start + query.limit]
        more = start + query.limit < len(matching)
        return Found(
            items=tuple(page),
            matching=len(matching),
            waiting=len(self._items),
            escalated=sum(item.escalated for item in self._items.values()),
            reviewed=self.reviewed,
            generation=self.generation,
            complete=self.complete,
            unread=self.unread,
            left_off=self.left_off,
            next=write_cursor(_place(page[-1], query.sort)) if more else None,
        )

    async def look_at(self, id: str) -> posts.PostState:
        """A post as it is now; the index learns of it. Two GETs."""
        seen = await run(self._bucket, posts.look_at(self._bus, id))
        self._learn(seen)
        return seen

    def _learn(self, seen: posts.PostState) -> None:
        self._touched.add(seen.id)
        register, record = seen.register, seen.record
        review = register.review if register is not None else None
        if record is None or seen.outcome not in (FLAGGED, NEEDS_REVIEW) or review is not None:
            if review is not None:
                self._decided[seen.id] = review.revision
                self._decided.move_to_end(seen.id)
                while len(self._decided) > DECIDED_MAX:
                    self._decided.popitem(last=False)
            name = self._names.get(seen.id)
            if self._drop(seen.id) and review is not None:
                self.reviewed += 1
                self._round.reviewed += name is not None and name <= self._round.after
            return
        if self._decided.pop(seen.id, None) == record.revision:  # it was taken back
            self.reviewed -= 1
            self._round.reviewed -= key_of("", seen.id) <= self._round.after
        before = self._items.get(seen.id)
        if before is None and len(self._items) >= ITEMS_MAX:
            self.left_off += 1
            return
        kept = before if before is not None and before.outcome == seen.outcome else None
        entry = Entry(
            seen.id,
            "",
            seen.outcome,
            kept.stored_at if kept is not None else _decided_at(seen),
            kept.state if kept is not None and kept.revision == record.revision else "",
            register is not None and register.escalation is not None,
        )
        self._keep(item_of(entry, record, seen.fault))

    def _keep(self, item: Item) -> None:
        if self._items.get(item.id) != item:
            self._items[item.id] = item
            self._names[item.id] = key_of("", item.id)
            self.generation += 1

    def _drop(self, id: str) -> bool:
        """Whether it was there."""
        if self._items.pop(id, None) is None:
            return False
        del self._names[id]
        self.generation += 1
        return True

    async def _follow(self) -> None:
        bodies = await self._events.read()
        if self._events.began_anew:
            # What happened before this place in the log is found by listing.
            self._round, self.complete = Round(), False
            self._decided.clear()
        for body in bodies:
            keys = (body.get("key"), body.get("from_key")) if isinstance(body, dict) else ()
            self._pending |= {id: None for key in keys if isinstance(key, str) and (id := _post_at(key)) is not None}

    async def _catch_up(self, *, list_too: bool) -> None:
        """Look at what events named; then list on: once all round at first, later a few stretches at a time."""
        await self._look_at_pending()
        stretches = 0
        while list_too and (not self.complete or stretches < STRETCHES_MAX):
            stretches += 1
            round_ended = await self._list()
            await self._look_at_pending()
            if round_ended:
                break
        if list_too:
            self._listed_at = asyncio.get_running_loop().time()

    async def _look_at_pending(self) -> None:
        while ids := list(itertools.islice(self._pending, LOOK_AT_A_TIME)):
            await asyncio.gather(*(self.look_at(id) for id in ids))
            for id in ids:
                self._pending.pop(id, None)

    async def _list(self) -> bool:
        """List one stretch and read what is new in it. Whether that was the last one of the round."""
        self._touched.clear()
        after = self._round.after
        stretch = await run(self._bucket, survey(self._bus, after))
        there = {entry.id for entry in stretch.entries}
        end = stretch.end
        inside = [id for id, name in self._names.items() if name > after and (not end or name <= end)]
        for id in inside:
            if id not in there and id not in self._touched:
                self._drop(id)
        await self._read_new(stretch.entries)
        self._round.after = end
        self._round.reviewed += stretch.reviewed
        if not end or not self.complete:
            self.reviewed, self.left_off = self._round.reviewed, self._round.left_off
        if end:
            return False
        self._round, self.complete = Round(), True
        return True

    async def _read_new(self, entries: tuple[Entry, ...]) -> None:
        wanted = [entry for entry in entries if not self._knows(entry)]
        room = ITEMS_MAX - len(self._items)
        if len(wanted) > room:
            wanted = self._oldest(wanted)
        for start in range(0, len(wanted), READ_AT_A_TIME):
            self.unread = len(wanted) - start
            batch = [entry for entry in wanted[start : start + READ_AT_A_TIME] if entry.id not in self._touched]
            for item in await run(self._bucket, _read(self._bus, batch)) if batch else ():
                if item.id not in self._touched and item.revision > self._decided.get(item.id, 0):
                    self._keep(item)
        self.unread = 0

    def _oldest(self, wanted: list[Entry]) -> list[Entry]:
        """Those of them that have been waiting long enough to be kept; what is newer than all that makes room."""
        have = [(item.stored_at, id) for id, item in self._items.items()]
        kept = {id for _, id in heapq.nsmallest(ITEMS_MAX, [*have, *((each.stored_at, each.id) for each in wanted)])}
        self._round.left_off += len(have) + len(wanted) - len(kept)
        for _, id in have:
            if id not in kept:
                self._drop(id)
        return [each for each in wanted if each.id in kept]

    def _knows(self, entry: Entry) -> bool:
        """Whether there is no need to read the object. Being escalated is seen in the listing."""
        item = self._items.get(entry.id)
        if item is None or (item.outcome, item.state) != (entry.outcome, entry.state):
            return False
        if item.escalated != entry.escalated and entry.id not in self._touched:
            self._keep(msgspec.structs.replace(item, escalated=entry.escalated))
        return True


class Round(msgspec.Struct):
    """How far one way round the bucket has come."""

    after: str = ""
    """The name after which the next stretch begins."""
    reviewed: int = 0
    left_off: int = 0


def _post_at(key: str) -> str | None:
    return next((id for prefix in WATCHED if (id := id_at(prefix, key)) is not None), None)


def _decided_at(seen: posts.PostState) -> float:
    decision = seen.register.decision if seen.register is not None else None
    try:
        return seconds_of(decision.at) if decision is not None else 0.0
    except ValueError:
        return 0.0


def _read(bus: BucketApi, entries: list[Entry]) -> Procedure[list[Item]]:
    bucket = yield from bus.open()
    found = yield from get_many([full_key(bucket, entry.key) for entry in entries])
    items = []
    for entry, there in zip(entries, found, strict=True):
        if not isinstance(there, Missing):
            reading = routing.read(there.body, id=entry.id)
            items.append(item_of(entry, reading.record, reading.fault))
    return items


def item_of(entry: Entry, record: Record, fault: str | None) -> Item:
    return Item(
        id=entry.id,
        outcome=entry.outcome,
        stored_at=entry.stored_at,
        state=entry.state,
        escalated=entry.escalated,
        revision=record.revision,
        text=record.text[:TEXT_CHARS_KEPT],
        cut=len(record.text) > TEXT_CHARS_KEPT,
        media_url=record.media_url,
        categories=record.categories[: len(CATEGORIES)],
        violation=record.violation,
        confidence=record.confidence,
        rationale=record.rationale[:TEXT_CHARS_KEPT],
        doubt=fault or record.doubt,
        model=record.model[:200],
        created_at=record.created_at[:40],
    )


def _fits(item: Item, query: Query) -> bool:
    if query.outcome and item.outcome != query.outcome:
        return False
    if query.escalated and not item.escalated:
        return False
    if query.category:
        found = next((each for each in item.categories if each.name == query.category), None)
        if found is None or not (found.flagged or query.min) or not query.min <= found.confidence <= query.max:
            return False
    elif (query.min or query.max < 1) and not query.min <= item.confidence <= query.max:
        return False
    text = f"{item.id}\n{item.text}".casefold() if query.q else ""
    return all(word in text for word in query.q.casefold().split())


Place = tuple[float, str]


def _place(item: Item, sort: Sort) -> Place:
    """Where an item is in the order: no two have the same."""
    match sort:
        case "oldest":
            return item.stored_at, item.id
        case "newest":
            return -item.stored_at, item.id
        case "surest":
            return -item.confidence, item.id
        case "least-sure":
            return item.confidence, item.id


def write_cursor(place: tuple[object, ...]) -> str:
    """Where a page ends, for the next one."""
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode()


def read_cursor(text: str, kind: Any) -> Any:
    try:
        return msgspec.json.decode(base64.urlsafe_b64decode(text), type=kind)
    except ValueError:  # of the base64, of the JSON, and of its shape
        raise Invalid("the cursor is not valid; start with the first page") from None


def as_json(items: Iterable[Item]) -> list[dict[str, Any]]:
    """Items for the page: without the address of the image, which the browser does not need."""
    shown = []
    for item in items:
        row: dict[str, Any] = msgspec.to_builtins(item)
        row["has_media"] = row.pop("media_url") is not None
        del row["state"]
        shown.append(row)
    return shown
