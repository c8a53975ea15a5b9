"""The whole pipeline in processes of its own, killed at random under load: every accepted post ends in one place."""

from __future__ import annotations

import os
import random
import signal
import socket
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import pytest
from processes.below import EXECUTOR, PYTHON_WORKER, below

import bucketmq
from bucketmq.apps.moderation.demo.account import add_up, all_settled, counts
from bucketmq.apps.moderation.demo.feed import Told
from bucketmq.apps.moderation.demo.mailbox import Mailbox
from bucketmq.apps.moderation.demo.posts import Sample, samples
from bucketmq.apps.moderation.demo.show import crew_of
from bucketmq.apps.moderation.record import FLAGGED, OUTCOMES
from bucketmq.crew import Crew, Member

pytest.importorskip("pyspark")

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

POSTS = 240
SETTLE_SECONDS = 240.0
CLIENTS = 4
SUBMIT_SECONDS = 45.0
ROUTER, INGEST, DRIVER, WORKER = "router", "ingest", "driver", "worker"


class Persistent:
    """Clients that submit each post until they are told 201, whatever happens to the agent meanwhile."""

    def __init__(self, port: int, posts: list[Sample]) -> None:
        self.told = Told()
        self.tries = 0
        self._url = f"http://127.0.0.1:{port}/submit"
        self._posts = posts
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def over(self) -> bool:
        return not self._thread.is_alive()

    def _run(self) -> None:
        with httpx2.Client(timeout=10.0) as client, ThreadPoolExecutor(CLIENTS) as pool:
            list(pool.map(lambda post: self._submit(client, post), self._posts))

    def _submit(self, client: httpx2.Client, post: Sample) -> None:
        by = time.monotonic() + SETTLE_SECONDS
        while time.monotonic() < by:
            self.tries += 1
            try:
                answer = client.post(self._url, json={"id": post.id, "text": post.text})
            except httpx2.TransportError:
                time.sleep(0.2)  # nobody listens: as a client waits
                continue
            if answer.status_code == 201:
                with self._lock:
                    self.told.accepted[post.id] = time.time()
                time.sleep(CLIENTS * SUBMIT_SECONDS / POSTS)  # the pace of the load
                return
            assert answer.status_code == 503, answer.text


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def _until(holds: Callable[[], bool], crew: Crew, seconds: float) -> None:
    by = time.monotonic() + seconds
    while not holds():
        fallen = crew.fallen()
        assert fallen is None, fallen and f"{fallen.name}:\n{fallen.last_words()}"
        logs = {each.name: each.last_words()[-600:] for each in crew.members.values()}
        assert time.monotonic() < by, f"not within {seconds} s: {logs}"
        time.sleep(0.3)


@pytest.mark.parametrize(
    ("master", "executor"),
    [
        pytest.param("local[2,4]", PYTHON_WORKER, id="local"),
        pytest.param("local-cluster[2,1,1024]", EXECUTOR, id="local-cluster"),
    ],
)
def test_every_accepted_post_ends_in_one_place_though_everything_is_killed(
    tmp_path: Path, master: str, executor: bytes
) -> None:
    chance = random.Random(7)
    url, port = f"file://{tmp_path}/bucket", _free_port()
    with Mailbox() as mailbox, bucketmq.connect(url) as bucket:
        environment = {
            "BUCKETMQ_URL": url,
            "REVIEW_WEBHOOK_URL": mailbox.url,
            "REVIEW_WEBHOOK_FORMAT": "json",
        }
        with crew_of(tmp_path, environment) as crew:
            crew.start(INGEST, "moderation", "ingest", "--port", str(port))
            crew.start(ROUTER, "moderation", "route")
            checkpoint = ("--checkpoint", str(tmp_path / "checkpoint"), "--master", master)
            driver = crew.start(DRIVER, "pipeline", "run", "moderation", "-o", "maxRowsPerTrigger=40", *checkpoint)
            clients = Persistent(port, list(samples(POSTS, seed=3)))

            def routed() -> int:
                found = counts(bucket)
                return sum(found[prefix] for prefix in OUTCOMES)

            _until(lambda: routed() > 10, crew, 120)
            for name in chance.sample([ROUTER, INGEST, WORKER, DRIVER, ROUTER, INGEST, WORKER], 7):
                if name == WORKER:
                    _until(lambda: bool(below(driver.process.pid, executor)), crew, 120)
                    for pid in below(driver.process.pid, executor):
                        _kill(pid)
                else:
                    _restart(crew.members[name], chance)
                before = routed()
                _until(lambda before=before: routed() > before or routed() == POSTS, crew, 120)
            _until(lambda: clients.over and all_settled(bucket, clients.told, mailbox), crew, SETTLE_SECONDS)
        account = add_up(bucket, clients.told, mailbox)
    assert len(clients.told.accepted) == POSTS
    assert clients.tries > POSTS, "no client ever had to try again: the kills came too late"
    assert (account.lost, account.twice) == (0, 0), account.examples
    assert sum(account.outcomes.values()) == POSTS
    assert account.outcomes[FLAGGED] and account.noticed == account.flagged


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _restart(member: Member, chance: random.Random) -> None:
    member.kill()
    time.sleep(chance.random())
    member.restart()
    member.state = "running again"
