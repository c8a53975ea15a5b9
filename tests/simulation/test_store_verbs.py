"""The simulated store's verbs for users' objects: conditions, faults, and what the witness is told."""

from __future__ import annotations

from typing import Any

import pytest

from bucketmq.bucket.port import Attributes, Found, Missing, Object, Page, Refused, Removed, Unknown, Version, Written
from bucketmq.errors import Unavailable
from bucketmq.procedures.requests import Create, List, Look, Procedure, Remove, Rename, Replace, StoreRequest
from bucketmq.testing.simulation.engine import Process
from bucketmq.testing.simulation.faults import Faults
from bucketmq.testing.simulation.store import SimStore
from bucketmq.testing.simulation.world import World

MARKS = Attributes("text/x-odd", {"name": "value"})


class Book:
    def __init__(self) -> None:
        self.lines: list[tuple[str, str, bytes | None]] = []

    def landed(self, who: str, key: str, body: bytes | None) -> None:
        self.lines.append((who, key, body))


def a_store(world: World, *, content_versions: bool = False) -> SimStore:
    return SimStore(
        world,
        lists_in_order=True,
        answer_stamps=True,
        content_versions=content_versions,
        whole_seconds=False,
        renames=True,
    )


def created(store: SimStore, key: str, body: bytes = b"1") -> Version:
    written = store.perform(Create(key, body, MARKS))
    assert isinstance(written, Written)
    return written.version


def carry(world: World, store: SimStore, request: StoreRequest) -> tuple[Any, set[str]]:
    """The answer, and the keys there were when it came."""
    ended: list[tuple[Any, set[str]]] = []

    def end(value: Any, error: BaseException | None) -> None:
        ended.append((error or value, set(store.objects)))

    def ask() -> Procedure[Any]:
        return (yield request)

    Process(world, store, "p").start(ask(), "test", end)
    world.run(lambda: bool(ended), world.now + 1_000)
    return ended[0]


def test_look_and_listings_tell_what_is_there() -> None:
    store = a_store(World("test"))
    version = created(store, "a", b"four")
    found = store.perform(Look("a"))
    assert isinstance(found, Found)
    assert (found.size_bytes, found.version, found.attributes) == (4, version, MARKS)
    assert store.perform(Look("b")) == Missing()
    page = store.perform(List("", "", 9))
    assert isinstance(page, Page)
    assert [(entry.key, entry.version) for entry in page.entries] == [("a", version)]


def test_only_the_newest_state_is_removed_or_renamed() -> None:
    store = a_store(World("test"))
    stale = created(store, "a")
    created(store, "taken")
    written = store.perform(Replace("a", b"2", stale, MARKS))
    assert isinstance(written, Written)
    for request in (
        Remove("a", stale),
        Remove("missing", stale),
        Rename("a", "b", stale),
        Rename("a", "taken", written.version),
        Rename("missing", "b", stale),
    ):
        assert store.perform(request) == Refused()
    assert sorted(store.objects) == ["a", "taken"]

    assert store.perform(Rename("a", "b", written.version)) == Removed()
    moved = store.objects["b"]
    assert isinstance(moved, Object)
    assert (moved.body, moved.attributes) == (b"2", MARKS)
    assert store.perform(Remove("b", moved.version)) == Removed()
    assert store.keys("") == ["taken"]


def test_the_witness_hears_of_removes_and_of_both_ends_of_a_rename() -> None:
    store = a_store(World("test"))
    version = created(store, "a")
    store.witness = book = Book()
    store.who = "p"
    store.perform(Rename("a", "b", version))
    store.perform(Remove("b", store.objects["b"].version))
    assert book.lines == [("p", "a", None), ("p", "b", b"1"), ("p", "b", None)]


@pytest.mark.parametrize("content_versions", [True, False])
def test_equal_bytes_have_equal_versions_only_where_versions_are_hashes(content_versions: bool) -> None:
    store = a_store(World("test"), content_versions=content_versions)
    assert store.exact_versions is not content_versions
    first = created(store, "a")
    store.perform(Remove("a", first))
    assert (created(store, "a") == first) is content_versions


@pytest.mark.parametrize("verb", ["remove", "rename"])
@pytest.mark.parametrize(
    ("kind", "answer", "lands"),
    [
        ("lost_request", Unknown, False),
        ("lost_reply", Unknown, True),
        ("late_landing", Unknown, True),
        ("conflict_409", Refused, False),
        ("error_503", Unknown, False),
    ],
)
def test_faults_of_removes_and_renames_look_like_those_of_writes(
    verb: str, kind: str, answer: type, lands: bool
) -> None:
    world = World("test")
    store = a_store(world)
    version = created(store, "a")
    store.faults = Faults(**{kind: 1.0})
    request = Remove("a", version) if verb == "remove" else Rename("a", "b", version)
    reply, keys = carry(world, store, request)
    assert type(reply) is answer
    assert ("a" in keys) is (kind != "lost_reply")
    world.run(lambda: False, world.now + 60)
    assert ("a" not in store.objects) is lands
    assert store.creates_in_flight == 0


@pytest.mark.parametrize("kind", ["lost_request", "lost_reply", "error_503"])
def test_a_look_without_an_answer_is_unavailable(kind: str) -> None:
    world = World("test")
    store = a_store(world)
    store.faults = Faults(**{kind: 1.0})
    assert type(carry(world, store, Look("a"))[0]) is Unavailable
