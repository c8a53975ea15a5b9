"""Instant events of a folder: the file system says where something changed, a look at the key says what.

An event here has the id that a sweep would give it, so the two collapse, and its version belongs to one write alone, so
it collapses with what our own writers report. Which files are objects is for the store to say: whatever a listing shows
makes events, and nothing else.

What is known of each key is kept in memory, up to `KEYS_MAX` keys: it tells a change from a creation and a deletion
from a file that was never there for anybody, and it shows what happened before the watch was live or while too much
happened at once. Beyond that a sweep's inventory does so, where there is one.
"""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Iterable
from pathlib import Path

import msgspec

from bucketmq import aio
from bucketmq.api.bucket import BucketApi
from bucketmq.bucket.port import check_key
from bucketmq.errors import BucketMQError, Invalid, Unavailable, Unsupported
from bucketmq.events.event import ObjectEvent, event_id
from bucketmq.events.inventory import Item, Manifest, differences, gone, same_state, there
from bucketmq.log.layout import EventKeys, is_bookkeeping
from bucketmq.procedures.objects.listing import list_items
from bucketmq.procedures.objects.sweep import sweep_name
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.verbs import get_document
from bucketmq.server.metrics import Counters
from bucketmq.server.place import bus_of, now_of, run
from bucketmq.server.wire import loggable

KEYS_MAX = 200_000
CHANGES_MAX = 10_000
"""Files that are looked at one by one; when more change at once, the folder is listed instead."""

LOOKS_AT_ONCE = 32
DEBOUNCE_MILLISECONDS = 300
STEP_MILLISECONDS = 20
"""How long changes are gathered at most, and how long it must be quiet before that."""
IDLE_MILLISECONDS = 500
RETRY_SECONDS = 1.0

logger = logging.getLogger("bucketmq")


