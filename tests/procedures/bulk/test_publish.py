"""Publishing, without Spark: a batch of a transaction gets into the log once, whatever the store answers and whoever
dies or comes twice."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import bucketmq
from bucketmq.api.bucket import BucketApi
from bucketmq.api.queue import QueueApi
from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import PLAIN, Attributes, Missing, Object, Page, Refused, Unknown, Version, Written
from bucketmq.engines.blocking import Blocking
from bucketmq.engines.perform import Hands, Reply
from bucketmq.log import segment
from bucketmq.log.segment import Segment
from bucketmq.procedures import verbs
from bucketmq.procedures.bulk import publish as publishing
from bucketmq.procedures.bulk.orphans import remove_orphans
from bucketmq.procedures.bulk.publish import Made, Publication, Published, create_part, forget, publish
from bucketmq.procedures.opened import OpenQueue
from bucketmq.procedures.requests import Create, Now, Procedure, Replace, Request, StoreRequest
from bucketmq.queue.message import Message
from bucketmq.queue.routing import shard_of

ROOT = "app/queues/jobs/"
LONG = 100_000.0


class FaultyStore(MemoryStore):
    """Goes wrong at the `at`th request from now on, once, in the way `fault` says. The clock is the test's."""

    local = True

    def __init__(self) -> None:
        self.ahead = 0.0
        super().__init__(lambda: time.time() + self.ahead)
        self.asked = 0
        self.at = -1
        self.fault = ""

    def arm(self, at: int, fault: str) -> None:
        self.asked, self.at, self.fault = 0, at, fault

    def _now(self) -> bool:
        self.asked += 1
        return self.asked - 1 == self.at

    def get(self, key: str) -> Object | Missing:
        if self._now():
            raise bucketmq.Unavailable("503, try again")
        return super().get(key)

    def list(self, prefix: str, *, after: str, limit: int) -> Page:
        if self._now():
            raise bucketmq.Unavailable("503, try again")
        return super().list(prefix, after=after, limit=limit)

    def create(self, key: str, body: bytes, attributes: Attributes = PLAIN) -> Any:
        return self._write(lambda: super(FaultyStore, self).create(key, body, attributes))

    def replace(self, key: str, body: bytes, version: Version, attributes: Attributes = PLAIN) -> Any:
        return self._write(lambda: super(FaultyStore, self).replace(key, body, version, attributes))

    def _write(self, write: Callable[[], Written | Refused]) -> Written | Refused | Unknown:
        if not self._now():
            return write()
        if self.fault in ("landed", "landed and refused"):
            write()
        return Refused() if self.fault in ("refused", "landed and refused") else Unknown("no answer")


class Killed(BaseException):
    """The process is dead: nothing it does from here on reaches the store."""


class Process:
    """One process with the queue open. `lives`: how many requests it makes before it dies."""

    def __init__(self, store: MemoryStore, *, lives: int = 1_000_000, **settings: Any) -> None:
        self.hands = MortalHands(store, lives)
        self.engine = Blocking(self.hands)
        api = BucketApi("app", lists_in_order=True, local=True, probe_first=False)
        self.verbs = QueueApi(api, "jobs", settings)
        self.queue: OpenQueue = self.engine.run(self.verbs.open())

    def run(self, procedure: Procedure[Any]) -> Any:
        return self.engine.run(procedure)

    def make(self, name: str, *bodies: Any, key: str | None = None, transaction: str = "t1") -> list[Made]:
        """One part for each shard that the key goes to, or for shard 0."""
        shards = self.queue.settings.shards
        shard = shard_of(shards, key, 0)
        messages = [
            Message(f"{name}-{place:03}", "2026-11-16T12:00:00.000Z", key, body=body)
            for place, body in enumerate(bodies)
        ]
        body = segment.encode(messages)
        part = self.run(create_part(self.queue, transaction, name, body, len(messages)))
        return [Made(shard, shards, part, self.run(_now()))]

    def publish(self, batch: int, made: list[Made], **more: Any) -> Published:
        found: Published = self.run(publish(self.queue, "t1", batch, made, **more))
        return found


def _now() -> Procedure[float]:
    return (yield from Now())


