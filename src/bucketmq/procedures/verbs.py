"""The verbs with patience: the one retry loop for requests that may simply be repeated.

`get`, `delete` and `list` change nothing by being repeated, so they are, with growing, jittered pauses, until the
budget is spent. Conditional writes are never repeated here: what a refused or unknown write means is for the caller to
find out by reading back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from bucketmq.bucket.port import Entry, Found, Missing, Object, Page, Version, Written
from bucketmq.errors import BucketMQError, Unavailable
from bucketmq.log import documents
from bucketmq.procedures.requests import (
    Asking,
    Chance,
    Create,
    Delete,
    Get,
    List,
    Look,
    Now,
    Pause,
    Procedure,
    Replace,
    Reply,
    Together,
)

Document = TypeVar("Document")

PATIENCE_SECONDS = 60.0
"""How long one step tries before it gives up with `Unavailable`."""

PAUSE_FIRST_SECONDS = 0.05
PAUSE_MAX_SECONDS = 5.0
PAGE = 999
"""One less than S3 lists at a time: one more key tells whether there are more."""


class Patience:
    """Counts the tries of one step: pauses longer and longer, then gives up."""

    def __init__(self, what: str, seconds: float = PATIENCE_SECONDS) -> None:
        self._what = what
        self._seconds = seconds
        self._since: float | None = None
        self._pause = PAUSE_FIRST_SECONDS

    def again(self, reason: object) -> Procedure[None]:
        """Pause before the next try, or raise `Unavailable` when the budget is spent."""
        now = yield from Now()
        if self._since is None:
            self._since = now
        if now - self._since >= self._seconds:
            raise Unavailable(
                f"{self._what}: no clear answer from the store within {self._seconds:.0f} s (last: {reason}); "
                "check the connection and try again later"
            )
        chance = yield from Chance()
        yield from Pause(self._pause * (0.5 + chance))
        self._pause = min(self._pause * 2, PAUSE_MAX_SECONDS)


def _patiently(request: Asking[Reply], doing: str, key: str) -> Procedure[Reply]:
    patience: Patience | None = None
    while True:
        try:
            reply: Reply = yield request  # type: ignore[misc]  # as `yield from`, without a generator for each request
        except Unavailable as error:
            patience = patience if patience is not None else Patience(f"{doing} {key}")
            yield from patience.again(error)
        else:
            return reply


def get(key: str) -> Procedure[Object | Missing]:
    return _patiently(Get(key), "reading", key)


def look(key: str) -> Procedure[Found | Missing]:
    return _patiently(Look(key), "looking at", key)


def delete(key: str) -> Procedure[None]:
    return _patiently(Delete(key), "deleting", key)


def list_page(prefix: str, *, after: str = "", limit: int = PAGE) -> Procedure[Page]:
    return _patiently(List(prefix, after, limit), "listing", prefix)


def list_all(prefix: str, *, after: str = "", pages_max: int = 1_000_000) -> Procedure[tuple[list[Entry], bool]]:
    """Every entry of at most `pages_max` pages, and whether there are more."""
    entries: list[Entry] = []
    for _ in range(pages_max):
        page = yield from list_page(prefix, after=after)
        entries += page.entries
        if not page.more:
            return entries, False
        after = max(entry.key for entry in page.entries)
    return entries, True


def get_many(keys: Sequence[str]) -> Procedure[list[Object | Missing]]:
    """Several objects at once; those that failed are asked for again one by one."""
    if not keys:
        return []
    if len(keys) == 1:
        return [(yield from get(keys[0]))]
    replies = yield from Together(tuple(Get(key) for key in keys))
    found: list[Object | Missing] = []
    for key, reply in zip(keys, replies, strict=True):
        if isinstance(reply, Unavailable):
            found.append((yield from get(key)))
        elif isinstance(reply, BucketMQError):
            raise reply
        else:
            found.append(reply)
    return found


def get_there(keys: Iterable[str]) -> Procedure[dict[str, Object]]:
    """Those of the objects that are there, by key."""
    wanted = list(keys)
    found = zip(wanted, (yield from get_many(wanted)), strict=True)
    return {key: each for key, each in found if isinstance(each, Object)}


def get_document(kind: type[Document], key: str) -> Procedure[tuple[Document, Object] | None]:
    """The document at `key` and the object it came from, or None where there is none yet."""
    found = yield from get(key)
    if isinstance(found, Missing):
        return None
    return documents.decode(kind, found.body, key), found


def get_state(key: str, empty: Document) -> Procedure[tuple[Document, Version | None]]:
    """The document at `key` and the mark of its state; `empty` and None where there is none yet."""
    found = yield from get_document(type(empty), key)
    return (found[0], found[1].version) if found else (empty, None)


def put_over(key: str, document: object, version: Version | None) -> Create | Replace:
    """The write of a document over the state that `version` marks; None: where there is nothing."""
    body = documents.encode(document)
    return Create(key, body) if version is None else Replace(key, body, version)


def create_named(key: str, body: bytes) -> Procedure[None]:
    """Create an object that only the first may make: a refusal means that it is there, an earlier attempt of our own
    where nobody else uses the name."""
    patience = Patience(f"writing {key}")
    while True:
        reply = yield from Create(key, body)
        if isinstance(reply, Written):
            return
        if not isinstance((yield from get(key)), Missing):
            return
        yield from patience.again(reply)


def update_document(
    kind: type[Document], key: str, empty: Document, change: Callable[[Document], Document]
) -> Procedure[Document]:
    """Replace a document by `change` of it until that holds; returns what holds.

    `change` must be repeatable: applied to a state that already has the change it returns that state unchanged, so a
    write whose reply was lost is recognised by reading back.
    """
    patience = Patience(f"updating {key}")
    while True:
        before, version = yield from get_state(key, empty)
        after = change(before)
        if after == before and version is not None:
            return after
        reply = yield from put_over(key, after, version)
        if isinstance(reply, Written):
            return after
        yield from patience.again(reply)
