"""The sweep beside the bare listing: keys a second and the most memory it took, on a folder and on SeaweedFS.

The listing is what a sweep cannot do without: the same store asked for the same keys in pages of the same size, and
nothing done with them. It is measured right before and right after, with everything that the system caches cached.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import msgspec

import bucketmq
from bench.children import alone, together
from bench.machine import peak_bytes, resident_bytes
from bench.places import Place, asked, folder, seaweedfs_place, settle_disk
from bench.results import BARE, Measurement, measured
from bench.sizes import Sizes
from bucketmq.bucket.port import Refused, Written
from bucketmq.bucket.urls import open_store
from bucketmq.procedures.objects.listing import RANGE_KEYS, RANGE_KEYS_LOCAL

SCENARIO = "sweep"
PREFIX = "data/"
KEYS_PER_FOLDER = 1_000
FILLERS = 2
FILL_THREADS = 16
SECONDS_MAX = 7200.0
MEBI = 1 << 20

Go = Callable[[], object]


class Run(msgspec.Struct, frozen=True):
    """One pass over all keys in a process of its own."""

    seconds: float
    peak_bytes: int
    """The most memory it had."""
    before_bytes: int
    """What it had before it began."""
    requests: int = 0


def on_both(sizes: Sizes) -> Iterator[Measurement]:
    for keys in sizes.sweep_keys:
        with folder() as path:
            fill_folder(path, keys)
            settle_disk()
            yield from _sweeps("folder", path.as_uri(), keys)
    for keys in sizes.sweep_keys_remote:
        with seaweedfs_place() as place:
            _fill_remote(place, keys)
            yield from _sweeps(place.name, place.url(SCENARIO), keys)


def key_of(number: int) -> str:
    return f"{PREFIX}{number // KEYS_PER_FOLDER:05}/{number % KEYS_PER_FOLDER:03}.json"


def fill_folder(root: Path, keys: int) -> None:
    """Files as another program would have left them: not forced to disk, which would take an hour."""
    for start in range(0, keys, KEYS_PER_FOLDER):
        parent = (root / key_of(start)).parent
        parent.mkdir(parents=True)
        directory = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for number in range(start, min(keys, start + KEYS_PER_FOLDER)):
                fd = os.open(Path(key_of(number)).name, os.O_WRONLY | os.O_CREAT, dir_fd=directory)
                os.write(fd, _body(number))
                os.close(fd)
        finally:
            os.close(directory)


def _fill_remote(place: Place, keys: int) -> None:
    each = -(-keys // FILLERS)
    spans = [(start, min(keys, start + each)) for start in range(0, keys, each)]
    together([(_put_span, (place.url(SCENARIO), *span)) for span in spans], seconds_max=SECONDS_MAX)


def _put_span(go: Go, url: str, start: int, stop: int) -> None:
    store, prefix = open_store(url)

    def put(number: int) -> None:
        if not isinstance(store.create(f"{prefix}/{key_of(number)}", _body(number)), Written | Refused):
            raise AssertionError(f"{key_of(number)} could not be written")  # Refused: an earlier try was ours

    go()
    with ThreadPoolExecutor(FILL_THREADS) as pool:
        for _ in pool.map(put, range(start, stop)):
            pass


def _body(number: int) -> bytes:
    return b'{"n": %d, "kind": "order.created"}' % number


def _sweeps(store: str, url: str, keys: int) -> Iterator[Measurement]:
    found = partial(measured, SCENARIO, store=store, depth=keys)
    alone(_list, url, keys)  # what the system can cache is cached now, for everybody
    listed = alone(_list, url, keys)
    first = (
        ("first sweep, baseline", "baseline", {"noted": keys}),
        ("first sweep, all reported", "reported", {"created": keys}),
    )
    for what, name, expected in first:
        run = alone(_sweep, url, keys, name, expected)
        yield found(what, [keys / run.seconds], "keys/s", note=_note(run))
        yield found(what, [keys / listed.seconds], "keys/s", subject=BARE)
        yield found(what, [run.peak_bytes / MEBI], "MiB", note=_memory_note(run, listed))
    run = alone(_sweep, url, keys, "baseline", {})
    listed = alone(_list, url, keys)
    yield found("sweep, nothing changed", [keys / run.seconds], "keys/s", note=_note(run))
    yield found("sweep, nothing changed", [keys / listed.seconds], "keys/s", subject=BARE)
    yield found("sweep, nothing changed", [run.peak_bytes / MEBI], "MiB", note=_memory_note(run, listed))


def _note(run: Run) -> str:
    return f"{run.seconds:.2f} s, {run.requests} requests"


def _memory_note(run: Run, listed: Run) -> str:
    before, alone_ = run.before_bytes / MEBI, listed.peak_bytes / MEBI
    return f"at most; {before:.0f} MiB before it began; the listing alone {alone_:.0f} MiB"


def _list(go: Go, url: str, keys: int) -> Run:
    store, prefix = open_store(url)
    limit = RANGE_KEYS_LOCAL if store.local else RANGE_KEYS
    folder = f"{prefix}/{PREFIX}" if prefix else PREFIX
    go()
    before, began = resident_bytes(), time.perf_counter()
    seen, after = 0, ""
    while True:
        page = store.list(folder, after=after, limit=limit)
        seen += len(page.entries)
        if not page.more:
            break
        after = max(entry.key for entry in page.entries)
    seconds = time.perf_counter() - began
    if seen != keys:
        raise AssertionError(f"listed {seen} keys, there are {keys}")
    return Run(seconds, peak_bytes(), before)


def _sweep(go: Go, url: str, keys: int, name: str, expected: dict[str, int]) -> Run:
    """Sweep, and refuse to answer unless exactly what was expected was found, and as many events are in the log."""
    with bucketmq.connect(url, probe=False) as bucket:
        bucket.rules.list()
        go()
        before, began = resident_bytes(), time.perf_counter()
        swept = bucket.sweep(PREFIX, name=name, baseline=name == "baseline")
        seconds = time.perf_counter() - began
        counts = {each: getattr(swept, each) for each in ("noted", "created", "changed", "deleted")}
        if swept.keys != keys or {each: count for each, count in counts.items() if count} != expected:
            raise AssertionError(f"swept {swept.keys} of {keys} keys and found {counts}, not {expected}")
        run = Run(seconds, peak_bytes(), before, asked(bucket))
        if swept.created and bucket.existing_queue("events").stats().sent != swept.created:
            raise AssertionError("the log does not hold as many events as the sweep reported")
        return run