class MortalHands(Hands):
    def __init__(self, store: MemoryStore, lives: int) -> None:
        super().__init__(store)
        self.lives = lives

    def perform(self, request: StoreRequest) -> Reply:
        if self.lives <= 0:
            raise Killed
        self.lives -= 1
        return super().perform(request)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verbs, "PAUSE_FIRST_SECONDS", 0.0001)


@pytest.fixture
def store() -> FaultyStore:
    return FaultyStore()


def bodies(store: MemoryStore) -> list[Any]:
    """Every body in the log, read as any receiver would, on a subscription of its own."""
    bucket = bucketmq.Bucket(Blocking(Hands(store)), "app", probe=False)
    name = f"reader-{len(store.list(ROOT + 'heads/', after='', limit=1000).entries)}"
    reader = bucket.queue("jobs").subscription(name)
    found = []
    while batch := reader.receive(100):
        for delivery in batch:
            found.append(delivery.body)
            delivery.ack()
    bucket.close()
    return found


def register(store: MemoryStore, transaction: str = "t1") -> Publication:
    import msgspec

    found = store.get(f"{ROOT}spark/{transaction}.json")
    assert isinstance(found, Object)
    return msgspec.json.decode(found.body, type=Publication)


def keys(store: MemoryStore, part: str) -> list[str]:
    return [entry.key.removeprefix(ROOT) for entry in store.list(ROOT + part, after="", limit=10_000).entries]


def test_a_batch_becomes_one_segment_for_each_shard_and_is_received_like_anything_else(store: FaultyStore) -> None:
    process = Process(store, shards=4)
    made = [*process.make("p0", 1, 2, key="user-7"), *process.make("p1", 3, key="user-7"), *process.make("p2", 4)]
    done = process.publish(0, made)
    assert not done.already
    assert [(each.shard, each.base, each.count) for each in done.segments] == [(0, 0, 1), (1, 0, 3)]
    assert sorted(bodies(store)) == [1, 2, 3, 4]
    assert register(store).done


def test_a_batch_that_was_published_is_recognised_and_so_are_those_before_it(store: FaultyStore) -> None:
    process = Process(store)
    process.publish(0, process.make("a", "a"))
    process.publish(1, process.make("b", "b"))
    again = Process(store)
    assert again.publish(1, again.make("b-again", "b")).already
    assert again.publish(0, again.make("a-again", "a")).already
    assert bodies(store) == ["a", "b"]


def test_transactions_count_their_batches_each_for_itself(store: FaultyStore) -> None:
    process = Process(store)
    process.publish(0, process.make("a", "a"))
    process.run(publish(process.queue, "t2", 0, process.make("b", "b", transaction="t2")))
    assert bodies(store) == ["a", "b"]


def test_a_batch_without_rows_is_remembered_with_its_offsets_and_appends_nothing(store: FaultyStore) -> None:
    process = Process(store)
    process.publish(0, [], offsets={"orders": {"0": 7}})
    assert keys(store, "log/") == []
    assert (register(store).batch, register(store).offsets) == (0, {"orders": {"0": 7}})
    assert process.publish(0, []).already


def test_a_batch_whose_offsets_are_not_known_does_not_have_those_of_the_batch_before(store: FaultyStore) -> None:
    """A checkpoint made of them would have it read once more, and published under the next number."""
    process = Process(store)
    process.publish(0, process.make("a", "a"), offsets={"orders": {"0": 7}})
    process.publish(1, process.make("b", "b"))
    assert (register(store).batch, register(store).offsets) == (1, {})


def test_the_steady_state_costs_a_get_and_two_puts_of_the_register_and_one_put_for_each_shard(
    store: FaultyStore,
) -> None:
    process = Process(store)
    process.publish(0, process.make("a", "a"))
    made = process.make("b", "b")
    before = process.hands.meter.read()
    process.publish(1, made)
    after = process.hands.meter.read()
    assert (after.get - before.get, after.writes - before.writes, after.list - before.list) == (1, 3, 0)


FAULTS = ("landed", "lost", "refused", "landed and refused")


