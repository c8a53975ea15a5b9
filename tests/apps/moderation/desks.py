"""A desk on a thread of its own, and posts that wait for it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import msgspec
from dashboard.opened import Opened, Person, opened_on

from apps.moderation.agents import aio_on
from bucketmq import aio
from bucketmq.apps.moderation import posts
from bucketmq.apps.moderation.desk.tabs import tabs
from bucketmq.apps.moderation.ids import key_of
from bucketmq.apps.moderation.record import CATEGORIES, PENDING, Category, Post, Verdict, record_of
from bucketmq.bucket.port import Store
from bucketmq.client import Bucket
from bucketmq.server.people import read_people
from bucketmq.server.place import bus_of, now_of, run_now

ROSA, OMAR, VERA = "token-of-rosa-0001", "token-of-omar-0001", "token-of-vera-0001"
ADA, OLA = "token-of-ada-0001", "token-of-ola-0001"
PEOPLE = read_people(
    [
        f"rosa={ROSA}:reviewer",
        f"omar={OMAR}:reviewer",
        f"vera={VERA}:read-only",
        f"ada={ADA}:administer",
        f"ola={OLA}:operate",
    ],
    variable="DESK_TOKENS",
)

BAD, UNSURE, CLEAN = 0.97, 0.7, 0.02


@contextlib.contextmanager
def desk_on(make_bucket: Callable[[], aio.Bucket], **options: Any) -> Iterator[Opened]:
    own = {name: options.pop(name) for name in ("private_images", "undo_seconds") if name in options}
    added = tabs(**own)
    with opened_on(make_bucket, tabs=added, people=PEOPLE, **options) as agent:
        yield agent


@contextlib.contextmanager
def desk(store: Store, **options: Any) -> Iterator[Opened]:
    with desk_on(lambda: aio_on(store), **options) as agent:
        yield agent


class Reviewer(Person):
    """Somebody who decides."""

    def go_to(self, url: str) -> None:
        """Another desk that knows the session. The name of the cookie has the port in it."""
        before, after = str(self.http.base_url).rstrip("/").rpartition(":")[2], url.rpartition(":")[2]
        for name, value in dict(self.http.cookies).items():
            self.http.cookies.set(name.replace(before, after), value)
        self.http.base_url = url

    def review(self, id: str, action: str, *, revision: int = 1, note: str = "") -> httpx2.Response:
        body = {"id": id, "revision": revision, "action": action, "note": note}
        return self.http.post("/api/review/decide", json=body)


def post(
    bucket: Bucket,
    id: str,
    text: str,
    confidence: float,
    *,
    category: str = "spam",
    media_url: str | None = None,
    doubt: str | None = None,
    revision: int = 1,
) -> None:
    """A post that was accepted, judged and routed."""
    bus = bus_of(bucket)
    run_now(bucket, posts.accept(bus, id, text, media_url))
    categories = tuple(
        Category(
            name, flagged=name == category and confidence > 0.5, confidence=confidence if name == category else 0.01
        )
        for name in CATEGORIES
    )
    verdict = Verdict(categories, "test-1", rationale=f"It reads like {category}.", doubt=doubt)
    made = record_of(Post(id, text, media_url, revision), verdict, created_at=now_of(bucket))
    bucket.put(key_of(PENDING, id), msgspec.json.encode(made))
    run_now(bucket, posts.route(bus, key_of(PENDING, id)))


def history(bucket: Bucket) -> list[Any]:
    return run_now(bucket, posts.history(bus_of(bucket)))
