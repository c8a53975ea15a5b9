"""A writer or a watcher as a process of its own, which stops at a chosen place and waits there to be killed.

    actor.py URL put KEY AT           write the object KEY, stop before the store request number AT
    actor.py URL move KEY TARGET AT   move it
    actor.py URL delete KEY AT
    actor.py URL watch AT             run the router; stop before the store request number AT that a handler makes
    actor.py URL handle               run the router; stop in the handler

It says `stopped` when it has come there, `done` when it got through without.
"""

from __future__ import annotations

import sys
import threading
from typing import Any

from bucketmq.bucket.port import Store
from bucketmq.bucket.urls import open_store
from bucketmq.client import Bucket
from bucketmq.engines.blocking import Blocking
from bucketmq.engines.perform import Hands, Reply
from bucketmq.procedures.requests import StoreRequest

ROUTE = 'WHERE key LIKE "in/%"'


def stop() -> None:
    """Until somebody kills us: the other end of this pipe is never written to."""
    print("stopped", flush=True)
    sys.stdin.read()


class StoppingHands(Hands):
    """Stop before the store request `number`, counted from when `armed` is set."""

    number: int | None = None

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.armed = threading.Event()
        self._counting = threading.Lock()

    def perform(self, request: StoreRequest) -> Reply:
        if self.number is not None and self.armed.is_set():
            with self._counting:
                self.number -= 1
            if self.number == -1:
                stop()
        return super().perform(request)


def main() -> None:
    url, what, *more = sys.argv[1:]
    store, prefix = open_store(url)
    hands = StoppingHands(store)
    bucket = Bucket(Blocking(hands), prefix, probe=False)
    match what, more:
        case ("put", [key, at]):
            hands.number = int(at)
            hands.armed.set()
            bucket.put(key, "body of " + key)
        case ("move", [key, target, at]):
            hands.number = int(at)
            hands.armed.set()
            bucket.move(key, target)
        case ("delete", [key, at]):
            hands.number = int(at)
            hands.armed.set()
            bucket.delete(key)
        case ("watch", [at]):
            hands.number = int(at)

            @bucket.watch(ROUTE, name="route", start="beginning", concurrency=1)
            def route(change: Any) -> None:
                hands.armed.set()
                change.move("out/" + change.name)

            bucket.run_watchers(stop_when_empty=True)
        case ("handle", []):

            @bucket.watch(ROUTE, name="route", start="beginning", concurrency=1)
            def stopping(_: Any) -> None:
                stop()

            bucket.run_watchers(stop_when_empty=True)
        case _:
            raise SystemExit(f"what is {what} {more}?")
    print("done", flush=True)


if __name__ == "__main__":
    main()