def _requests_of_a_publication() -> int:
    store = FaultyStore()
    process = Process(store, shards=2)
    made = [*process.make("p0", 1, key="user-7"), *process.make("p1", 2)]
    cold = Process(store)
    store.arm(-1, "")
    cold.publish(0, made)
    return store.asked


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("at", range(_requests_of_a_publication()))
def test_a_fault_at_any_request_doubles_and_loses_nothing(store: FaultyStore, at: int, fault: str) -> None:
    process = Process(store, shards=2)
    made = [*process.make("p0", 1, key="user-7"), *process.make("p1", 2)]
    cold = Process(store)
    store.arm(at, fault)
    assert not cold.publish(0, made).already
    assert store.asked > at
    assert register(store).done
    assert sorted(bodies(store)) == [1, 2]


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("at", range(_requests_of_a_publication()))
def test_a_fault_while_another_producer_takes_the_places_doubles_and_loses_nothing(
    store: FaultyStore, at: int, fault: str
) -> None:
    process = Process(store, shards=2)
    made = [*process.make("p0", 1, key="user-7"), *process.make("p1", 2)]
    cold = Process(store)
    rival = bucketmq.Bucket(Blocking(Hands(store)), "app", probe=False)
    once = iter([True])
    original = cold.hands.perform

    def perform(request: StoreRequest) -> Reply:
        if isinstance(request, Create) and "/log/" in request.key and next(once, False):
            at_, store.at = store.at, -1
            rival.queue("jobs").send("other", key="user-7")
            rival.queue("jobs").send_many(["other"] * 2, key="a")
            store.at = at_
        return original(request)

    cold.hands.perform = perform  # type: ignore[method-assign]
    store.arm(at, fault)
    cold.publish(0, made)
    found = Counter(bodies(store))
    assert found == {1: 1, 2: 1, "other": 3}
    rival.close()


@pytest.mark.parametrize("lives", range(1, _requests_of_a_publication() + 1))
@pytest.mark.parametrize("rerun", ["at once", "after others sent", "after it was read and trimmed"])
def test_a_driver_that_dies_anywhere_is_followed_by_one_that_finishes(
    store: FaultyStore, lives: int, rerun: str
) -> None:
    process = Process(store, shards=2, keep_seconds=0, dedup_seconds=0)
    made = [*process.make("p0", 1, key="user-7"), *process.make("p1", 2)]
    dying = Process(store)
    dying.hands.lives = lives
    try:
        dying.publish(0, made)
        died = False
    except Killed:
        died = True
    assert died == (lives < _requests_of_a_publication())
    seen = [] if rerun == "at once" else _pass_by(store, trim=rerun == "after it was read and trimmed")
    follower = Process(store)
    again = [*follower.make("p0-again", 1, key="user-7"), *follower.make("p1-again", 2)]
    follower.publish(0, again)
    assert register(store).done
    main = bucketmq.Bucket(Blocking(Hands(store)), "app", probe=False)
    while batch := main.queue("jobs").receive(100):
        seen += [delivery.body for delivery in batch]
        for delivery in batch:
            delivery.ack()
    main.close()
    assert sorted(body for body in seen if body != "other") == [1, 2]


def _pass_by(store: FaultyStore, *, trim: bool) -> list[Any]:
    """Others send to both shards; if `trim`, all is received by `main` and, much later, trimmed."""
    bucket = bucketmq.Bucket(Blocking(Hands(store)), "app", probe=False)
    queue = bucket.queue("jobs")
    for _ in range(2):
        queue.send("other", key="user-7")
        queue.send("other", key="a")
    seen = []
    if trim:
        while batch := queue.receive(100):
            seen += [delivery.body for delivery in batch]
            for delivery in batch:
                delivery.ack()
        queue.flush()
        store.ahead += 40_000.0
        queue.send("other", key="user-7")
        queue.send("other", key="a")
        queue.trim()
        while batch := queue.receive(100):
            seen += [delivery.body for delivery in batch]
            for delivery in batch:
                delivery.ack()
    bucket.close()
    return seen


