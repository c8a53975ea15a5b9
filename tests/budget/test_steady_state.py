"""What each operation costs in requests, exactly, once a process is warm. A batch of any size costs the same."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from bucketmq.client import Bucket, Queue
from bucketmq.log import documents
from bucketmq.log.documents import SPLIT_FORMAT, Dedup, DedupEntry
from bucketmq.procedures.sending.dedup import ENTRIES_MAX
from bucketmq.queue.routing import digits_of
from budget.stores import KEYS, PREFIX, RemoteStore, Spent, connect, settled
from budget.test_idle import VirtualTime

SIZES = [1, 10, 1000]


@pytest.mark.parametrize("size", SIZES)
def test_sending_a_batch_is_one_put(size: int) -> None:
    bucket = connect(RemoteStore())
    queue = bucket.queue("jobs")
    queue.send("warm")
    for _ in range(5):
        with Spent(bucket) as spent:
            queue.send_many(range(size))
        assert spent.kinds == {"create": 1}


def sends_for_four_minutes(subscriptions: int) -> dict[str, int]:
    """What 25 sends cost, one every ten seconds."""
    engine = VirtualTime(RemoteStore())
    bucket = Bucket(engine, PREFIX, probe=False)
    queue = bucket.queue("jobs")
    for number in range(subscriptions):
        queue.subscription(f"s{number}")
    queue.send("warm")
    with Spent(bucket) as spent:
        for _ in range(25):
            engine.now += 10
            queue.send("x")
    return spent.kinds


def test_a_sender_compares_its_tail_with_the_heads_once_a_minute() -> None:
    settings = 250 // 40  # sends that find the settings older than half a minute
    checks = 250 // 70  # and the heads older than a minute
    assert sends_for_four_minutes(1) == {"create": 25, "get": settings + checks}
    assert sends_for_four_minutes(3) == {"create": 25, "get": settings + 3 * checks}


def test_the_hint_is_written_every_64_segments() -> None:
    bucket = connect(RemoteStore())
    queue = bucket.queue("jobs")
    queue.send("warm")
    with Spent(bucket) as spent:
        for n in range(640):
            queue.send(n)
    assert spent.kinds == {"create": 641, "replace": 9, "get": 1}


@pytest.mark.parametrize("size", SIZES)
def test_receiving_and_settling_a_batch_is_one_get_and_one_put(size: int) -> None:
    store = RemoteStore()
    sender, bucket = connect(store).queue("jobs"), connect(store)
    for _ in range(12):
        sender.send_many(range(size))
    queue = bucket.queue("jobs")
    for _ in range(2):
        settled(queue.receive(size))
    for _ in range(8):
        with Spent(bucket) as spent:
            assert settled(queue.receive(size)) == size
        assert spent.kinds == {"get": 1, "replace": 1}
        assert spent.requests.refused == spent.requests.missing == 0


def test_a_batch_out_of_one_large_segment_needs_no_get_at_all() -> None:
    bucket = connect(RemoteStore())
    queue = bucket.queue("jobs")
    queue.send_many(range(1000))
    settled(queue.receive(100))
    for _ in range(8):
        with Spent(bucket) as spent:
            assert settled(queue.receive(100)) == 100
        assert spent.kinds == {"replace": 1}


@pytest.mark.parametrize("shards", [1, 4])
def test_an_empty_poll_is_one_get_for_each_shard(shards: int) -> None:
    bucket = connect(RemoteStore())
    queue = bucket.queue("jobs", shards=shards)
    for n in range(shards):
        queue.send(n)
    while settled(queue.receive(10)):
        pass
    queue.flush()
    queue.receive(10)
    for _ in range(5):
        with Spent(bucket) as spent:
            assert not queue.receive(10)
        assert spent.kinds == {"get": shards}
        assert spent.requests.missing == shards


def test_a_failed_batch_adds_one_put_for_its_failures() -> None:
    bucket = connect(RemoteStore())
    queue = bucket.queue("jobs")
    queue.send_many(range(100))
    batch = queue.receive(100)
    with Spent(bucket) as spent:
        for delivery in batch:
            delivery.retry("why", delay_seconds=100)
        queue.flush()
    assert spent.kinds == {"create": 1, "replace": 1}


def test_flush_wait_and_extend_are_one_put_each() -> None:
    bucket = connect(RemoteStore())
    queue = bucket.queue("jobs")
    queue.send_many(range(10))
    batch = queue.receive(10)
    for use in (
        lambda: batch[0].ack(wait=True),
        lambda: batch[1].extend(500),
        lambda: (settled(batch[2:]), queue.flush()),
    ):
        with Spent(bucket) as spent:
            use()
        assert spent.kinds == {"replace": 1}
    with Spent(bucket) as spent:
        queue.flush()
    assert spent.kinds == {}


def test_a_deduplicated_send_is_one_get_and_two_puts() -> None:
    bucket = connect(RemoteStore())
    queue = bucket.queue("jobs")
    for n in range(100):
        queue.send("warm", dedup_key=str(n))
    with Spent(bucket) as spent:
        queue.send("x", dedup_key="once")
    assert spent.kinds == {"get": 1, "replace": 1, "create": 1}
    with Spent(bucket) as spent:
        assert queue.send("x", dedup_key="once").duplicate
    assert spent.kinds == {"get": 2}


def with_keys(count: int) -> RemoteStore:
    """A queue with so many deduplication keys in the window, in the registers where senders would have left them."""
    registers: dict[str, list[str]] = {}
    full: set[str] = set()
    for number in range(count):
        digits, level = digits_of(f"old-{number}"), 0
        while (key := KEYS.dedup(int(digits[1], 16), digits[2 : 2 + 2 * level])) in full:
            level += 1
        registers.setdefault(key, []).append(digits)
        if len(registers[key]) == ENTRIES_MAX:
            full.add(key)
    store, now = RemoteStore(), time.time()
    for key, entered in registers.items():
        sent = {digits: DedupEntry("q2v8k0c5x9w1m3aa", now, 0, place) for place, digits in enumerate(entered)}
        split = Dedup(len(sent), sent, SPLIT_FORMAT, split=True) if key in full else Dedup(len(sent), sent)
        store.create(key, documents.encode(split))
    return store


@pytest.mark.parametrize("keys", [10, 1_000, 100_000])
def test_a_deduplicated_send_costs_the_same_however_many_keys_are_in_the_window(keys: int) -> None:
    bucket = connect(with_keys(keys))
    queue = bucket.queue("jobs")
    for n in range(500):  # until the process has met the registers that have split
        queue.send("warm", dedup_key=f"warm-{n}")
    written, requests = [], Counter[str]()
    for n in range(200):
        with Spent(bucket) as spent:
            queue.send("x", dedup_key=str(n))
        written.append(spent.requests.bytes_out)
        requests += Counter(spent.kinds)
    # Two writes and a GET each, and little else: hints, registers that split just now, or that others have split.
    assert requests["create"] + requests["replace"] <= 2.1 * 200
    assert requests["get"] <= 1.2 * 200
    assert max(written) < 8_000  # the register that splits, the one below it, and the message
    assert sum(written) / len(written) < 3_000


def test_a_process_that_is_new_to_a_queue_of_100_000_keys_reads_one_register_more() -> None:
    store = with_keys(100_000)
    gets = Counter[int]()
    connect(store).queue("jobs").send("warm")
    for n in range(40):
        bucket = connect(store)
        queue = bucket.queue("jobs")
        queue.send("warm")
        with Spent(bucket) as spent:
            queue.send("x", dedup_key=f"new-{n}")
        gets[spent.requests.get] += 1
    assert gets[2] >= 30
    assert set(gets) <= {2, 3}


def test_a_delayed_send_is_one_put() -> None:
    bucket = connect(RemoteStore())
    queue = bucket.queue("jobs")
    queue.send("warm", delay_seconds=1000)
    with Spent(bucket) as spent:
        queue.send_many(range(100), delay_seconds=1000)
    assert spent.kinds == {"create": 1}


def test_a_batch_that_is_buried_costs_its_failures_three_commits_and_one_put() -> None:
    bucket = connect(RemoteStore())
    queue = bucket.queue("jobs")
    for _ in range(2):
        queue.send_many(range(100))
    for delivery in queue.receive(100):
        delivery.bury("warm")
    queue.flush()
    batch = queue.receive(100)
    with Spent(bucket) as spent:
        for delivery in batch:
            delivery.bury("why")
        queue.flush()
    # Created: the record of the failures and the segment. The head: with the moves, with their target, without them.
    # Read again: the record, and the messages. Nothing is asked about the log of dead letters.
    assert spent.kinds == {"get": 2, "create": 2, "replace": 3}


def test_a_large_body_adds_one_put_and_one_get() -> None:
    bucket = connect(RemoteStore())
    queue = bucket.queue("jobs")
    queue.send("warm")
    settled(queue.receive(1))
    with Spent(bucket) as spent:
        queue.send("x" * 100_000)
    assert spent.kinds == {"create": 2}
    with Spent(bucket) as spent:
        settled(queue.receive(1))
    assert spent.kinds["replace"] == 1
    assert spent.kinds["get"] <= 3  # the segment, the body, the segment ahead


def test_the_probe_is_about_ten_requests() -> None:
    from bucketmq.client import Bucket
    from bucketmq.engines.blocking import Blocking
    from bucketmq.engines.perform import Hands

    bucket = Bucket(Blocking(Hands(RemoteStore())), "app", probe=True)
    with Spent(bucket) as spent:
        bucket.open()
    assert spent.total <= 10
    assert spent.kinds["delete"] == 1


def keys_by_shard(queue: Queue, shards: int) -> list[str]:
    """A key for each shard."""
    found: dict[int | None, str] = {}
    for n in range(100 * shards):
        found.setdefault(queue.send("x", key=str(n)).shard, str(n))
        if len(found) == shards:
            break
    while settled(queue.receive(1000)):
        pass
    queue.flush()
    return [found[shard] for shard in range(shards)]


def test_a_batch_from_several_shards_is_one_get_and_one_put_for_each() -> None:
    store = RemoteStore()
    sender, bucket = connect(store).queue("jobs", shards=4), connect(store)
    keys, queue = keys_by_shard(sender, 4), bucket.queue("jobs")
    for key in keys:
        for _ in range(12):
            sender.send_many(range(10), key=key)
    for _ in range(2):
        settled(queue.receive(40))
    while settled(batch := queue.receive(10)) and {each.shard for each in batch} != {3}:
        pass
    for _ in range(2):
        with Spent(bucket) as spent:
            assert settled(queue.receive(10)) == 10
        assert spent.kinds == {"get": 1, "replace": 1}  # one shard has enough: the others are not asked


def test_filling_a_batch_claims_once_in_each_shard_that_has_some() -> None:
    store = RemoteStore()
    sender, bucket = connect(store).queue("jobs", shards=4), connect(store)
    keys, queue = keys_by_shard(sender, 4), bucket.queue("jobs")
    queue.receive(10)
    for key in keys[:3]:
        sender.send_many(range(10), key=key)
    with Spent(bucket) as spent:
        batch = queue.receive(100)
    assert sorted({each.shard for each in batch}) == [0, 1, 2]
    assert spent.kinds["replace"] == 3
    assert spent.kinds["get"] <= 4 * 3  # each segment, whether another comes behind it, and the one after this claim


def test_a_little_in_one_shard_costs_the_same_however_many_are_empty() -> None:
    spent: dict[int, list[dict[str, int]]] = {}
    for shards in (1, 4):
        store = RemoteStore()
        bucket = Bucket(VirtualTime(store), PREFIX, probe=False)
        sender, queue = connect(store).queue("jobs", shards=shards), bucket.queue("jobs")
        key = keys_by_shard(sender, shards)[0]
        settled(queue.receive(10))
        spent[shards] = []
        for _ in range(10):
            sender.send_many(range(5), key=key)
            with Spent(bucket) as each:
                assert settled(queue.receive(100)) == 5
            spent[shards].append(each.kinds)
    assert spent[1][2:] == spent[4][2:]
    # An empty shard is asked once on the way to the one that has some, and once to fill the batch.
    assert sum(each["get"] for each in spent[4]) - sum(each["get"] for each in spent[1]) <= 2 * 3


def test_filling_costs_no_more_than_an_idle_receiver() -> None:
    spent = {}
    for shards in (1, 4):
        store = RemoteStore()
        engine = VirtualTime(store)
        bucket = Bucket(engine, PREFIX, probe=False)
        sender, queue = connect(store).queue("jobs", shards=shards), bucket.queue("jobs")
        key = keys_by_shard(sender, shards)[0]
        with Spent(bucket) as each:
            for _ in range(3600):
                sender.send_many(range(2), key=key)
                assert settled(queue.receive(100)) == 2
                engine.now += 1
        spent[shards] = each.kinds
    assert set(spent[4]) == {"get", "replace", "list"}
    assert spent[4]["list"] <= 3 * (3600 / 300 + 1)  # where the log ends, every five minutes
    assert spent[4]["replace"] == spent[1]["replace"]
    # The next segment, the head and the trim mark, every five seconds, in each of three empty shards.
    assert spent[4]["get"] - spent[1]["get"] <= 3 * 3 * (3600 / 5 + 10)
