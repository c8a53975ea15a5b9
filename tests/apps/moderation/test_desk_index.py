"""The desk's index of waiting posts: what it costs does not grow with the posts that people have ever decided."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from apps.moderation.agents import aio_on, sync_on
from apps.moderation.desks import BAD, UNSURE, post
from apps.moderation.test_posts import record_body
from bucketmq import aio
from bucketmq.apps.moderation import posts
from bucketmq.apps.moderation.desk import index as index_module
from bucketmq.apps.moderation.desk.index import STRETCHES_MAX, Index, Query
from bucketmq.apps.moderation.ids import key_of
from bucketmq.apps.moderation.record import FLAGGED, NEEDS_REVIEW, REVIEWED
from bucketmq.bucket.memory import MemoryStore
from bucketmq.engines.meter import Requests
from bucketmq.server.place import bus_of, run_now

LISTS_A_STRETCH = 4


@pytest.fixture(autouse=True)
def nothing_is_kept_for_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every refresh reads the log; a test says when it lists."""
    monkeypatch.setattr(index_module, "FOLLOW_SECONDS", -1.0)


def upheld(store: MemoryStore, count: int) -> None:
    """Posts that people left flagged: they stay there, and each has its review."""
    for number in range(count):
        id = f"old-{number:06}"
        store.create(key_of(FLAGGED, id), record_body(id, "an old offer", 0.97))
        store.create(key_of(REVIEWED, id), b"{}")


def with_index(store: MemoryStore, work: Callable[[Index, aio.Bucket], Awaitable[None]]) -> None:
    async def main() -> None:
        bucket = aio_on(store)
        index = Index(bucket)
        try:
            await work(index, bucket)
        finally:
            await index.close()
            await bucket.close()

    asyncio.run(main())


async def settled(index: Index) -> None:
    """One refresh, and the work that it began."""
    await index.refresh()
    if index._work is not None:
        await asyncio.wait({index._work})
        index._work = None


def ids(index: Index) -> list[str]:
    return [item.id for item in index.find(Query()).items]


@pytest.mark.parametrize("reviewed", [0, 1_500, 12_000])
def test_keeping_up_costs_the_same_however_many_posts_were_reviewed(
    reviewed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryStore()
    upheld(store, reviewed)
    with sync_on(store) as bucket:
        post(bucket, "ad", "buy cheap watches", BAD)

        async def look(index: Index, own: aio.Bucket) -> None:
            await settled(index)
            assert ids(index) == ["ad"] and index.reviewed == reviewed
            monkeypatch.setattr(index_module, "LIST_SECONDS", -1.0)
            for _ in range(4):
                before = own.requests
                await settled(index)
                spent = own.requests - before
                assert spent.list <= STRETCHES_MAX * LISTS_A_STRETCH, spent
                assert spent.get <= 5, spent
                assert ids(index) == ["ad"] and index.reviewed == reviewed

        with_index(store, look)


def test_between_listings_only_events_are_read() -> None:
    store = MemoryStore()
    upheld(store, 1_500)
    with sync_on(store) as bucket:
        post(bucket, "ad", "buy cheap watches", BAD)

        async def look(index: Index, own: aio.Bucket) -> None:
            await settled(index)
            before = own.requests
            await asyncio.to_thread(post, bucket, "odd", "is this an ad?", UNSURE)
            await settled(index)
            assert ids(index) == ["ad", "odd"]
            review = posts.review(bus_of(bucket), "ad", revision=1, reviewer="omar", action="uphold")
            await asyncio.to_thread(run_now, bucket, review)
            await settled(index)
            assert ids(index) == ["odd"] and index.reviewed == 1_501
            spent: Requests = own.requests - before
            assert spent.list == 0, spent

        with_index(store, look)


def test_what_no_event_named_is_found_a_few_stretches_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "STRETCHES_MAX", 1)
    store = MemoryStore()
    upheld(store, 3_000)
    store.create(key_of(FLAGGED, "zz-last"), record_body("zz-last", "an offer", 0.97))

    async def look(index: Index, own: aio.Bucket) -> None:
        await settled(index)
        assert ids(index) == ["zz-last"]
        found = store.get(key_of(FLAGGED, "zz-last"))
        store.delete(key_of(FLAGGED, "zz-last"))
        assert found is not None
        store.create(key_of(NEEDS_REVIEW, "aa-first"), record_body("aa-first", "is this an ad?", 0.7))
        store.create(key_of(NEEDS_REVIEW, "zz-new"), record_body("zz-new", "is this an ad?", 0.7))
        monkeypatch.setattr(index_module, "LIST_SECONDS", -1.0)
        seen = []
        for _ in range(4):
            await settled(index)
            seen.append(sorted(ids(index)))
        assert seen[0] == ["aa-first", "zz-last"], "the first stretch is at the beginning of the bucket"
        assert seen[-1] == ["aa-first", "zz-new"] and index.reviewed == 3_000

    with_index(store, look)


def test_more_than_are_kept_are_those_waiting_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "ITEMS_MAX", 3)
    store = MemoryStore()
    for id in ("d", "c", "b", "a", "e"):
        store.create(key_of(FLAGGED, id), record_body(id, "an offer", 0.97))
    listed = sorted(store.list(FLAGGED, after="", limit=10).entries, key=lambda each: (each.stored_at, each.key))

    async def look(index: Index, own: aio.Bucket) -> None:
        await settled(index)
        assert [key_of(FLAGGED, id) for id in ids(index)] == [each.key for each in listed[:3]]
        assert index.left_off == 2

    with_index(store, look)


def test_after_an_hour_without_a_look_everything_is_listed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from bucketmq.dashboard import follow

    store = MemoryStore()
    with sync_on(store) as bucket:
        post(bucket, "ad", "buy cheap watches", BAD)

        async def look(index: Index, own: aio.Bucket) -> None:
            await settled(index)
            await asyncio.to_thread(post, bucket, "odd", "is this an ad?", UNSURE)
            monkeypatch.setattr(follow, "FORGET_SECONDS", -1.0)
            monkeypatch.setattr(index_module, "BACK_SECONDS", 0.0)
            await index.refresh(wait_seconds=30)
            monkeypatch.setattr(follow, "FORGET_SECONDS", 3600.0)
            await settled(index)
            assert ids(index) == ["ad", "odd"]

        with_index(store, look)
