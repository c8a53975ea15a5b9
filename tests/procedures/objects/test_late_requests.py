"""Requests that had no answer and land later, when what stood in their way is gone: they destroy nothing, and what they
do is told of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import bucketmq
from bucketmq.bucket.port import Unknown
from bucketmq.errors import Unavailable
from bucketmq.procedures.requests import Copy, Create, Delete, Look, Remove, Replace, StoreRequest
from procedures.objects.world import World, told


class Late:
    """The first request of a kind for a key that a bucket makes: it has no answer, and is carried out by `land`."""

    def __init__(
        self, bucket: Any, kinds: tuple[type[Any], ...], key: str, meanwhile: Callable[[], object] = lambda: None
    ) -> None:
        self._perform = bucket.hands.perform
        self._request: StoreRequest | None = None

        def perform(request: StoreRequest) -> Any:
            names = (getattr(request, "target", ""), getattr(request, "key", ""))
            if self._request is None and isinstance(request, kinds) and any(each.endswith(key) for each in names):
                self._request = request
                meanwhile()
                if isinstance(request, Delete):
                    raise Unavailable("no answer")
                return Unknown("no answer")
            return self._perform(request)

        bucket.hands.perform = perform

    def land(self) -> None:
        assert self._request is not None
        self._perform(self._request)


def test_a_delete_that_lands_late_does_not_take_along_what_was_written_since(memory: World) -> None:
    bucket = memory.connect()
    bucket.put("a.txt", "old")
    late = Late(bucket, (Delete, Remove), "a.txt")
    assert bucket.delete("a.txt")
    bucket.put("a.txt", "new")
    late.land()
    assert memory.objects() == {"a.txt": b"new"}


def test_a_delete_deletes_what_was_changed_meanwhile_too(memory: World) -> None:
    bucket, other = memory.connect(), memory.connect()
    bucket.put("a.txt", "old")
    Late(bucket, (Remove,), "a.txt", lambda: other.put("a.txt", "new"))
    assert bucket.delete("a.txt")
    assert memory.objects() == {}
    assert [(event.kind, event.key) for event in told(bucket)][-1] == ("deleted", "a.txt")


def test_a_put_that_was_refused_after_one_without_an_answer_is_told_of_when_that_lands(memory: World) -> None:
    bucket, other = memory.connect(), memory.connect()
    late = Late(bucket, (Create,), "a.txt", lambda: other.put("a.txt", "theirs"))
    with pytest.raises(bucketmq.Contended):
        bucket.put("a.txt", "ours", only_new=True)
    other.delete("a.txt")
    late.land()
    assert memory.objects() == {"a.txt": b"ours"}
    memory.advance(60)
    bucket.recover()
    last = [event for event in told(bucket) if event.key == "a.txt"][-1]
    assert (last.kind, last.version) == ("changed", bucket.look("a.txt").version)
    assert memory.notes() == []


def test_an_object_that_a_write_without_an_answer_made_is_told_as_a_new_one(memory: World) -> None:
    bucket = memory.connect()
    late = Late(bucket, (Create,), "a.txt")
    perform, looks = bucket.hands.perform, iter((None, None, late.land))

    def landing(request: StoreRequest) -> Any:
        if isinstance(request, Look) and (land := next(looks, None)) is not None:
            land()  # before the third look, after the pause
        return perform(request)

    bucket.hands.perform = landing
    bucket.put("a.txt", "ours")
    assert [(event.kind, event.key) for event in told(bucket)] == [("created", "a.txt")]
    assert memory.notes() == []


def test_a_copy_over_an_object_that_is_deleted_meanwhile_is_told_as_a_new_one(memory: World) -> None:
    bucket, other = memory.connect(), memory.connect()
    bucket.put("a.txt", "ours")
    bucket.put("b.txt", "theirs")

    def meddle(_number: int, request: StoreRequest) -> None:
        if isinstance(request, Replace) and request.key.endswith("/b.txt"):
            other.delete("b.txt")

    bucket.hands.meddle = meddle
    bucket.copy("a.txt", "b.txt", replace=True)
    assert [event.kind for event in told(bucket) if event.key == "b.txt"] == ["created", "deleted", "created"]


def test_a_move_that_was_refused_after_a_copy_without_an_answer_is_told_of_when_that_lands(memory: World) -> None:
    bucket, other = memory.connect(), memory.connect()
    bucket.put("a.txt", "moved")
    late = Late(bucket, (Create, Copy), "b.txt", lambda: other.put("b.txt", "theirs"))
    with pytest.raises(bucketmq.Invalid):
        bucket.move("a.txt", "b.txt")
    other.delete("b.txt")
    late.land()
    memory.advance(60)
    bucket.recover()
    assert memory.objects() == {"b.txt": b"moved"}
    assert [(event.kind, event.key) for event in told(bucket)][-1] == ("moved", "b.txt")
    assert memory.notes() == []


def test_a_copy_that_lands_after_another_attempt_has_moved_is_told_of_as_that_move_by_everybody(memory: World) -> None:
    bucket, other = memory.connect(), memory.connect()
    version = bucket.put("a.txt", "moved").version
    late = Late(bucket, (Create, Copy), "b.txt", lambda: other.move("a.txt", "b.txt", if_version=version))
    bucket.move("a.txt", "b.txt", if_version=version)
    other.delete("b.txt")
    late.land()
    again = other.move("a.txt", "b.txt", if_version=version)
    memory.advance(60)
    bucket.recover()
    assert [(event.kind, event.key) for event in told(bucket)] == [
        ("created", "a.txt"),
        ("moved", "b.txt"),
        ("deleted", "b.txt"),
        ("moved", "b.txt"),
    ]
    assert told(bucket)[-1].id == again.event.id
    assert memory.notes() == []


def test_what_a_recovery_writes_again_late_is_the_move_that_was_reported(memory: World) -> None:
    """A mover falls asleep with its target made. A recovery writes the target again and has no answer, the mover wakes
    up and reports, and then the write lands: a new version of which there is no event."""
    mover, other = memory.connect(), memory.connect()
    late = Late(other, (Replace,), "b.txt")
    mover.rules.add("r", to="queue:found", gone="drop", filter="WHERE `kind` = 'moved'")
    mover.put("a.txt", "moved")

    def sleep(_number: int, request: StoreRequest) -> None:
        if isinstance(request, Remove | Delete) and request.key.endswith("a.txt"):
            mover.hands.meddle = lambda _number, _request: None
            memory.advance(60)
            other.recover()

    mover.hands.meddle = sleep
    reported = mover.move("a.txt", "b.txt")
    late.land()
    assert mover.look("b.txt").version != reported.version
    mover.notify(stop_when_empty=True, signals=False)
    assert [delivery.body["key"] for delivery in mover.queue("found").receive(10)] == ["b.txt"]
