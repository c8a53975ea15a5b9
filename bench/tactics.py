"""What each tactic against contention is worth: `python -m bench.tactics`.

Workers run on the simulator's virtual time, over a store that takes S3's time for a request. So the load of the machine
does not matter, a seed gives the same numbers everywhere, and a minute of work takes seconds. Each tactic is switched
off alone, and every number is the median over the seeds of its ratio to the same seed with all tactics on.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from collections.abc import Iterator, Sequence
from functools import cache

import msgspec

from bench.latency import S3_LIKE, Latency
from bucketmq.api.bucket import BucketApi
from bucketmq.bucket.port import Object
from bucketmq.procedures.heads.contention import TACTICS, Contention, Tactics
from bucketmq.procedures.requests import Create, Get, List, Look, Pause, Procedure, Replace, StoreRequest
from bucketmq.testing.simulation.engine import Process, run_alone
from bucketmq.testing.simulation.run import quiet
from bucketmq.testing.simulation.store import Deliver, SimStore
from bucketmq.testing.simulation.world import World

BATCH = 10
"""Messages of one receive, and of one segment: what counts is requests, and small batches are quick to simulate."""

FAST = Latency(write=(0.001, 0.002), read=(0.0005, 0.001), list=(0.001, 0.002))

OFF: dict[str, dict[str, float]] = {
    "all that ask whether a head is shared": {"shared_seconds": 0.0},
    "own turn without a look": {"own_turns": 0.0},
    "caution": {"caution": 0.0},
    "read a stale head before a commit": {"rereads": False},
    "give way after a lost race": {"gives_way": False},
    "rest after a lost race": {"lost_rest_turns": 0.0},
    "pause after a conflict": {"conflict_pause_seconds": 0.0},
    "stay at the last shard": {"stays": False},
    "leave after 16 lots": {"stay_lots": 1 << 30},
    "rest after leaving": {"stay_rest_turns": 0.0},
    "one claim for several receives": {"at_once": 1},
    "bound them by a second": {"spare_seconds": math.inf},
    "read several segments ahead": {"reads_ahead": False},
    "settlements linger longer": {"linger_seconds": 1.0},
    "slow requests count more": {"slow_weight": 0.1, "fast_weight": 0.1},
}
"""What each tactic is switched off by."""


class Scene(msgspec.Struct, frozen=True):
    """Who works on what, for `seconds` of virtual time."""

    name: str
    workers: int
    shards: int
    work_seconds: float = 0.0
    """How long a batch takes its worker, on average."""
    sent_every: float = 0.0
    """A batch is sent so often; 0: there is a backlog that nobody gets to the end of."""
    wait_seconds: float = 1.0
    """0: callers that do not wait race for every claim, without turns."""
    latency: Latency = S3_LIKE
    backlog: int = 120
    """Batches in each shard for each second of the run: more than the workers can take."""
    seconds: float = 20.0


SCENES = (
    Scene("8 workers, 4 shards", 8, 4),
    Scene("8 workers, 1 shard", 8, 1),
    Scene("2 workers, 1 shard", 2, 1),
    Scene("16 workers at 1 s a batch, 2 shards", 16, 2, work_seconds=1.0),
    Scene("8 workers at 4 s a batch, 2 shards", 8, 2, work_seconds=4.0, seconds=40.0),
    Scene("8 workers that do not wait, at 0.5 s a batch, 2 shards", 8, 2, work_seconds=0.5, wait_seconds=0.0),
    Scene(
        "40 workers that do not wait, a store of 1 ms, 1 shard",
        40,
        1,
        0.02,
        wait_seconds=0.0,
        latency=FAST,
        backlog=1500,
        seconds=2.0,
    ),
    Scene("8 workers, a batch every 0.2 s, 2 shards", 8, 2, sent_every=0.2),
)


class Found(msgspec.Struct, frozen=True):
    """What came of one run."""

    rate: float
    """Messages a second."""
    requests: float
    """Requests for a hundred messages."""
    price: float
    """The same, with a GET counted as a twelfth of a PUT."""
    refused: float
    """The part of the conditional writes of heads that was refused."""
    least: float
    """What the worker with the least got, of what would have been fair."""


class _Store(SimStore):
    """A simulated store that takes a real one's time."""

    def __init__(self, world: World, latency: Latency) -> None:
        super().__init__(world, lists_in_order=True, answer_stamps=False, content_versions=True, whole_seconds=True)
        self.reads = self.writes = 0
        self._latency = latency

    def submit(self, who: str, request: StoreRequest, deliver: Deliver) -> None:
        reads = isinstance(request, Get | Look)
        self.requests += 1
        self.reads += reads
        self.writes += isinstance(request, Create | Replace)
        latency = self._latency
        span = latency.read if reads else latency.list if isinstance(request, List) else latency.write
        half = self.world.between(*span) / 2
        self.world.after(half, self._arrive, who, request, deliver, half)

    def counts(self) -> tuple[int, int, int, int]:
        return self.requests, self.reads, self.writes, self.refused

    def restore(self, objects: dict[str, Object]) -> None:
        self.objects.update(objects)
        self._keys[:] = sorted(objects)

    def share(self, other: _Store) -> None:
        """Hold what another one holds, from now on."""
        self.objects = self._objects = other.objects
        self._keys = other._keys