class FolderWatch:
    """Reports what happens to the files of a folder bucket."""

    def __init__(
        self,
        bucket: aio.Bucket,
        root: Path,
        counters: Counters,
        *,
        keys_max: int = KEYS_MAX,
        changes_max: int = CHANGES_MAX,
    ) -> None:
        self._bucket = bucket
        self._root = root
        self._counters = counters
        self._keys_max = keys_max
        self._changes_max = changes_max
        self._seen: dict[str, Item] = {}
        self._knows_all = False
        """Whether `_seen` has every key there is."""
        self._waiting: set[str] = set()
        """Keys that changed and were not reported yet."""
        self._behind = False
        """Whether changes may have been missed."""
        self._live = asyncio.Event()

    async def wait_until_live(self, stop: asyncio.Event) -> None:
        """Until nothing is missed any more, or the watch cannot be had."""
        waits = [asyncio.create_task(each.wait()) for each in (self._live, stop)]
        await asyncio.wait(waits, timeout=10.0, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()

    async def run(self, stop: asyncio.Event) -> None:
        """Until told to stop; what was noticed by then is reported."""
        try:
            from watchfiles._rust_notify import RustNotify
        except ImportError:
            self._live.set()
            raise Unsupported("watching a folder needs watchfiles; run: pip install 'bucketmq[server]'") from None
        ended = threading.Event()
        stopping = asyncio.create_task(_set_after(stop, ended))
        try:
            if not self._seen:
                await self._learn()
            self._root.mkdir(parents=True, exist_ok=True)
            with await asyncio.to_thread(RustNotify, [str(self._root)], False, False, 300, True, False) as watcher:
                self._behind = True  # whatever happened between that listing and now
                await self._catch_up()
                self._live.set()
                while not ended.is_set():
                    found = await asyncio.to_thread(
                        watcher.watch, DEBOUNCE_MILLISECONDS, STEP_MILLISECONDS, IDLE_MILLISECONDS, ended
                    )
                    if isinstance(found, set):
                        await self._notice(path for _, path in found)
                    await self._report_waiting()
                self._behind = True  # the watcher may have had something that it did not tell yet
                await self._report_waiting()
        finally:
            self._live.set()
            ended.set()
            stopping.cancel()

    async def _notice(self, paths: Iterable[str]) -> None:
        keys = await asyncio.to_thread(self._keys, list(paths))
        if len(keys) + len(self._waiting) > self._changes_max:
            self._counters.add("file_overflows_total")
            self._waiting.clear()
            self._behind = True
        elif not self._behind:
            self._waiting |= keys

    def _keys(self, paths: list[str]) -> set[str]:
        """The keys that these paths may be about. A directory that came or went stands for all that is in it."""
        found: set[str] = set()
        for path in paths:
            key = self._key(path)
            if key is None:
                continue
            if Path(path).is_dir():
                inside = (f"{place}/{name}" for place, _, names in os.walk(path) for name in names)
                found |= {each for each in map(self._key, inside) if each is not None}
            elif key in self._seen or os.path.lexists(path):
                found.add(key)
            else:
                found.add(key)
                found |= {each for each in self._seen if each.startswith(f"{key}/")}
            if len(found) > self._changes_max:
                break
        return found

    def _key(self, path: str) -> str | None:
        key = os.path.relpath(path, self._root).replace(os.sep, "/")
        if is_bookkeeping(key) or key == ".":
            return None
        try:
            check_key(key)
        except Invalid:
            return None
        return key

    async def _report_waiting(self) -> None:
        """Nothing is forgotten before it is stored."""
        try:
            if self._behind:
                await self._catch_up()
            elif self._waiting:
                keys = sorted(self._waiting)
                states = await self._look(keys)
                events = [event for key in keys if key in states for event in self._event(key, states[key])]
                await self._tell(events)
                self._remember(states)
                self._waiting.difference_update(keys)
        except BucketMQError as error:
            logger.warning("action=files_failed kind=%s error=%s", error.kind, loggable(error))
            await asyncio.sleep(RETRY_SECONDS)

    async def _look(self, keys: list[str]) -> dict[str, Item | None]:
        """Their states now. What the store does not see as an object, such as a link, is skipped."""
        limit = asyncio.Semaphore(LOOKS_AT_ONCE)

        async def one(key: str) -> tuple[str, Item | None] | None:
            async with limit:
                try:
                    found = await self._bucket.look(key)
                except Unavailable:
                    raise
                except BucketMQError as error:
                    logger.warning(
                        "action=file_left_out key=%s kind=%s error=%s", loggable(key), error.kind, loggable(error)
                    )
                    return None
            return key, None if found is None else Item(key, found.version, found.stored_at, found.size_bytes)

        return dict(each for each in await asyncio.gather(*map(one, keys)) if each is not None)

    def _event(self, key: str, state: Item | None) -> list[ObjectEvent]:
        before = self._seen.get(key)
        if state is not None:
            if before is not None and same_state(before, state):
                return []
            return [self._told(there(state, exact=True, changed=before is not None))]
        if before is not None:
            return [self._told(gone(before))]
        if self._knows_all:
            return []  # it came and went between two looks: it was never reported
        at = now_of(self._bucket)
        return [ObjectEvent(id=event_id("files", "", key, "gone", at), kind="deleted", key=key, at=at, source="files")]

    def _told(self, event: ObjectEvent) -> ObjectEvent:
        """A deletion happened at some time up to now; that is the best that can be said."""
        at = now_of(self._bucket) if event.kind == "deleted" else event.at
        return msgspec.structs.replace(event, source="files", at=at)

    async def _tell(self, events: list[ObjectEvent]) -> None:
        await self._bucket.report(events)
        for event in events:
            self._counters.add("file_events_total", kind=event.kind)

    def _remember(self, states: dict[str, Item | None]) -> None:
        for key, state in states.items():
            if state is None:
                self._seen.pop(key, None)
            elif key in self._seen or len(self._seen) < self._keys_max:
                self._seen[key] = state
            else:
                self._knows_all = False

    async def _learn(self) -> None:
        """What is there before the watch begins: no news."""
        found = await run(self._bucket, _everything(bus_of(self._bucket), self._keys_max))
        self._knows_all = found is not None
        self._seen = {} if found is None else {item.key: item for item in found}

    async def _catch_up(self) -> None:
        """Report what may have been missed: since the last sweep, if there was one, and since we last looked."""
        swept = await run(self._bucket, _has_inventory(self._bucket.prefix))
        if swept:
            await self._bucket.sweep()
        if self._knows_all:
            found = await run(self._bucket, _everything(bus_of(self._bucket), self._keys_max))
            if found is not None:
                before = sorted(self._seen.values(), key=lambda item: item.key)
                await self._tell([self._told(event) for event in differences(before, found, exact=True)])
                self._seen = {item.key: item for item in found}
            self._knows_all = found is not None
        elif not swept:
            logger.warning(
                "action=files_unknown more than %d files are here and no sweep was made, so what changes while nobody "
                "watches goes unnoticed; run: bucketmq sweep --first baseline",
                self._keys_max,
            )
        self._behind = False


def _everything(bus: BucketApi, keys_max: int) -> Procedure[list[Item] | None]:
    """All objects, sorted; None if there are more than `keys_max`."""
    bucket = yield from bus.open()
    items: list[Item] = []
    position: str | None = ""
    while position is not None:
        found, position = yield from list_items(bucket, "", position, "")
        items += found
        if len(items) > keys_max:
            return None
    return sorted(items, key=lambda item: item.key)


def _has_inventory(prefix: str) -> Procedure[bool]:
    return (yield from get_document(Manifest, EventKeys(prefix).manifest(sweep_name("")))) is not None


async def _set_after(event: asyncio.Event, then: threading.Event) -> None:
    await event.wait()
    then.set()
