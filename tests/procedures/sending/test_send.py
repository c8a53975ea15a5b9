"""Sending: what a send answers, what it puts into the bucket, and what it refuses without touching the bucket."""

from __future__ import annotations

import math
from datetime import UTC, datetime
from typing import Any

import pytest

import bucketmq
from bucketmq.procedures.sending import send as sending
from procedures.world import World, drain

BODIES = [
    {"n": 1, "list": [1, 2.5, None, True], "text": "müßig ☃"},
    "plain text\nwith a line feed and \u2028",
    "",
    b"\x00\xff bytes",
    b"",
    None,
    0,
    False,
    [],
    2**63,
    -1.5e300,
    "x" * 100_000,
    b"y" * 100_000,
]


@pytest.mark.parametrize("body", BODIES, ids=lambda body: repr(body)[:30])
def test_a_body_comes_back_as_it_was_sent(queue: Any, body: object) -> None:
    queue.send(body)
    (delivery,) = queue.receive(1)
    assert delivery.body == body
    assert type(delivery.body) is type(body)


def test_a_send_names_the_message_and_its_place(world: World, queue: Any) -> None:
    first, second = queue.send("a"), queue.send("b")
    assert (first.shard, first.offset, first.duplicate) == (0, 0, False)
    assert (second.shard, second.offset) == (0, 1)
    assert first.id != second.id
    assert [delivery.id for delivery in queue.receive(10)] == [first.id, second.id]
    assert first.id.encode() in world.read(world.segment(0))


def test_send_many_is_one_segment_in_the_order_given(world: World, queue: Any) -> None:
    sent = queue.send_many({"n": n} for n in range(500))
    assert [each.offset for each in sent] == list(range(500))
    assert len({each.id for each in sent}) == 500
    assert world.keys("log/") == [world.segment(0)]
    assert [delivery.body["n"] for delivery in queue.receive(1000)] == list(range(500))


def test_send_many_of_nothing_sends_nothing(world: World, queue: Any) -> None:
    assert queue.send_many([]) == []
    assert world.keys("log/") == []


def test_send_many_of_what_is_not_a_list_is_invalid(world: World, queue: Any) -> None:
    with pytest.raises(bucketmq.Invalid, match="bodies are a list, not None"):
        queue.send_many(None)
    assert world.keys("log/") == []


def test_headers_key_and_time_arrive_with_the_message(world: World, queue: Any) -> None:
    before = world.now()
    queue.send("x", key="user-7", headers={"trace": "abc", "ключ": "значение"})
    (delivery,) = queue.receive(1)
    assert delivery.key == "user-7"
    assert delivery.headers == {"trace": "abc", "ключ": "значение"}
    assert abs(delivery.sent_at.timestamp() - before) < 5
    assert delivery.sent_at.tzinfo is not None


def test_a_message_without_headers_or_key_has_none(queue: Any) -> None:
    queue.send("x")
    (delivery,) = queue.receive(1)
    assert delivery.key is None
    assert delivery.headers == {}
    assert delivery.attempt == 1


def test_send_many_takes_a_function_that_finds_each_key(bucket: Any) -> None:
    queue = bucket.queue("jobs", shards=4)
    sent = queue.send_many([{"user": f"u{n % 10}", "n": n} for n in range(100)], key=lambda body: body["user"])
    homes: dict[str, set[int]] = {}
    for n, each in enumerate(sent):
        homes.setdefault(f"u{n % 10}", set()).add(each.shard)
    assert all(len(shards) == 1 for shards in homes.values())
    assert len({each.shard for each in sent}) > 1
    received = [delivery for _ in range(4) for delivery in queue.receive(1000)]
    assert sorted(delivery.body["n"] for delivery in received) == list(range(100))
    assert all(delivery.key == delivery.body["user"] for delivery in received)


def test_messages_without_a_key_go_round_the_shards(bucket: Any) -> None:
    queue = bucket.queue("jobs", shards=4)
    assert {queue.send(n).shard for n in range(8)} == {0, 1, 2, 3}


def test_a_key_always_goes_to_the_same_shard(world: World) -> None:
    first = world.connect().queue("jobs", shards=8)
    second = world.connect().queue("jobs")
    assert {first.send(n, key="k").shard for n in range(5)} == {second.send(n, key="k").shard for n in range(5)}


def test_two_processes_append_to_one_log_without_gaps(world: World) -> None:
    first, second = world.connect().queue("jobs"), world.connect().queue("jobs")
    offsets = [(first if n % 3 else second).send(n).offset for n in range(30)]
    assert offsets == list(range(30))
    assert drain(world.connect().queue("jobs")) == list(range(30))


DEEP: Any = []
for _ in range(1000):
    DEEP = [DEEP]