def _bucket() -> BucketApi:
    return BucketApi("", lists_in_order=True, local=False, probe_first=False)


@cache
def _filled(shards: int, batches: int) -> tuple[dict[str, Object], float]:
    """A queue with a backlog, and when it was done."""
    world = World("fill")
    store = _Store(world, Latency((0.0, 0.0), (0.0, 0.0), (0.0, 0.0)))
    queue = _bucket().queue("jobs", shards=shards)

    def fill() -> Procedure[None]:
        yield from queue.open()
        for _ in range(batches):
            yield from queue.send_many(range(BATCH))

    run_alone(world, store, fill())
    return store.objects, world.now


def run(scene: Scene, tactics: Tactics, seed: int) -> Found:
    """One run, of which the first fifth is not counted."""
    world = World(f"{scene.name} {seed}")
    store = _Store(world, scene.latency)
    objects, world.now = _filled(
        scene.shards, 0 if scene.sent_every else int(scene.backlog * scene.seconds * scene.shards)
    )
    store.restore(objects)
    done = [0] * scene.workers
    for number in range(scene.workers):
        Process(world, store, f"worker {number}").start(_work(world, scene, tactics, done, number), "work")
    sender = _Store(world, scene.latency)  # its requests are not counted
    sender.share(store)
    if scene.sent_every:
        Process(world, sender, "sender").start(_send(scene), "send")
    began = world.now + scene.seconds / 5
    world.run(lambda: False, began)
    before, done_before = store.counts(), list(done)
    world.run(lambda: False, began + scene.seconds)
    requests, reads, writes, refused = (now - then for now, then in zip(store.counts(), before, strict=True))
    shares = [now - then for now, then in zip(done, done_before, strict=True)]
    messages = sum(shares)
    assert scene.sent_every or sum(done) < 0.95 * scene.backlog * scene.seconds * scene.shards * BATCH, (
        "not backlog enough"
    )
    hundreds = max(1, messages) / 100
    return Found(
        rate=messages / scene.seconds,
        requests=requests / hundreds,
        price=(reads / 12.5 + requests - reads) / hundreds,
        refused=refused / max(1, writes),
        least=min(shares) * scene.workers / max(1, messages),
    )


def _work(world: World, scene: Scene, tactics: Tactics, done: list[int], number: int) -> Procedure[None]:
    queue = _bucket().existing_queue("jobs")
    sub = yield from queue.subscribed()
    sub.contention = Contention(tactics)
    while True:
        found = yield from queue.claim(BATCH, scene.wait_seconds, None, fill=True)
        if found.lots and scene.work_seconds:
            yield from Pause(scene.work_seconds * world.between(0.5, 1.5))
        for lot in found.lots:
            for offset, _ in lot.places():
                lot.ack(offset)
            done[number] += lot.count


def _send(scene: Scene) -> Procedure[None]:
    queue = _bucket().existing_queue("jobs")
    while True:
        yield from queue.send_many(range(BATCH))
        yield from Pause(scene.sent_every)


def compare(scene: Scene, seeds: int, chosen: Sequence[str]) -> Iterator[str]:
    """A line for all tactics on, and one for each that is switched off."""
    base = [run(scene, TACTICS, seed) for seed in range(seeds)]
    middle = [statistics.median(getattr(each, name) for each in base) for name in Found.__struct_fields__]
    rate, requests, price, refused, least = middle
    yield f"| **{scene.name}** | {rate:.0f}/s | {requests:.1f} | {price:.1f} | {refused:.1%} | {least:.2f} |"
    for name in chosen:
        off = msgspec.structs.replace(TACTICS, **OFF[name])
        found = [run(scene, off, seed) for seed in range(seeds)]
        rate, requests, price = (_change(field, found, base) for field in ("rate", "requests", "price"))
        refused = statistics.median(each.refused for each in found)
        least = statistics.median(each.least for each in found)
        yield f"| {name} | {rate:+.0%} | {requests:+.0%} | {price:+.0%} | {refused:.1%} | {least:.2f} |"


def _change(field: str, found: list[Found], base: list[Found]) -> float:
    ratios: list[float] = [
        getattr(off, field) / max(1e-9, getattr(on, field)) for off, on in zip(found, base, strict=True)
    ]
    return statistics.median(ratios) - 1


def main(args: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.tactics", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument(
        "--scene", type=int, action="append", choices=range(len(SCENES)), help="this one; may be repeated"
    )
    parser.add_argument("--only", action="append", choices=list(OFF), help="this tactic; may be repeated")
    options = parser.parse_args(args)
    print("| off | messages | requests for 100 | price of 100 | refused | least share |\n|---|---|---|---|---|---|")
    with quiet():
        for scene in [SCENES[place] for place in options.scene] if options.scene else SCENES:
            for line in compare(scene, options.seeds, options.only or list(OFF)):
                print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
