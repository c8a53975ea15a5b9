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

import bucketmq

ROUTE = 'WHERE key LIKE "in/%"'


def stop() -> None:
    """Until somebody kills us: the other end of this pipe is never written to."""
    print("stopped", flush=True)
    sys.stdin.read()


def stop_at(bucket: Any, number: int, *, armed: threading.Event) -> None:
    """Stop before the store request `number`, counted from when `armed` is set."""
    hands = bucket._engine.hands
    perform, count, lock = hands.perform, [0], threading.Lock()

    def counted(request: Any) -> Any:
        if armed.is_set():
            with lock:
                here, count[0] = count[0], count[0] + 1
            if here == number:
                stop()
        return perform(request)

    hands.perform = counted


def main() -> None:
    url, what, *more = sys.argv[1:]
    armed = threading.Event()
    bucket = bucketmq.connect(url, probe=False)
    match what, more:
        case ("put", [key, at]):
            stop_at(bucket, int(at), armed=armed)
            armed.set()
            bucket.put(key, "body of " + key)
        case ("move", [key, target, at]):
            stop_at(bucket, int(at), armed=armed)
            armed.set()
            bucket.move(key, target)
        case ("delete", [key, at]):
            stop_at(bucket, int(at), armed=armed)
            armed.set()
            bucket.delete(key)
        case ("watch", [at]):
            stop_at(bucket, int(at), armed=armed)

            @bucket.watch(ROUTE, name="route", start="beginning", concurrency=1)
            def route(change: Any) -> None:
                armed.set()
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
