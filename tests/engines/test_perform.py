"""What every engine does with a request: the store's verb, counted and priced; HTTP requests where there is a way."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest

from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import Attributes, Found, Missing, Object, Refused, Removed, Unknown, Version, Written
from bucketmq.engines.blocking import Blocking
from bucketmq.engines.meter import Requests
from bucketmq.engines.perform import Hands
from bucketmq.errors import Invalid, Unavailable, Unsupported
from bucketmq.pricing import cost
from bucketmq.procedures.requests import (
    Answer,
    Create,
    Delete,
    Get,
    Look,
    NoAnswer,
    Now,
    Post,
    Procedure,
    Remove,
    Rename,
    Replace,
    StoreRequest,
)

MARKS = Attributes("text/plain", {"name": "value"})
POST = Post("https://example.com/hook", {}, b"{}", 5.0)


def version_of(hands: Hands, key: str) -> Version:
    found = hands.store.look(key)
    assert isinstance(found, Found)
    return found.version


def test_attributes_reach_the_store_and_come_back() -> None:
    hands = Hands(MemoryStore())
    hands.perform(Create("a", b"1", MARKS))
    found = hands.perform(Get("a"))
    assert isinstance(found, Object)
    assert found.attributes == MARKS
    assert isinstance(hands.perform(Replace("a", b"2", found.version, Attributes("text/html"))), Written)
    looked = hands.perform(Look("a"))
    assert isinstance(looked, Found)
    assert (looked.size_bytes, looked.attributes) == (1, Attributes("text/html"))


def test_every_verb_is_counted_and_refused_removes_are_no_refused_writes() -> None:
    hands = Hands(MemoryStore())
    hands.perform(Create("a", b"12345"))
    assert hands.perform(Create("a", b"1")) == Refused()
    hands.perform(Look("a"))
    assert hands.perform(Look("b")) == Missing()
    assert hands.perform(Remove("a", Version("stale"))) == Refused()
    assert hands.perform(Rename("a", "b", Version("stale"))) == Refused()
    assert hands.perform(Rename("a", "b", version_of(hands, "a"))) == Removed()
    assert hands.perform(Remove("b", version_of(hands, "b"))) == Removed()

    counted = hands.meter.read()
    assert counted == Requests(
        create=2, look=2, remove=2, rename=2, missing=1, refused=2, removes_refused=1, bytes_out=6
    )
    assert (counted.writes, counted.reads) == (4, 2)


def test_a_look_costs_what_a_get_does_a_rename_what_a_write_does_and_a_remove_nothing() -> None:
    assert cost(Requests(look=1000), "s3") == cost(Requests(get=1000), "s3") > 0
    assert cost(Requests(rename=1000), "s3") == cost(Requests(create=1000), "s3") > 0
    assert cost(Requests(remove=1000, removes_refused=1000), "tigris") == 0


def test_a_post_goes_the_way_that_was_given() -> None:
    asked: list[Post] = []

    def post(request: Post) -> Answer | NoAnswer:
        asked.append(request)
        return Answer(204, {}, b"", 0.1)

    assert Hands(MemoryStore(), post).send(POST) == Answer(204, {}, b"", 0.1)
    assert asked == [POST]


def test_a_post_without_a_way_is_unsupported() -> None:
    with pytest.raises(Unsupported, match="notifier"):
        Hands(MemoryStore()).send(POST)


class Onlooker:
    def __init__(self) -> None:
        self.seen: list[tuple[StoreRequest, object, float]] = []

    def on_request(self, request: StoreRequest, reply: object, seconds: float) -> None:
        self.seen.append((request, reply, seconds))
        raise RuntimeError("an observer's own error")


class Down(MemoryStore):
    def get(self, key: str) -> Object | Missing:
        raise Unavailable("down")


def test_an_observer_sees_every_request_and_what_came_of_it_and_harms_none() -> None:
    hands, onlooker = Hands(Down()), Onlooker()
    hands.observers.add(onlooker)
    reply = hands.perform(Create("a", b"1"))
    with pytest.raises(Unavailable) as failed:
        hands.perform(Get("a"))
    assert [each[:2] for each in onlooker.seen] == [(Create("a", b"1"), reply), (Get("a"), failed.value)]
    assert all(0 <= seconds < 10 for *_, seconds in onlooker.seen)
    assert hands.meter.read() == Requests(create=1, get=1, failed=1, bytes_out=1)


def test_something_that_observes_nothing_is_no_observer() -> None:
    with pytest.raises(Invalid, match="on_request or on_handled"):
        Hands(MemoryStore()).observers.add(object())  # type: ignore[arg-type]


class _Lossy(MemoryStore):
    """Cannot force to disk what was done together."""

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        yield
        raise Unavailable("the disk is gone")


def test_what_was_done_together_is_in_doubt_when_it_may_not_last() -> None:
    hands = Hands(_Lossy())
    hands.perform(Create("a", b"1"))
    version = version_of(hands, "a")
    found, written, refused, removed, deleted = hands.perform_all(
        [Get("a"), Create("b", b"1"), Create("a", b"2"), Remove("a", version), Delete("c")]
    )
    assert isinstance(found, Object)
    assert written == removed == Unknown("the disk is gone")
    assert refused == Refused()
    assert isinstance(deleted, Unavailable)


def test_an_error_of_one_request_leaves_the_others_their_answers() -> None:
    missing, failed, written = Hands(MemoryStore()).perform_all([Get("a"), Get("../a"), Create("a", b"1")])
    assert missing == Missing()
    assert isinstance(failed, Invalid)
    assert isinstance(written, Written)


def test_what_was_spawned_runs_to_its_end_though_the_bucket_was_closed_before_it_began() -> None:
    engine, ran = Blocking(Hands(MemoryStore())), []

    def late() -> Procedure[None]:
        yield Now()
        ran.append("late")

    engine.hands.close()
    engine.spawn(late(), "late")
    engine.close()
    assert ran == ["late"]
