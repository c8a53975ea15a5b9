"""A dashboard on a thread of its own, and somebody who is logged in, without the page."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, Self

import httpx2
from server.running import Served, aio_on, on_a_thread

from bucketmq import aio
from bucketmq.bucket.port import Store
from bucketmq.client import Bucket
from bucketmq.dashboard.app import Dashboard, make_app
from bucketmq.outcomes import Bury
from bucketmq.server import actions
from bucketmq.server.actions import Action
from bucketmq.server.gate import CSRF_HEADER, GateSettings
from bucketmq.server.people import read_people
from bucketmq.server.run import Listening, Server, server_of

ANN, OLA, VERA, SAM = "token-of-ann-0001", "token-of-ola-0001", "token-of-vera-0001", "token-of-sam-0001"
PEOPLE = read_people(
    [f"ann={ANN}:administer", f"ola={OLA}:operate", f"vera={VERA}:look", f"sam={SAM}:operate;queues=mail-*,jobs"],
    variable="TOKENS",
)


class Opened(Served):
    """What a test sees of a dashboard."""

    def __init__(self, url: str, server: Server) -> None:
        super().__init__(url, server)
        self.dashboard: Dashboard = server.config.app.state.dashboard  # type: ignore[union-attr]

    @property
    def requests(self) -> Any:
        """What it asked of the bucket so far."""
        return self.dashboard.site.bucket.requests


@contextlib.contextmanager
def opened_on(make_bucket: Callable[[], aio.Bucket], **options: Any) -> Iterator[Opened]:
    tabs, sessions, port = options.pop("tabs", ()), options.pop("sessions", None), options.pop("port", 0)
    samples = options.pop("samples", False)
    settings = GateSettings(**{"people": PEOPLE, **options})

    def make(bucket: aio.Bucket, listening: Listening) -> Server:
        return server_of(make_app(bucket, settings, tabs=tabs, sessions=sessions, samples=samples), 30.0, listening)

    with on_a_thread(make_bucket, make, port=port) as (url, server):
        made = Opened(url, server)
        with made.http:
            yield made


@contextlib.contextmanager
def opened(store: Store, **options: Any) -> Iterator[Opened]:
    with opened_on(lambda: aio_on(store), **options) as made:
        yield made


class Person:
    """Somebody's browser, without the page."""

    def __init__(self, url: str, token: str) -> None:
        self.http = httpx2.Client(base_url=url, timeout=30.0)
        answer = self.http.post("/api/login", json={"token": token}, headers={CSRF_HEADER: "login"})
        assert answer.status_code == 200, answer.text
        self.session = answer.json()
        self.http.headers[CSRF_HEADER] = self.session["csrf"]

    def get(self, path: str, **query: Any) -> Any:
        answer = self.http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, **body: Any) -> Any:
        answer = self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def status(self, path: str, **body: Any) -> int:
        return self.http.post(path, json=body).status_code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.http.close()


def bury(bucket: Bucket, count: int, queue: str = "jobs", why: str = "no such user") -> None:
    found = bucket.queue(queue)
    found.send_many([{"n": n} for n in range(count)])
    found.run(lambda delivery: Bury(why), stop_when_empty=True, signals=False)


def lines(bucket: Bucket) -> list[Action]:
    """The log of actions."""
    if "bucketmq-actions" not in bucket.queues():
        return []
    positions: dict[int, int] = {}
    found: list[Action] = []
    queue = bucket.existing_queue("bucketmq-actions")
    while more := queue.tail(positions):
        found += actions.read(each.body for each in more)
    return found