INVALID: list[tuple[str, dict[str, Any]]] = [
    ("a set of objects", {"body": {object()}}),
    ("an object", {"body": object()}),
    ("text with a lone surrogate", {"body": "\ud800"}),
    ("nesting without end", {"body": DEEP}),
    ("an empty key", {"body": 1, "key": ""}),
    ("a key that is too long", {"body": 1, "key": "k" * 513}),
    ("a key that is no text", {"body": 1, "key": 7}),
    ("a key with a lone surrogate", {"body": 1, "key": "\ud800"}),
    ("headers that are no mapping", {"body": 1, "headers": ["a"]}),
    ("a header that is no text", {"body": 1, "headers": {"a": 1}}),
    ("a header with a lone surrogate", {"body": 1, "headers": {"a": "\udfff"}}),
    ("headers that are too large", {"body": 1, "headers": {"a": "x" * 70_000}}),
    ("an empty dedup key", {"body": 1, "dedup_key": ""}),
    ("a negative delay", {"body": 1, "delay_seconds": -1}),
    ("an endless delay", {"body": 1, "delay_seconds": math.inf}),
    ("a delay that is not a number", {"body": 1, "delay_seconds": math.nan}),
    ("a delay as text", {"body": 1, "delay_seconds": "5"}),
    ("a time without a zone", {"body": 1, "at": datetime(2030, 1, 1)}),
    ("a time as text", {"body": 1, "at": "tomorrow"}),
    ("a time that is not a number", {"body": 1, "at": math.nan}),
    ("a time beyond all bounds", {"body": 1, "at": 1e300}),
    ("a delay and a time", {"body": 1, "delay_seconds": 1, "at": datetime.now(UTC)}),
    ("a delay and a dedup key", {"body": 1, "delay_seconds": 1, "dedup_key": "d"}),
]


@pytest.mark.parametrize("wrong", [case[1] for case in INVALID], ids=[case[0] for case in INVALID])
def test_what_cannot_be_sent_is_refused_and_nothing_is_written(world: World, queue: Any, wrong: dict[str, Any]) -> None:
    queue.send("before")
    everything = world.everything()
    with pytest.raises(bucketmq.Invalid) as told:
        queue.send(wrong["body"], **{name: value for name, value in wrong.items() if name != "body"})
    assert len(str(told.value)) > 15
    assert world.everything() == everything
    queue.send("after")
    assert drain(queue) == ["before", "after"]


def test_one_bad_body_among_many_sends_none_of_them(world: World, queue: Any) -> None:
    queue.settings()
    everything = world.everything()
    with pytest.raises(bucketmq.Invalid):
        queue.send_many([{"n": 1}, object(), {"n": 3}])
    with pytest.raises(bucketmq.Invalid):
        queue.send_many(["x" * 100_000, {"n": object()}])
    assert world.everything() == everything


def test_an_oversize_body_is_refused_and_nothing_is_written(
    world: World, queue: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sending, "BODY_BYTES_MAX", 200_000)
    queue.settings()
    everything = world.everything()
    for body in ("x" * 200_001, b"x" * 200_001):
        with pytest.raises(bucketmq.Invalid, match=r"200,00[13] bytes, more than 200,000"):
            queue.send(body)
    with pytest.raises(bucketmq.Invalid, match="more than 200,000"):
        queue.send_many(["x" * 100_000, "x" * 200_001])
    assert world.everything() == everything


def test_a_generator_that_fails_half_way_sends_nothing(world: World, queue: Any) -> None:
    def bodies() -> Any:
        yield 1
        raise KeyError("gone")

    queue.settings()
    with pytest.raises(KeyError):
        queue.send_many(bodies())
    assert world.keys("log/") == []


def test_a_body_with_a_number_that_json_does_not_have_is_refused_and_nothing_is_sent(world: World, queue: Any) -> None:
    nan = float("nan")
    with pytest.raises(bucketmq.Invalid, match=r"body\.scores\[3\]"):
        queue.send({"scores": [1.0, 2.0, None, nan]})
    with pytest.raises(bucketmq.Invalid, match=r"bodies\[1\]\.x"):
        queue.send_many([{"x": 1.0}, {"x": float("inf")}])
    with pytest.raises(bucketmq.Invalid, match=r"body\.x"):
        queue.send({"x": nan}, delay_seconds=60)
    with pytest.raises(bucketmq.Invalid, match=r"body\.x"):
        queue.send({"x": nan}, dedup_key="once")
    with pytest.raises(bucketmq.Invalid, match=r"body\.x"):
        queue.send({"x": nan, "text": "x" * 100_000})
    assert world.keys("log/") == world.keys("later/") == world.keys("dedup/") == world.keys("bodies/") == []
    queue.send_many([b"null \xcb\x7f\xf8", None, "null", bytearray(b"null")])
    assert drain(queue) == [b"null \xcb\x7f\xf8", None, "null", b"null"]
