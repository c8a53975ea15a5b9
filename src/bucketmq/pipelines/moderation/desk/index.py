"""The waiting posts, in memory: listed once, then kept up by events, so that ten thousand of them can be searched.

A listing finds what is there; only objects that are new or changed are read. Between listings the log of events tells
which posts to look at again. The register decides about each post: the index may be behind, and a decision that was
made on an old view of a post is refused by `posts.review`.
"""

from __future__ import annotations

import asyncio
import base64
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any, Literal

import msgspec

from bucketmq import aio
from bucketmq.bucket.port import Missing
from bucketmq.errors import Invalid
from bucketmq.events.event import seconds_of
from bucketmq.pipelines.moderation import posts, routing
from bucketmq.pipelines.moderation.desk.follow import Follower
from bucketmq.pipelines.moderation.ids import id_at
from bucketmq.pipelines.moderation.posts import ESCALATED, Entry
from bucketmq.pipelines.moderation.record import (
    CATEGORIES,
    FLAGGED,
    NEEDS_REVIEW,
    REVIEWED,
    Category,
    Outcome,
    Record,
)
from bucketmq.procedures.bus import BusApi
from bucketmq.procedures.events import full_key
from bucketmq.procedures.queues import EVENTS
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.verbs import get_many
from bucketmq.server.place import bus_of, run

PAGE = 50
READ_AT_A_TIME = 64
ITEMS_MAX = 50_000
"""Kept at a time, those waiting longest. The rest comes when some of these are decided."""
TEXT_CHARS_KEPT = 2_000
"""Of each post, for lists and the search; the whole text is read when the post is opened."""
FOLLOW_SECONDS = 1.0
LIST_SECONDS = 120.0
"""How often everything is listed again, for changes that no event told of."""
LOOK_MAX = 200
"""More posts than this changed at once: listing is cheaper than looking at each."""
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
    escalated: bool = False
    sort: Sort = "oldest"
    after: str = ""
    """The cursor of the page before."""
    limit: int = PAGE

    def __post_init__(self) -> None:
        if self.category and self.category not in CATEGORIES:
            raise Invalid(f"there is no category {self.category[:50]!r}; there are {', '.join(CATEGORIES)}")
        if not 0 <= self.min <= 1:
            raise Invalid(f"min is a confidence, 0 to 1, not {self.min}")
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
        self._events = Follower(bucket, EVENTS, BACK_SECONDS)
        self._decided: OrderedDict[str, int] = OrderedDict()
        """The revision of posts that were seen decided: a listing from before does not bring them back."""
        self._touched: set[str] = set()
        """Posts looked at while a listing was under way: they are newer than it."""
        self._listing: asyncio.Task[None] | None = None
        self._listed_at = self._followed_at = float("-inf")
        self._lock = asyncio.Lock()
        self.generation = 0
        self.reviewed = 0
        self.unread = 0
        self.left_off = 0

    async def refresh(self, *, wait_seconds: float = 2.0) -> None:
        """See what is new. Nothing is asked more than once a second; the first listing is waited for a little."""
        loop = asyncio.get_running_loop()
        async with self._lock:
            if self._listing is None and loop.time() - self._listed_at > LIST_SECONDS:
                # The log is read before the listing begins: nothing falls between the two.
                await self._events.read()
                self._followed_at = loop.time()
                self._listing = asyncio.create_task(self._list())
            elif loop.time() - self._followed_at > FOLLOW_SECONDS:
                await self._follow()
                self._followed_at = loop.time()
        listing = self._listing
        if listing is not None and not self._items:
            await asyncio.wait({listing}, timeout=wait_seconds)
        if listing is not None and listing.done():
            if self._listing is listing:
                self._listing = None
            listing.result()  # what went wrong is said to whoever asked

    async def close(self) -> None:
        if self._listing is not None:
            self._listing.cancel()
            await asyncio.wait({self._listing})

    def get(self, id: str) -> Item | None:
        return self._items.get(id)

    def find(self, query: Query) -> Found:
        """A page of what matches."""
        matching = [item for item in self._items.values() if _fits(item, query)]
        matching.sort(key=lambda item: _place(item, query.sort))
        start = 0
        if query.after:
            last = _read_cursor(query.after)
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
            unread=self.unread,
            left_off=self.left_off,
            next=_write_cursor(_place(page[-1], query.sort)) if more else None,
        )

    async def look_at(self, id: str) -> posts.Seen:
        """A post as it is now; the index learns of it. Two GETs."""
        seen = await run(self._bucket, posts.look_at(self._bus, id))
        self._learn(seen)
        return seen

    def _learn(self, seen: posts.Seen) -> None:
        self._touched.add(seen.id)
        register, record = seen.register, seen.record
        review = register.review if register is not None else None
        if record is None or seen.outcome not in (FLAGGED, NEEDS_REVIEW) or review is not None:
            if review is not None:
                self._decided[seen.id] = review.revision
                self._decided.move_to_end(seen.id)
                while len(self._decided) > DECIDED_MAX:
                    self._decided.popitem(last=False)
            if self._items.pop(seen.id, None) is not None:
                self.generation += 1
                self.reviewed += review is not None
            return
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
            self.generation += 1

    async def _follow(self) -> None:
        touched: set[str] = set()
        for body in await self._events.read():
            keys = (body.get("key"), body.get("from_key")) if isinstance(body, dict) else ()
            touched |= {id for key in keys if isinstance(key, str) and (id := _post_at(key)) is not None}
        if len(touched) > LOOK_MAX:
            self._listed_at = float("-inf")
            return
        ids = sorted(touched)
        for start in range(0, len(ids), LOOK_AT_A_TIME):
            await asyncio.gather(*(self.look_at(id) for id in ids[start : start + LOOK_AT_A_TIME]))

    async def _list(self) -> None:
        self._touched.clear()
        waiting = await run(self._bucket, posts.waiting(self._bus))
        kept = waiting.entries[:ITEMS_MAX]
        there = {entry.id for entry in kept}
        for id in [id for id in self._items if id not in there and id not in self._touched]:
            del self._items[id]
            self.generation += 1
        self.reviewed, self.left_off = waiting.reviewed, len(waiting.entries) - len(kept)
        wanted = [entry for entry in kept if not self._knows(entry)]
        for start in range(0, len(wanted), READ_AT_A_TIME):
            self.unread = len(wanted) - start
            batch = [entry for entry in wanted[start : start + READ_AT_A_TIME] if entry.id not in self._touched]
            for item in await run(self._bucket, _read(self._bus, batch)) if batch else ():
                if item.id not in self._touched and item.revision > self._decided.get(item.id, 0):
                    self._keep(item)
        self.unread = 0
        self._listed_at = asyncio.get_running_loop().time()

    def _knows(self, entry: Entry) -> bool:
        """Whether there is no need to read the object. Being escalated is seen in the listing."""
        item = self._items.get(entry.id)
        if item is None or (item.outcome, item.state) != (entry.outcome, entry.state):
            return False
        if item.escalated != entry.escalated and entry.id not in self._touched:
            self._keep(msgspec.structs.replace(item, escalated=entry.escalated))
        return True


