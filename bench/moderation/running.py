"""One case: the agents and Spark as processes on so many cores, posts through all of them, and what it took."""

from __future__ import annotations

import contextlib
import os
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx2
import msgspec

import bucketmq
from bench.machine import load_now
from bench.moderation import cpu
from bench.moderation.clients import named, submit
from bench.moderation.sizes import Sizes
from bench.places import folder
from bucketmq.apps.moderation.demo.account import counts, decided_at, judged_at
from bucketmq.apps.moderation.demo.mailbox import Mailbox
from bucketmq.apps.moderation.demo.show import crew_of
from bucketmq.apps.moderation.record import FLAGGED, OUTCOMES, PENDING
from bucketmq.client import Bucket
from bucketmq.crew import Crew
from bucketmq.errors import Unavailable

POLL_SECONDS = 0.5
SETTLE_SECONDS_MAX = 300.0
INGEST, DRIVER, ROUTER = "ingest", "driver", "router"


class Case(msgspec.Struct, frozen=True, order=True):
    """Which classifier, on how many cores."""

    classifier: str
    cores: int

    @property
    def text(self) -> str:
        return f"{self.classifier}, {self.cores} core{'s' if self.cores > 1 else ''}"


class Took(msgspec.Struct, frozen=True):
    """What a case took."""

    posts_per_second: float
    """From the first submission of the flood until its last post had its outcome, and its notice if it was flagged."""
    cpu: dict[str, float]
    """CPU seconds by part, for each post of the flood."""
    latencies: dict[str, tuple[float, ...]]
    """Seconds of each post of the steady part, sorted, by step."""
    load: float = 0.0
    """The machine's load average when the flood was over."""

    @property
    def cores_used(self) -> float:
        """How many cores were busy with the flood on average. Fewer than there are: it waited, or others had them."""
        return self.posts_per_second * sum(self.cpu.values())


def run(case: Case, sizes: Sizes) -> Took:
    """Everything from the beginning, in a folder of its own."""
    with (
        folder() as path,
        _on_cores(case.cores),
        Mailbox() as mailbox,
        bucketmq.connect((path / "bucket").as_uri(), probe=False) as bucket,
    ):
        environment = {
            "BUCKETMQ_URL": (path / "bucket").as_uri(),
            "BUCKETMQ_PROBE": "off",
            "REVIEW_WEBHOOK_URL": mailbox.url,
            "REVIEW_WEBHOOK_FORMAT": "json",
        }
        with crew_of(path, environment) as crew:
            return _measure(case, sizes, _World(path, crew, bucket, mailbox))


class _World(msgspec.Struct, frozen=True):
    """What one case has for itself."""

    path: Path
    crew: Crew
    bucket: Bucket
    mailbox: Mailbox

    def start(self, case: Case, partitions: int | None) -> str:
        """Start everything; the URL to submit to, when the agent answers there."""
        port = _free_port()
        judging = ("--classifier", case.classifier, "--checkpoint", str(self.path / "checkpoint"), "--json")
        cut = ("-o", f"minPartitions={partitions}") if partitions is not None else ()
        self.crew.start(DRIVER, "pipeline", "run", "moderation", *judging, "--master", f"local[{case.cores},4]", *cut)
        self.crew.start(INGEST, "moderation", "ingest", "--port", str(port))
        self.crew.start(ROUTER, "moderation", "route")
        self.wait_until(lambda: _answers(f"http://127.0.0.1:{port}/healthz"))
        return f"http://127.0.0.1:{port}/submit"

    def settle(self, posts: int) -> None:
        """Wait until so many posts have an outcome, and the flagged ones their notices."""

        def settled() -> bool:
            found = counts(self.bucket)
            routed = sum(found[prefix] for prefix in OUTCOMES)
            return routed >= posts and not found[PENDING] and len(self.mailbox.arrived) >= found[FLAGGED]

        self.wait_until(settled)

    def wait_until(self, holds: Callable[[], bool]) -> None:
        by = time.monotonic() + SETTLE_SECONDS_MAX
        while not holds():
            fallen = self.crew.fallen()
            if fallen is not None:
                raise Unavailable(f"{fallen.name} ended by itself:\n{fallen.last_words()}")
            if time.monotonic() > by:
                raise Unavailable(f"not everything had an outcome after {SETTLE_SECONDS_MAX:.0f} s")
            time.sleep(POLL_SECONDS)

    def cpu(self) -> dict[str, float]:
        return cpu.spent({name: member.process.pid for name, member in self.crew.members.items()})


def _measure(case: Case, sizes: Sizes, world: _World) -> Took:
    url = world.start(case, sizes.partitions)
    submit(url, named("warm", sizes.warm_up))
    world.settle(sizes.warm_up)

    before = world.cpu()
    flood = submit(url, named("flood", sizes.flood))
    world.settle(sizes.warm_up + sizes.flood)
    used, load = cpu.between(before, world.cpu()), load_now()
    noticed = [at for id_, at in world.mailbox.arrived.items() if id_ in flood]
    seconds = max(*decided_at(world.bucket, flood).values(), *noticed) - min(flood.values())

    steady = submit(url, named("steady", sizes.steady), per_second=sizes.per_second)
    world.settle(sizes.warm_up + sizes.flood + sizes.steady)
    return Took(
        posts_per_second=sizes.flood / seconds,
        cpu={name: spent / sizes.flood for name, spent in used.items()},
        latencies=_latencies(steady, world),
        load=load,
    )


def _latencies(began: dict[str, float], world: _World) -> dict[str, tuple[float, ...]]:
    decided, judged = decided_at(world.bucket, began), judged_at(world.bucket)
    steps = {
        "submit until outcome": (began, decided),
        "submit until judged": (began, judged),
        "judged until outcome": (judged, decided),
        "outcome until notice": (decided, world.mailbox.arrived),
    }
    return {
        step: tuple(sorted(end[id_] - start[id_] for id_ in began if id_ in start and id_ in end))
        for step, (start, end) in steps.items()
    }


def _answers(url: str) -> bool:
    try:
        return httpx2.get(url, timeout=5.0).status_code == 200
    except httpx2.TransportError:
        return False


@contextlib.contextmanager
def _on_cores(count: int) -> Iterator[None]:
    """This thread and whatever it starts, on so many cores."""
    if not hasattr(os, "sched_setaffinity"):
        raise bucketmq.Unsupported("cores can be chosen on Linux alone; measure there")
    all_of_them = os.sched_getaffinity(0)
    if len(all_of_them) < count:
        raise bucketmq.Unsupported(f"this machine has {len(all_of_them)} cores, and {count} are wanted; use --cores")
    os.sched_setaffinity(0, sorted(all_of_them)[:count])
    try:
        yield
    finally:
        os.sched_setaffinity(0, all_of_them)


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
