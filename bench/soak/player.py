"""One process of the soak. It notes in its ledger what it is about to do, and what came of it.

try ID,...     about to send                    put EVENT       an object was written and its change reported
sent ID,...    the send returned                seen EVENT      a watcher's handler was called with it
got ID,...     received                         failed KIND     something raised; its outcome is unknown
ack ID,...     about to acknowledge             ok ID,...       the bucket said yes to all of these
bury ID        about to bury                    buried ID       the bucket said yes
"""

from __future__ import annotations

import logging
import os
import random
import signal
import threading
import time
from pathlib import Path
from typing import Any

import bucketmq
from bucketmq.testing.tormented import Ledger

QUEUE = "soak"
RULE = "soak"
LEASE_SECONDS = 5.0
SEND_BATCH = 50
RECEIVE_BATCH = 200
KEYS = 50
"""Each writer writes these many objects again and again."""

PASSING = bucketmq.Unavailable, bucketmq.Contended


def play(role: str, url: str, ledger_path: str, per_second: str, behind: str) -> None:
    """Do what the role does until SIGTERM, or until the director is gone. `behind` is how much the one that this one
    takes over from has left undone of its schedule."""
    name = Path(ledger_path).stem
    logging.getLogger("bucketmq").addHandler(logging.NullHandler())  # lost leases and cut connections are the point
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    threading.Thread(target=_leave_with, args=(os.getppid(),), daemon=True).start()
    ledger = Ledger(Path(ledger_path))
    with bucketmq.connect(url, probe=False) as bucket:
        if role == "producer":
            _produce(bucket, ledger, name, Pace(float(per_second), float(behind)), stop)
        elif role == "worker":
            _work(bucket, ledger, name, stop)
        elif role == "writer":
            _write(bucket, ledger, name, Pace(float(per_second), float(behind)), stop)
        else:
            _watch(bucket, ledger)


class Pace:
    """So many a second. What was missed is made up for, at no more than twice the rate."""

    def __init__(self, per_second: float, behind: float) -> None:
        self._each = 1 / per_second
        self._due_at = time.monotonic() - behind * self._each

    def pause_seconds(self, count: int) -> float:
        """After `count` more: how long to wait."""
        self._due_at += count * self._each
        return max(count * self._each / 2, self._due_at - time.monotonic())


def _leave_with(director: int) -> None:
    """Nobody else would end this process."""
    while os.getppid() == director:
        time.sleep(1.0)
    os._exit(1)


def _produce(bucket: Any, ledger: Ledger, name: str, pace: Pace, stop: threading.Event) -> None:
    queue, sent = bucket.queue(QUEUE), 0
    while not stop.is_set():
        ids = [f"{name}-{number}" for number in range(sent, sent + SEND_BATCH)]
        sent += SEND_BATCH
        ledger.note("try", ",".join(ids))
        try:
            queue.send_many(ids)
        except PASSING as error:
            ledger.note("failed", error.kind)
        else:
            ledger.note("sent", ",".join(ids))
        stop.wait(pace.pause_seconds(SEND_BATCH))


def _work(bucket: Any, ledger: Ledger, name: str, stop: threading.Event) -> None:
    queue, dice = bucket.queue(QUEUE), random.Random(name)
    while not stop.is_set():
        try:
            batch = queue.receive(RECEIVE_BATCH, wait_seconds=1, lease_seconds=LEASE_SECONDS)
            if batch:
                _settle(queue, batch, ledger, dice)
        except (*PASSING, bucketmq.LeaseLost) as error:
            ledger.note("failed", error.kind)


def _settle(queue: Any, batch: Any, ledger: Ledger, dice: random.Random) -> None:
    """One in a thousand is buried, the others are acknowledged together."""
    ledger.note("got", ",".join(delivery.body for delivery in batch))
    buried = [delivery for delivery in batch if dice.random() < 0.001]
    acked = [delivery for delivery in batch if delivery not in buried]
    for delivery in buried:
        ledger.note("bury", delivery.body)
        delivery.bury(wait=True)
        ledger.note("buried", delivery.body)
    ids = ",".join(delivery.body for delivery in acked)
    ledger.note("ack", ids)
    for delivery in acked:
        delivery.ack()
    queue.flush()
    ledger.note("ok", ids)


def _write(bucket: Any, ledger: Ledger, name: str, pace: Pace, stop: threading.Event) -> None:
    written = 0
    while not stop.is_set():
        try:
            stored = bucket.put(f"data/{name[-1]}/{written % KEYS}", {"writer": name, "number": written})
        except PASSING as error:
            ledger.note("failed", error.kind)
        else:
            if stored.reported:
                ledger.note("put", stored.event.id)
        written += 1
        stop.wait(pace.pause_seconds(1))


def _watch(bucket: Any, ledger: Ledger) -> None:
    # Every reported change is to be seen. A watcher passes over an object that was written again by its turn, unless
    # it is told not to, and writers write the same objects again and again.
    watch = bucket.watch("", name=RULE, start="beginning", lease_seconds=LEASE_SECONDS, gone="deliver")
    watch(lambda event: ledger.note("seen", event.id))
    bucket.run_watchers(RULE)
