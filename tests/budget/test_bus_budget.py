"""What the event bus costs in requests, exactly, once a process is warm."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import Written
from bucketmq.client import Bucket
from bucketmq.engines.blocking import Blocking
from bucketmq.engines.perform import Hands
from bucketmq.procedures.claiming import claim
from budget.stores import PREFIX, RemoteStore

KINDS = ("get", "look", "create", "replace", "delete", "remove", "rename", "copy", "list")


class CopyingStore(RemoteStore):
    renames = False
    copies = False


def warm(store: MemoryStore) -> Bucket:
    """A process that has put, moved and deleted before."""
    bucket = Bucket(Blocking(Hands(store)), PREFIX, probe=False)
    bucket.put("warm/a", "x")
    bucket.move("warm/a", "warm/b")
    bucket.delete("warm/b")
    return bucket


def cost(bucket: Bucket, use: Callable[[], Any]) -> dict[str, int]:
    before = bucket.requests
    use()
    spent = bucket.requests - before
    return {kind: count for kind in KINDS if (count := getattr(spent, kind))}


@pytest.fixture
def store() -> CopyingStore:
    return CopyingStore()


@pytest.fixture
def bucket(store: CopyingStore) -> Bucket:
    return warm(store)


def test_reporting_any_number_of_events_is_one_put(bucket: Bucket) -> None:
    event = bucket.put("a", "x").event
    assert cost(bucket, lambda: bucket.report([event])) == {"create": 1}
    assert cost(bucket, lambda: bucket.report([event] * 1000)) == {"create": 1}
    assert cost(bucket, lambda: bucket.report([])) == {}


def test_a_put_is_three_puts_a_head_and_a_delete(bucket: Bucket) -> None:
    assert cost(bucket, lambda: bucket.put("a", "x")) == {"create": 3, "look": 1, "delete": 1}
    assert cost(bucket, lambda: bucket.put("a", "y")) == {"create": 2, "replace": 1, "look": 1, "delete": 1}


def test_reading_is_one_get_and_looking_one_head(bucket: Bucket) -> None:
    bucket.put("a", "x")
    assert cost(bucket, lambda: bucket.get("a")) == {"get": 1}
    assert cost(bucket, lambda: bucket.look("a")) == {"look": 1}


def test_a_delete_is_two_puts_a_head_and_two_deletes(bucket: Bucket) -> None:
    version = bucket.put("a", "x").version
    bucket.put("b", "x")
    conditional = {"create": 2, "look": 1, "delete": 1, "remove": 1}
    assert cost(bucket, lambda: bucket.delete("b")) == conditional
    assert cost(bucket, lambda: bucket.delete("a", if_version=version)) == conditional
    assert cost(bucket, lambda: bucket.delete("a")) == {"look": 1}


def test_a_move_is_a_get_three_puts_and_two_deletes(bucket: Bucket) -> None:
    bucket.put("a", "x")
    spent = cost(bucket, lambda: bucket.move("a", "b"))
    assert spent == {"get": 1, "create": 3, "remove": 1, "delete": 1}


def test_where_the_store_renames_a_move_is_one_request_instead_of_two() -> None:
    bucket = warm(RemoteStore())
    bucket.put("a", "x")
    spent = cost(bucket, lambda: bucket.move("a", "b"))
    assert spent == {"look": 2, "create": 2, "rename": 1, "delete": 1}


SIZES = [1, 10, 100]
"""How many objects at a time."""


@pytest.mark.parametrize("size", SIZES)
def test_putting_many_is_one_put_each_and_two_puts_and_a_delete_for_all(bucket: Bucket, size: int) -> None:
    objects = {f"many/{n}": "x" for n in range(size)}
    assert cost(bucket, lambda: bucket.put_many(objects)) == {"create": size + 2, "delete": 1}
    over = {"create": size + 2, "look": size, "replace": size, "delete": 1}
    assert cost(bucket, lambda: bucket.put_many(objects)) == over


@pytest.mark.parametrize("size", SIZES)
def test_getting_many_is_one_get_each(bucket: Bucket, size: int) -> None:
    bucket.put_many({f"many/{n}": "x" for n in range(size)})
    assert cost(bucket, lambda: bucket.get_many([f"many/{n}" for n in range(size)])) == {"get": size}


@pytest.mark.parametrize("size", SIZES)
def test_moving_many_is_a_get_a_put_and_a_delete_each_and_the_same_for_all(bucket: Bucket, size: int) -> None:
    bucket.put_many({f"many/{n}": "x" for n in range(size)})
    spent = cost(bucket, lambda: bucket.move_many({f"many/{n}": f"moved/{n}" for n in range(size)}))
    assert spent == {"get": size, "create": size + 2, "remove": size, "delete": 1}


@pytest.mark.parametrize("size", SIZES)
def test_deleting_many_is_a_head_and_a_delete_each_and_the_same_for_all(bucket: Bucket, size: int) -> None:
    keys = [f"many/{n}" for n in range(size)]
    bucket.put_many(dict.fromkeys(keys, "x"))
    assert cost(bucket, lambda: bucket.delete_many(keys)) == {
        "look": size,
        "create": 2,
        "remove": size,
        "delete": 1,
    }
    assert cost(bucket, lambda: bucket.delete_many(keys)) == {"look": size}


def test_more_than_fit_into_a_batch_cost_another_note_and_report(bucket: Bucket) -> None:
    assert cost(bucket, lambda: bucket.put_many({f"many/{n}": "x" for n in range(501)})) == {"create": 505, "delete": 2}


def test_recovering_when_there_is_nothing_to_recover_is_one_list(bucket: Bucket) -> None:
    assert cost(bucket, bucket.recover) == {"list": 1}


def test_looking_at_the_rules_is_one_list_and_a_get_for_each(bucket: Bucket) -> None:
    for n in range(3):
        bucket.rules.add(f"r{n}", to="queue:out")
    assert cost(bucket, bucket.rules.list) == {"list": 1, "get": 3}
    assert cost(bucket, lambda: bucket.rules.get("r0")) == {"get": 1}
    assert cost(bucket, lambda: bucket.rules.pause("r0")) == {"get": 2, "replace": 1}


@pytest.mark.parametrize("events", [10, 100])
def test_delivering_to_a_queue_costs_the_same_for_any_number_of_events(
    store: CopyingStore, events: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "MISSING_SECONDS", 600.0)  # a machine that stalls for a second would look once more
    bucket = warm(store)
    bucket.rules.add("r", to="queue:out")
    first = bucket.put("a", "x").event
    bucket.notify(stop_when_empty=True, signals=False)

    told = [type(first)(id=f"evt_{n}", kind="created", key=f"k{n}", at=first.at, source="s3") for n in range(events)]
    bucket.report(told)
    spent = cost(bucket, lambda: bucket.notify(stop_when_empty=True, signals=False))
    # The rules are listed and the rule read; the head, the segment and whether there is a next one; the head is claimed
    # and settled; the messages and the journal are written.
    assert spent == {"list": 1, "get": 4, "replace": 2, "create": 2}


def test_events_that_a_rule_does_not_want_cost_it_no_put_for_each(store: CopyingStore) -> None:
    bucket = warm(store)
    bucket.rules.add("r", to="queue:out", filter='WHERE key LIKE "wanted/%"')
    first = bucket.put("a", "x").event
    bucket.notify(stop_when_empty=True, signals=False)
    for n in range(20):
        bucket.report([type(first)(id=f"evt_{n}", kind="created", key=f"k{n}", at=first.at, source="s3")])
    spent = cost(bucket, lambda: bucket.notify(stop_when_empty=True, signals=False))
    assert spent["replace"] == 1
    assert "create" not in spent
    assert spent["get"] <= 20 * 2  # each segment, and sometimes whether there is a next one


@pytest.mark.parametrize("keys", [100, 1000])
def test_a_sweep_that_finds_nothing_is_its_listing_and_one_get_for_each_range(store: CopyingStore, keys: int) -> None:
    bucket = warm(store)
    for n in range(keys):
        assert isinstance(store.create(f"{PREFIX}/k/{n:05}", b"x"), Written)
    bucket.sweep("k/", baseline=True)
    spent = cost(bucket, lambda: bucket.sweep("k/"))
    # The manifest before, at the end and for what is orphaned, and the chunk; the keys, and the chunks.
    assert spent == {"get": 4, "list": 2}


def test_a_sweep_that_finds_something_adds_five_requests(store: CopyingStore) -> None:
    bucket = warm(store)
    for n in range(100):
        assert isinstance(store.create(f"{PREFIX}/k/{n:05}", b"x"), Written)
    bucket.sweep("k/", baseline=True)
    store.create(f"{PREFIX}/k/new", b"x")
    spent = cost(bucket, lambda: bucket.sweep("k/"))
    # More than for nothing: the event and the new chunk, the manifest read and replaced, the old chunk deleted.
    assert spent == {"get": 5, "list": 2, "create": 2, "replace": 1, "delete": 1}


def test_a_filter_on_the_body_is_one_get_for_each_event_that_passes_the_rest(store: CopyingStore) -> None:
    bucket = warm(store)
    bucket.put("in/1.json", {"ok": True})
    for n in range(5):
        bucket.put(f"other/{n}.json", {"ok": True})
    spent = cost(bucket, lambda: bucket.rules.matching('WHERE key LIKE "in/%" AND body.ok = true'))
    assert spent["get"] == 1
    assert "look" not in spent