def _steps(engine: Blocking, procedure: Procedure[Any]) -> Iterator[None]:
    """Run a procedure one request at a time."""
    reply: Any = None
    error: BaseException | None = None
    while True:
        try:
            request: Request = procedure.send(reply) if error is None else procedure.throw(error)
        except StopIteration:
            return
        reply, error = None, None
        try:
            reply = engine._do(request)
        except bucketmq.BucketMQError as raised:
            error = raised
        if isinstance(request, Create | Replace):
            yield


@pytest.mark.parametrize("turns", list(itertools.combinations(range(8), 4)), ids=str)
def test_rivals_with_the_same_batch_publish_one_of_the_two(store: FaultyStore, turns: tuple[int, ...]) -> None:
    process = Process(store, shards=2)
    rivals = {}
    for name in "ab":
        rival = Process(store)
        # The same rows, divided otherwise: a mixture of the two would lose one row and double another.
        rows = {"a": ([1, 2], [3]), "b": ([1], [3, 2])}[name]
        made = [*rival.make(f"{name}0", *rows[0], key="user-7"), *rival.make(f"{name}1", *rows[1])]
        rivals[name] = _steps(rival.engine, publish(rival.queue, "t1", 0, made))
    for name in ["a" if turn in turns else "b" for turn in range(8)] + ["a", "b"] * 40:
        next(rivals[name], None)
    assert process.publish(0, []).already
    assert sorted(bodies(store)) == [1, 2, 3]


def test_a_batch_waits_for_the_one_before_it_that_was_left_half_done(store: FaultyStore) -> None:
    dying = Process(store)
    dying.publish(0, dying.make("a", "a"))
    made = dying.make("b", "b")
    dying.hands.lives = 2  # a GET and a PUT: the register is written, the segment is not
    with pytest.raises(Killed):
        dying.publish(1, made)
    assert not register(store).done
    process = Process(store)
    process.publish(2, process.make("c", "c"))
    assert bodies(store) == ["a", "b", "c"]


def test_in_an_ordered_queue_parts_of_an_old_shard_count_are_divided_anew(store: FaultyStore) -> None:
    process = Process(store, ordered=True)
    made = [made for n in range(8) for made in process.make(f"p{n}", n, key=f"k{n}")]
    bucket = bucketmq.Bucket(Blocking(Hands(store)), "app", probe=False)
    bucket.queue("jobs").raise_shards(4)
    process.publish(0, made)
    for aimed in register(store).segments:
        for part in aimed.parts:
            found = store.get(ROOT + part.key)
            assert isinstance(found, Object)
            messages = segment.decode_lines(found.body, part.key)
            assert {shard_of(4, message.key, 0) for message in messages} == {aimed.shard}
    assert sorted(bodies(store)) == list(range(8))
    bucket.close()


def test_a_fence_that_takes_the_place_makes_the_batch_find_its_shards_anew(store: FaultyStore) -> None:
    process = Process(store, ordered=True)
    made = [made for n in range(8) for made in process.make(f"p{n}", n, key=f"k{n}")]
    bucket = bucketmq.Bucket(Blocking(Hands(store)), "app", probe=False)
    once = iter([True])
    original = process.hands.perform

    def perform(request: StoreRequest) -> Reply:
        if isinstance(request, Create) and "/log/" in request.key and next(once, False):
            bucket.queue("jobs").raise_shards(4)
        return original(request)

    process.hands.perform = perform  # type: ignore[method-assign]
    process.publish(0, made)
    assert {aimed.shards for aimed in register(store).segments} == {4}
    assert sorted(bodies(store)) == list(range(8))
    bucket.close()


def test_a_segment_that_a_slow_publisher_created_and_a_trim_has_passed_is_not_published_again(
    store: FaultyStore,
) -> None:
    def dies(process: Process, kind: type[Create | Replace], part: str) -> None:
        original = process.hands.perform

        def perform(request: StoreRequest) -> Reply:
            if isinstance(request, kind) and part in request.key:
                raise Killed
            return original(request)

        process.hands.perform = perform  # type: ignore[method-assign]
        with pytest.raises(Killed):
            process.publish(0, made)

    first, second = Process(store), Process(store)
    made = first.make("a", "a")
    dies(first, Create, "/log/")
    store.ahead += 146  # the place was chosen long before the segment was created there
    dies(second, Replace, "/spark/")
    assert bodies(store) == ["a"]
    store.ahead += 200
    store.create(f"{ROOT}trim/0.json", b'{"low":1,"format":1,"before":0}')  # what is below is deleted next
    Process(store).publish(0, made)
    assert register(store).done
    assert [each.base for each in register(store).segments] == [0]
    assert len(keys(store, "log/0/")) == 1