def _post_at(key: str) -> str | None:
    return next((id for prefix in WATCHED if (id := id_at(prefix, key)) is not None), None)


def _decided_at(seen: posts.Seen) -> float:
    decision = seen.register.decision if seen.register is not None else None
    try:
        return seconds_of(decision.at) if decision is not None else 0.0
    except ValueError:
        return 0.0


def _read(bus: BusApi, entries: list[Entry]) -> Procedure[list[Item]]:
    bucket = yield from bus.bucket.open()
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
        if found is None or not (found.flagged or query.min) or found.confidence < query.min:
            return False
    elif query.min and item.confidence < query.min:
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


def _write_cursor(place: Place) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode()


def _read_cursor(text: str) -> Place:
    try:
        place: Place = msgspec.json.decode(base64.urlsafe_b64decode(text), type=tuple[float, str])
    except ValueError:  # of the base64, of the JSON, and of its shape
        raise Invalid("the cursor is none of ours; begin with the first page") from None
    return place


def as_json(items: Iterable[Item]) -> list[dict[str, Any]]:
    """Items for the page: without the address of the image, which the browser does not need."""
    shown = []
    for item in items:
        row: dict[str, Any] = msgspec.to_builtins(item)
        row["has_media"] = row.pop("media_url") is not None
        del row["state"]
        shown.append(row)
    return shown


__all__ = ["PAGE", "Found", "Index", "Item", "Query", "as_json", "item_of"]
