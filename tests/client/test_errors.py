"""Errors: typed by what to do next, picklable, and each says what happened, to what, and the cure."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from procedures.world import World

import bucketmq

KINDS = [
    bucketmq.Invalid,
    bucketmq.NotFound,
    bucketmq.LeaseLost,
    bucketmq.Contended,
    bucketmq.Unavailable,
    bucketmq.Denied,
    bucketmq.Unsupported,
    bucketmq.Corrupt,
]


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_error_has_one_root_a_kind_of_its_own_and_pickles(kind: type[bucketmq.BucketMQError]) -> None:
    error = kind("what happened, to what; what to do")
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert str(again) == str(error)
    assert issubclass(kind, bucketmq.BucketMQError)
    assert len({each.kind for each in KINDS}) == len(KINDS)


def raised(world: World) -> dict[str, Any]:
    """One of each error that a user meets, with the words that must be in it."""
    bucket = world.connect()
    queue = bucket.queue("jobs", lease_seconds=10)
    queue.send("x")
    (late,) = queue.receive(1)
    world.advance(11)
    world.connect().queue("jobs").receive(1)
    settled = world.connect().queue("two")
    settled.send("x")
    (done,) = settled.receive(1)
    done.ack()
    return {
        "settle each delivery once": done.ack,
        "extend the lease or raise lease_seconds": lambda: late.ack(wait=True),
        "run init or send to it": lambda: bucket.existing_queue("nope").stats(),
        "send JSON values, text or bytes": lambda: queue.send(object()),
        "use .dead_letters": lambda: bucket.queue("jobs.dead"),
        "there are attempts_max": lambda: bucket.queue("jobs", colour="red"),
    }


def test_errors_say_what_to_do(world: World) -> None:
    for words, use in raised(world).items():
        with pytest.raises(bucketmq.BucketMQError) as told:
            use()
        assert words in str(told.value)
        assert pickle.loads(pickle.dumps(told.value)).args == told.value.args


@pytest.mark.parametrize("url", ["", "nonsense://x", "s3://", "file://relative", "s3:/bucket", "s3://user@bucket"])
@pytest.mark.parametrize("connect", [bucketmq.connect, bucketmq.aio.connect], ids=["blocking", "asyncio"])
def test_a_bad_url_is_invalid_and_the_message_shows_a_good_one(connect: Any, url: str) -> None:
    with pytest.raises(bucketmq.Invalid) as told:
        connect(url)
    assert "://" in str(told.value) or "slashes" in str(told.value)


def test_an_unknown_option_is_invalid(tmp_path: Path) -> None:
    with pytest.raises(bucketmq.Invalid, match="colour"):
        bucketmq.connect(f"file://{tmp_path}", colour="red")


def test_a_store_that_ignores_conditions_is_refused() -> None:
    from bucketmq.bucket.memory import MemoryStore
    from bucketmq.bucket.port import PLAIN, Attributes
    from bucketmq.client import Bucket
    from bucketmq.engines.blocking import Blocking
    from bucketmq.engines.perform import Hands

    class Careless(MemoryStore):
        def create(self, key: str, body: bytes, attributes: Attributes = PLAIN) -> Any:
            self.delete(key)
            return super().create(key, body, attributes)

    class Forgetful(MemoryStore):
        def replace(self, key: str, body: bytes, version: Any, attributes: Attributes = PLAIN) -> Any:
            found: Any = self.get(key)
            return super().replace(key, body, found.version, attributes)

    for store, word in ((Careless(), "If-None-Match"), (Forgetful(), "If-Match")):
        bucket = Bucket(Blocking(Hands(store)), "app", probe=True)
        with pytest.raises(bucketmq.Unsupported, match=word):
            bucket.open()
        assert store.list("", after="", limit=10).entries == ()


def test_the_probe_leaves_nothing_behind(tmp_path: Path) -> None:
    with bucketmq.connect(f"file://{tmp_path}/bucket") as bucket:
        bucket.open()
    assert [path for path in (tmp_path / "bucket").rglob("*.json") if "probe" in path.parts] == []
