"""What one process did, counted where it happens: every request to the store, and every message that was handled.

An observer (`procedures.observers`), which a bucket is given with `bucket.observe`. Counting needs no package and makes
no request. What is counted here is of this process alone; how queues stand is `standing`'s.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from bucketmq.bucket.port import Missing, Object, Refused, Unknown
from bucketmq.engines.meter import NAMES
from bucketmq.log.layout import place_of_head
from bucketmq.metrics.families import LABEL_SETS_MAX, OTHER, Labels, Spread, counter, histogram, subscription_label
from bucketmq.outcomes import Bury, Outcome, Release, Retry
from bucketmq.procedures.observers import Handed
from bucketmq.procedures.requests import Create, Replace, StoreRequest

if TYPE_CHECKING:
    from prometheus_client import Metric

REQUEST_SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
HANDLING_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
WAIT_SECONDS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3600.0, 14400.0)
"""Upper bounds of the histograms."""


class Counts:
    """Counts since it was made. Safe to use from many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: Counter[Labels] = Counter()
        self._bytes: Counter[str] = Counter()
        self._conflicts: Counter[Labels] = Counter()
        self._handled: Counter[Labels] = Counter()
        self._request_seconds = Spreads(REQUEST_SECONDS)
        self._handling_seconds = Spreads(HANDLING_SECONDS)
        self._wait_seconds = Spreads(WAIT_SECONDS)

    def on_request(self, request: StoreRequest, reply: object, seconds: float) -> None:
        verb, outcome = NAMES[type(request)], outcome_of(reply)
        with self._lock:
            self._requests[(("outcome", outcome), ("verb", verb))] += 1
            self._request_seconds.add((("verb", verb),), seconds)
            if isinstance(request, Create | Replace):
                self._bytes["out"] += len(request.body)
            if isinstance(reply, Object):
                self._bytes["in"] += len(reply.body)
            if isinstance(reply, Refused) and isinstance(request, Create | Replace):
                place = place_of_head(request.key)
                if place is not None:
                    self._conflicts[_fitting(self._conflicts, _labels(*place))] += 1

    def on_handled(
        self, queue: str, subscription: str, delivery: Handed, outcome: Outcome | BaseException, seconds: float
    ) -> None:
        labels = _labels(queue, subscription)
        with self._lock:
            self._handled[_fitting(self._handled, (("outcome", verdict(outcome)), *labels))] += 1
            self._handling_seconds.add(labels, seconds)
            if delivery.attempt == 1:  # a later one waited for its back-off
                self._wait_seconds.add(labels, delivery.waited_seconds)

    def families(self) -> Iterator[Metric]:
        """Everything that was counted; no request."""
        with self._lock:
            requests, conflicts, handled = dict(self._requests), dict(self._conflicts), dict(self._handled)
            ways: dict[Labels, int] = {(("way", each),): self._bytes[each] for each in ("in", "out")}
            took, worked, waited = (
                each.read() for each in (self._request_seconds, self._handling_seconds, self._wait_seconds)
            )
        yield counter("store_requests_total", "Requests of this process to the store, by verb and outcome.", requests)
        yield histogram("store_request_seconds", "How long a request to the store took.", REQUEST_SECONDS, took)
        yield counter("store_bytes_total", "Bytes read from and written to the store.", ways)
        yield counter("head_conflicts_total", "Head writes that were refused: another process was faster.", conflicts)
        yield counter("handled_total", "Messages that this process handled, by what became of them.", handled)
        yield histogram("wait_seconds", "From the send to the first handling.", WAIT_SECONDS, waited)
        yield histogram("handling_seconds", "How long a message was handled.", HANDLING_SECONDS, worked)


class Spreads:
    """Histograms of one kind, by labels. Not locked."""

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds
        self._counts: dict[Labels, list[int]] = {}
        self._seconds: dict[Labels, float] = {}

    def add(self, labels: Labels, seconds: float) -> None:
        labels = _fitting(self._counts, labels)
        counts = self._counts.setdefault(labels, [0] * (len(self._bounds) + 1))
        counts[bisect_left(self._bounds, seconds)] += 1
        self._seconds[labels] = self._seconds.get(labels, 0.0) + seconds

    def read(self) -> dict[Labels, Spread]:
        return {labels: Spread(tuple(counts), self._seconds[labels]) for labels, counts in self._counts.items()}


def outcome_of(reply: object) -> str:
    """What became of a request, in a word."""
    match reply:
        case Missing():
            return "missing"
        case Refused():
            return "refused"
        case Unknown():
            return "unknown"
        case BaseException():
            return "failed"
        case _:
            return "done"


def verdict(outcome: Outcome | BaseException) -> str:
    """What became of a message, in a word; `lost` if its lease was over before that could be said."""
    match outcome:
        case Retry():
            return "retry"
        case Bury():
            return "bury"
        case Release():
            return "release"
        case BaseException():
            return "lost"
        case _:
            return "ack"


def _labels(queue: str, subscription: str) -> Labels:
    return ("queue", queue), ("subscription", subscription_label(queue, subscription))


def _fitting(known: Mapping[Labels, object], labels: Labels) -> Labels:
    """These labels, or one set for all that came after the limit."""
    if labels in known or len(known) < LABEL_SETS_MAX:
        return labels
    return tuple((name, OTHER) for name, _ in labels)