def test_whoever_finishes_a_batch_behind_a_fence_that_it_has_not_seen_sends_by_the_new_shards(
    store: FaultyStore,
) -> None:
    green = next(key for key in map(str, range(100)) if shard_of(2, key, 0) == 1)
    process = Process(store, ordered=True)
    process.publish(0, process.make("a", "a"))
    bucket = bucketmq.Bucket(Blocking(Hands(store)), "app", probe=False)
    bucket.queue("jobs").raise_shards(2)
    dying = Process(store)
    made = dying.make("b", "b")
    original = dying.hands.perform

    def perform(request: StoreRequest) -> Reply:
        if isinstance(request, Create) and "/log/" in request.key:
            raise Killed
        return original(request)

    dying.hands.perform = perform  # type: ignore[method-assign]
    with pytest.raises(Killed):
        dying.publish(1, made)
    process.publish(1, [])
    assert bodies(store) == ["a", "b"]
    assert process.run(process.verbs.send("c", key=green)).shard == 1
    bucket.close()


def test_parts_that_may_be_swept_any_moment_are_not_published(store: FaultyStore) -> None:
    process = Process(store)
    made = process.make("a", "a")
    store.ahead += publishing.PUBLISH_SECONDS + 60
    late = Process(store)
    late.make("tick", 0)  # so that this process learns what the store's clock says
    with pytest.raises(bucketmq.Unavailable, match="run the batch again"):
        late.publish(0, made)


@pytest.mark.parametrize(("transaction", "batch"), [("", 0), ("../x", 0), ("t1", -1)])
def test_bad_names_are_refused(store: FaultyStore, transaction: str, batch: int) -> None:
    process = Process(store)
    with pytest.raises(bucketmq.Invalid):
        process.run(publish(process.queue, transaction, batch, []))


def test_trimming_deletes_the_parts_with_their_segment(store: FaultyStore) -> None:
    process = Process(store, keep_seconds=0, dedup_seconds=0, main=False)
    for batch in range(3):
        process.publish(batch, process.make(f"p{batch}", batch))
    store.ahead += 1000
    bucket = bucketmq.Bucket(Blocking(Hands(store)), "app", probe=False)
    queue = bucket.queue("jobs")
    queue.send("last")
    for delivery in queue.receive(10):
        delivery.ack()
    queue.flush()
    assert (queue.trim().segments, keys(store, "parts/")) == (3, [])
    bucket.close()


def test_orphans_go_by_age_and_nothing_that_is_named_goes(store: FaultyStore) -> None:
    dying = Process(store)
    dying.publish(0, dying.make("published", "a"))
    made = dying.make("entered", "b")
    dying.hands.lives = 2  # a GET and a PUT: the register is written, the segment is not
    with pytest.raises(Killed):
        dying.publish(1, made)
    assert not register(store).done
    process = Process(store)
    process.make("orphan", "c")
    assert process.run(remove_orphans(process.queue)) == 0
    store.ahead += LONG
    later = Process(store)
    later.make("young-orphan", "d")
    assert later.run(remove_orphans(later.queue)) == 1
    left = [key.rsplit("/", 1)[-1] for key in keys(store, "parts/")]
    assert left == ["entered.ndjson", "published.ndjson", "young-orphan.ndjson"]
    later.publish(1, [])
    assert bodies(store) == ["a", "b"]


def test_a_register_can_be_forgotten(store: FaultyStore) -> None:
    process = Process(store)
    process.publish(0, process.make("a", "a"))
    process.run(forget(process.queue, "t1"))
    assert keys(store, "spark/") == []
    assert Segment(0, store.get(f"{ROOT}log/0/{0:020}.ndjson").body).count == 1  # type: ignore[union-attr]
