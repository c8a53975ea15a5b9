"""Procedures that run abreast: their requests travel together, and each gets its own answers."""

from __future__ import annotations

from typing import Any

import pytest

from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import Missing, Object, Written
from bucketmq.engines.blocking import Blocking
from bucketmq.engines.perform import Hands
from bucketmq.errors import NotFound, Unavailable
from bucketmq.procedures.abreast import abreast
from bucketmq.procedures.lane import Item, Lane, share
from bucketmq.procedures.requests import (
    Create,
    Get,
    Latch,
    NewId,
    Now,
    Pause,
    Procedure,
    Request,
    Together,
    Wait,
)


class Noting(Blocking):
    """The blocking engine, with a list of what it was asked."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(Hands(store))
        self.asked: list[Request] = []

    def _do(self, request: Request) -> Any:
        self.asked.append(request)
        return super()._do(request)

    @property
    def sizes(self) -> list[int]:
        return [len(each.requests) for each in self.asked if isinstance(each, Together)]


@pytest.fixture
def engine() -> Noting:
    return Noting(MemoryStore())


def write_and_read(key: str, pauses: int = 0) -> Procedure[bytes]:
    assert isinstance((yield from Create(key, key.encode())), Written)
    for _ in range(pauses):
        yield from Pause(0.001)
    found = yield from Get(key)
    assert isinstance(found, Object)
    return found.body


def test_what_all_of_them_ask_travels_together_and_each_is_given_its_own_answer(engine: Noting) -> None:
    assert engine.run(abreast([write_and_read(key) for key in "abc"])) == [b"a", b"b", b"c"]
    assert engine.sizes == [3, 3]


def test_nobody_waits_for_one_that_pauses(engine: Noting) -> None:
    assert engine.run(abreast([write_and_read("a", pauses=3), write_and_read("b")])) == [b"a", b"b"]
    assert engine.sizes == [2, 1, 1]


def test_what_is_asked_together_is_answered_with_a_list_among_others(engine: Noting) -> None:
    def several() -> Procedure[int]:
        replies = yield from Together((Get("x"), Get("y")))
        return sum(isinstance(each, Missing) for each in replies)

    assert engine.run(abreast([several(), write_and_read("a")])) == [2, b"a"]
    assert engine.sizes == [3, 1]


def test_an_error_of_ours_ends_only_the_one_that_raised_it(engine: Noting) -> None:
    def raising() -> Procedure[None]:
        yield from Get("x")
        raise NotFound("there is no x")

    found = engine.run(abreast([raising(), write_and_read("a")]))
    assert isinstance(found[0], NotFound)
    assert found[1] == b"a"


def test_an_error_of_the_store_is_raised_where_it_was_asked(engine: Noting) -> None:
    class Away(MemoryStore):
        def get(self, key: str) -> Object | Missing:
            if key == "x":
                raise Unavailable("503")
            return super().get(key)

    def patient() -> Procedure[str]:
        try:
            yield from Get("x")
        except Unavailable:
            return "away"
        return "there"

    assert Noting(Away()).run(abreast([patient(), write_and_read("a")])) == ["away", b"a"]


def test_any_other_error_ends_all_of_them(engine: Noting) -> None:
    closed = []

    def broken() -> Procedure[None]:
        yield from Get("x")
        raise ZeroDivisionError

    def other() -> Procedure[None]:
        try:
            while True:
                yield from Get("y")
        finally:
            closed.append(True)

    with pytest.raises(ZeroDivisionError):
        engine.run(abreast([broken(), other()]))
    assert closed == [True]


def test_those_who_share_a_lane_do_not_wait_for_each_other_for_ever(engine: Noting) -> None:
    lane: Lane[Item] = Lane(len)
    carried = []

    def carry(items: list[Item]) -> Procedure[None]:
        yield from Get("x")
        carried.append(len(items))

    def ride() -> Procedure[None]:
        yield from share(lane, Item(), carry)

    assert engine.run(abreast([ride() for _ in range(5)])) == [None] * 5
    assert sum(carried) == 5
    assert len(carried) <= 3


def test_one_who_waits_for_a_latch_is_woken_by_another_or_by_the_time(engine: Noting) -> None:
    latch, never = Latch(), Latch()

    def opens() -> Procedure[None]:
        yield from Pause(0.001)
        latch.open()

    def waits(which: Latch, seconds: float | None) -> Procedure[bool]:
        yield from Wait(which, seconds)
        return which.is_open

    assert engine.run(abreast([waits(latch, None), waits(never, 0.002), opens()])) == [True, False, None]


def test_what_is_not_for_the_store_is_answered_at_once(engine: Noting) -> None:
    def asks() -> Procedure[bool]:
        return bool((yield from NewId())) and (yield from Now()) > 0

    assert engine.run(abreast([asks(), asks()])) == [True, True]
    assert engine.run(abreast([])) == []
    assert engine.sizes == []
