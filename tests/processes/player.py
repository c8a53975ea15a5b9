"""A producer or a worker as a process of its own, to be killed, frozen and cut off.

Everything it does is noted in a ledger before and after, one short line each: what was written survives SIGKILL.

    try ID once|plain    about to send            got ID ATTEMPT      received
    sent ID              the send returned        HOW ID              about to settle
    failed ID KIND       it raised                HOW-ok ID           the bucket said yes
                                                  lost ID             the bucket said that it is not ours any more
"""

from __future__ import annotations

import hashlib
import logging
import random
import signal
import sys
import threading
import time
from pathlib import Path
from typing import Any

import bucketmq
from bucketmq.testing.tormented import Ledger

LEASE_SECONDS = 2.0


def checked(id_: str) -> dict[str, str]:
    """A body that can be recognised as ours."""
    return {"id": id_, "sum": hashlib.sha256(id_.encode()).hexdigest()}


def produce(queue: Any, ledger: Ledger, name: str, count: int, resume: Path | None) -> None:
    """Send `count` messages in various ways; first again what a dead predecessor may or may not have sent."""
    rng = random.Random(name)
    for id_ in unfinished(resume):
        send_once(queue, ledger, id_)
    for n in range(count):
        id_ = f"{name}-{n}"
        match rng.randrange(4):
            case 0:
                send_once(queue, ledger, id_)
            case 1:
                send(queue, ledger, [id_], delay_seconds=rng.random())
            case 2:
                send(queue, ledger, [f"{id_}.{part}" for part in range(3)])
            case _:
                send(queue, ledger, [id_])


def unfinished(path: Path | None) -> list[str]:
    """The idempotent sends of a predecessor that it did not see return."""
    lines = [line.split() for line in path.read_text().splitlines()] if path is not None and path.exists() else []
    done = {line[1] for line in lines if line[0] == "sent"}
    return [line[1] for line in lines if line[0] == "try" and line[2] == "once" and line[1] not in done]


def send_once(queue: Any, ledger: Ledger, id_: str) -> None:
    ledger.note("try", id_, "once")
    while True:
        try:
            queue.send(checked(id_), dedup_key=id_)
        except (bucketmq.Unavailable, bucketmq.Contended) as error:
            ledger.note("failed", id_, error.kind)
        else:
            ledger.note("sent", id_)
            return


def send(queue: Any, ledger: Ledger, ids: list[str], **options: Any) -> None:
    for id_ in ids:
        ledger.note("try", id_, "plain")
    try:
        queue.send_many([checked(id_) for id_ in ids], **options)
    except (bucketmq.Unavailable, bucketmq.Contended) as error:
        ledger.note("failed", ids[0], error.kind)
    else:
        for id_ in ids:
            ledger.note("sent", id_)


def work(queue: Any, ledger: Ledger, name: str, stop: threading.Event) -> None:
    rng = random.Random(name)
    while not stop.is_set():
        try:
            batch = queue.receive(rng.randint(1, 20), wait_seconds=0.5, lease_seconds=LEASE_SECONDS)
        except (bucketmq.Unavailable, bucketmq.Contended):
            continue
        for delivery in batch:
            id_ = delivery.body["id"]
            assert delivery.body == checked(id_), "a body that nobody sent"
            ledger.note("got", id_, delivery.attempt)
            time.sleep(rng.random() * 0.02)  # the work
            if not settle(delivery, ledger, rng.random(), id_):
                break  # the whole lot is lost


def settle(delivery: Any, ledger: Ledger, chance: float, id_: str) -> bool:
    how = "ack" if chance < 0.85 else "retry" if chance < 0.93 else "release" if chance < 0.97 else "bury"
    options = {"delay_seconds": 0.1} if how == "retry" else {}
    ledger.note(how, id_)
    try:
        getattr(delivery, how)(wait=True, **options)
    except bucketmq.LeaseLost:
        ledger.note("lost", id_)
        return False
    except (bucketmq.Unavailable, bucketmq.Contended) as error:
        ledger.note("failed", id_, error.kind)
    else:
        ledger.note(f"{how}-ok", id_)
    return True


def main() -> None:
    role, url, name, folder, *more = sys.argv[1:]
    ledger = Ledger(Path(folder) / f"{name}.ledger")
    logging.getLogger("bucketmq").addHandler(logging.NullHandler())  # lost leases and cut connections are the point
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    with bucketmq.connect(url, probe=False) as bucket:
        queue = bucket.queue("jobs")
        if role == "producer":
            produce(queue, ledger, name, int(more[0]), Path(more[1]) if more[1:] else None)
        else:
            work(queue, ledger, name, stop)


if __name__ == "__main__":
    main()
