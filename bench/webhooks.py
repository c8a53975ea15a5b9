"""Delivering to a webhook: events a second from the log to an endpoint in another process, beside the client alone.

The client alone is the same client on as many threads posting the very bodies that the rule posts, with the same
headers, and keeping no books: no claim, no lease, no journal.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import bucketmq
from bench.children import alone
from bench.happenings import event, events
from bench.places import asked, folder, settle_disk
from bench.results import BARE, Measurement, measured
from bench.sink import Sink, Taken, sink
from bench.sizes import Sizes
from bucketmq.events import formats
from bucketmq.notify.http import Poster
from bucketmq.procedures.requests import Answer, Post

SCENARIO = "webhooks"
CONCURRENCY = 16
BATCH = 100
BATCHED_SHARE = 20
"""So many times as many events where they travel in batches."""
PER_SEND = 1_000
WARM_EVENTS = 20
"""Delivered before anything is timed, so that what is made at first use is there: the client, the queue of attempts."""
TIMEOUT_SECONDS = 30.0

Go = Callable[[], object]


def to_an_endpoint(sizes: Sizes) -> Iterator[Measurement]:
    for batch, count in ((1, sizes.webhooks), (BATCH, sizes.webhooks * BATCHED_SHARE)):
        ours, bare, requests = [], [], []
        for _ in range(sizes.repeats):
            with sink() as there:
                posted = alone(_post, there.url, count, batch)
                _check(there, count + min(batch, count))  # the first request is posted twice
                bare.append(count / posted)
                with folder() as path:
                    seconds, stored = alone(_deliver, path.as_uri(), there.url, count, batch)
                    came = _check(there, count + WARM_EVENTS)
                ours.append(count / seconds)
                requests.append((came.requests, stored))
        found = partial(measured, SCENARIO, f"{batch} in a request, {CONCURRENCY} at a time", unit="events/s")
        sent, stored = requests[-1]
        yield found(
            ours, store="folder", depth=count, note=f"{sent} posts, {stored} requests to the store for {count} events"
        )
        yield found(bare, store="folder", depth=count, subject=BARE)


def _check(there: Sink, events: int) -> Taken:
    came = there.taken()
    if came.events != events:
        raise AssertionError(f"the endpoint took {came}, not {events} events")
    return came


def _post(go: Go, url: str, count: int, batch: int) -> float:
    """Seconds of the client alone."""
    posts = []
    for start in range(0, count, batch):
        some = [event(number) for number in range(start, min(count, start + batch))]
        body, content_type = formats.encode("tigris", some)
        headers = {
            "content-type": content_type,
            "user-agent": "bucketmq",
            "bucketmq-rule": "bench",
            "bucketmq-attempt": "1",
            "webhook-id": some[0].id,
            "webhook-timestamp": "1790000000",
        }
        posts.append(Post(url, headers, body, TIMEOUT_SECONDS, True))
    with Poster() as poster, ThreadPoolExecutor(CONCURRENCY) as pool:
        poster.post(posts[0])
        go()
        began = time.perf_counter()
        answers = list(pool.map(poster.post, posts))
        seconds = time.perf_counter() - began
    if not all(isinstance(each, Answer) and each.status == 200 for each in answers):
        raise AssertionError("a request of the bare client failed")
    return seconds


def _deliver(go: Go, url: str, to: str, count: int, batch: int) -> tuple[float, int]:
    """Seconds from the start of the notifier to its end, everything settled, and requests to the store."""
    with bucketmq.connect(url, probe=False) as bucket:
        bucket.rules.add(
            "bench",
            to=to,
            start="beginning",
            private=True,
            batch=batch,
            concurrency=CONCURRENCY,
            timeout_seconds=TIMEOUT_SECONDS,
        )
        bucket.report(events(count, WARM_EVENTS))
        bucket.notify(stop_when_empty=True, signals=False)
        for start in range(0, count, PER_SEND):
            bucket.report(events(start, min(PER_SEND, count - start)))
        settle_disk()
        before = asked(bucket)
        go()
        began = time.perf_counter()
        bucket.notify(stop_when_empty=True, signals=False)
        seconds = time.perf_counter() - began
        return seconds, asked(bucket) - before
