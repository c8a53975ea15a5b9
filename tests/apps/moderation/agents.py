"""The agents on threads of their own, on real ports, over a store that tests look at from the side."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from fastapi import FastAPI
from server.running import WAIT_SECONDS, Served, aio_on, on_a_thread, sync_on

from bucketmq import aio
from bucketmq.apps.moderation import ingest, router
from bucketmq.apps.moderation.settings import ModerationSettings, settings_from
from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import PLAIN, Attributes, Object, Refused, Removed, Unknown, Version, Written
from bucketmq.errors import Unavailable
from bucketmq.server.run import Listening, Server, server_of

__all__ = ["Agent", "Gate", "aio_on", "ingesting", "routing", "running", "settings_with", "sync_on"]


def settings_with(**options: Any) -> ModerationSettings:
    return settings_from({}, url="memory://", port_ingest=0, port_router=0, **options)


class Gate(MemoryStore):
    """A store whose writes of some keys wait until the gate is open, or fail while it is broken."""

    def __init__(self, holds: str = "\0") -> None:
        super().__init__()
        self.holds = holds
        self.broken = False
        self.open = threading.Event()
        self.reached = threading.Event()

    def _pass(self, key: str) -> None:
        if self.holds in key:
            self.reached.set()
            if self.broken:
                raise Unavailable("503, try again")
            assert self.open.wait(WAIT_SECONDS)

    def create(self, key: str, body: bytes, attributes: Attributes = PLAIN) -> Written | Refused | Unknown:
        self._pass(key)
        return super().create(key, body, attributes)

    def replace(
        self, key: str, body: bytes, version: Version, attributes: Attributes = PLAIN
    ) -> Written | Refused | Unknown:
        self._pass(key)
        return super().replace(key, body, version, attributes)

    def rename(self, key: str, target: str, version: Version) -> Removed | Refused | Unknown:
        self._pass(target)
        return super().rename(key, target, version)

    def body(self, key: str) -> bytes | None:
        found = self.get(key)
        return found.body if isinstance(found, Object) else None

    def keys(self, prefix: str) -> list[str]:
        return [entry.key for entry in self.list(prefix, after="", limit=100_000).entries]


class Agent(Served):
    """What a test sees of an agent."""


@contextlib.contextmanager
def running(
    make_bucket: Callable[[], aio.Bucket], make_app: Callable[[aio.Bucket], FastAPI], *, port: int = 0
) -> Iterator[Agent]:
    def make(bucket: aio.Bucket, listening: Listening) -> Server:
        return server_of(make_app(bucket), 30.0, listening)

    with on_a_thread(make_bucket, make, port=port) as (url, server):
        agent = Agent(url, server)
        with agent.http:
            yield agent


@contextlib.contextmanager
def ingesting(store: MemoryStore, *, server: Any = None, **options: Any) -> Iterator[Agent]:
    settings = settings_with(**options)
    with running(lambda: aio_on(store), lambda bucket: ingest.make_app(bucket, settings, server=server)) as agent:
        yield agent


@contextlib.contextmanager
def routing(store: MemoryStore, **options: Any) -> Iterator[Agent]:
    settings = settings_with(**{"webhook_secrets": ("a-secret-of-tigris",), **options})
    with running(lambda: aio_on(store), lambda bucket: router.make_app(bucket, settings)) as agent:
        agent.http.headers["authorization"] = "Bearer a-secret-of-tigris"
        yield agent
