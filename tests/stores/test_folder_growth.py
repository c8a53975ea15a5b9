"""Nothing in a folder grows with history: not its directories, not the work of a listing, not open descriptors."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bucketmq
from bucketmq.bucket import folder
from bucketmq.bucket.folder import FolderStore
from bucketmq.bucket.port import Missing, Refused, Removed, Written
from bucketmq.errors import Unavailable
from bucketmq.testing.contract import created, names, read

LATER = "queues/jobs/later/"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> FolderStore:
    return FolderStore(root)


def directories(root: Path) -> list[Path]:
    return [path for path in root.rglob("*") if path.is_dir()]


def descriptors() -> int:
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    return len(list(Path("/proc/self/fd").iterdir()))


@contextlib.contextmanager
def counted_scans(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """One element for each directory that is read."""
    scans: list[int] = []
    scandir = os.scandir

    def noted(fd: Any) -> Any:
        scans.append(fd)
        return scandir(fd)

    with monkeypatch.context() as patch:
        patch.setattr(os, "scandir", noted)
        yield scans


# directories


def test_delayed_messages_that_were_delivered_leave_no_directories(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ahead = [0.0]
    true_time, true_time_ns = time.time, time.time_ns
    monkeypatch.setattr(time, "time", lambda: true_time() + ahead[0])
    monkeypatch.setattr(time, "time_ns", lambda: true_time_ns() + int(ahead[0] * 1e9))
    sizes = []
    with bucketmq.connect(str(root), probe=False) as bucket:
        queue = bucket.queue("jobs")
        for _ in range(3):
            for n in range(1, 16):
                queue.send(n, delay_seconds=n)
            ahead[0] += 40
            got = []
            while len(got) < 15:
                batch = queue.receive(100)
                got += [delivery.body for delivery in batch]
                for delivery in batch:
                    delivery.ack()
                ahead[0] += 1
            queue.flush()
            assert sorted(got) == list(range(1, 16))
            ahead[0] += 1
            assert list(queue.receive(1)) == []
            sizes.append(len(directories(root)))
        assert len(set(sizes)) == 1
        assert not list((root / LATER).iterdir())
        with counted_scans(monkeypatch) as scans:
            ahead[0] += 1
            assert list(queue.receive(1)) == []
        assert len(scans) < 10


def test_a_listing_removes_the_empty_directories_that_it_meets(
    root: Path, store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of this project alone, and never the one that is listed: somebody waits there."""
    for n in range(200):
        (root / LATER / f"{n:012}").mkdir(parents=True)
    created(store, f"{LATER}000000000300/a", b"")
    (root / "inbox" / "for-other-programs").mkdir(parents=True)
    assert names(store, LATER) == [f"{LATER}000000000300/a"]
    assert [path.name for path in (root / LATER).iterdir()] == ["000000000300"]
    with counted_scans(monkeypatch) as scans:
        names(store, LATER)
    assert len(scans) == 2

    store.delete(f"{LATER}000000000300/a")
    assert names(store, "") == []
    assert names(store, LATER) == []
    assert (root / LATER).is_dir()
    assert (root / "inbox" / "for-other-programs").is_dir()


def test_a_listing_removes_so_many_at_most_so_that_it_is_not_slow(
    root: Path, store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An older version may have left a hundred thousand."""
    monkeypatch.setattr(folder, "TIDIED_MAX", 40)
    for n in range(100):
        (root / LATER / f"{n:012}").mkdir(parents=True)
    left = []
    for _ in range(4):
        names(store, LATER)
        left.append(len(list((root / LATER).iterdir())))
    assert left == [60, 20, 0, 0]


def test_a_directory_with_files_that_are_no_objects_stays(root: Path, store: FolderStore) -> None:
    (root / LATER / "000000000001").mkdir(parents=True)
    os.mkfifo(root / LATER / "000000000001" / "pipe")
    assert names(store, LATER) == []
    assert (root / LATER / "000000000001" / "pipe").exists()


@pytest.mark.parametrize("call", ["open", "link"])
def test_a_create_whose_directory_is_removed_at_any_step_makes_it_again(
    root: Path, store: FolderStore, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    created(store, f"{LATER}000000000001/a", b"")
    store.delete(f"{LATER}000000000001/a")
    other = FolderStore(root)
    key = f"{LATER}000000000002/a"
    removals = []
    listing = threading.local()

    def listed_first(name: str, function: Any) -> Any:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            if len(removals) < 5 and not getattr(listing, "on", False) and (root / LATER / "000000000002").exists():
                listing.on = True
                names(other, LATER)
                listing.on = False
                removals.append(name)
            return function(*args, **kwargs)

        return wrapped

    monkeypatch.setattr(os, call, listed_first(call, getattr(os, call)))
    assert isinstance(store.create(key, b"body"), Written)
    assert removals
    assert read(other, key).body == b"body"
    assert list((root / ".bucketmq" / "tmp").iterdir()) == []


def test_creates_deletes_and_listings_at_once_lose_nothing(root: Path) -> None:
    """One directory that is made, emptied and removed all the time by several stores."""
    failures: list[BaseException] = []
    done = threading.Event()

    def write(writer: int) -> None:
        store = FolderStore(root)
        try:
            for n in range(60):
                key = f"{LATER}{n % 3:012}/{writer}"
                written = store.create(key, b"%d" % n)
                assert isinstance(written, Written)
                assert store.create(key, b"again") == Refused()
                assert read(store, key).body == b"%d" % n
                replaced = store.replace(key, b"%d more" % n, written.version)
                assert isinstance(replaced, Written)
                assert store.remove(key, replaced.version) == Removed()
                assert store.get(key) == Missing()
        except BaseException as error:
            failures.append(error)

    def tidy() -> None:
        store = FolderStore(root)
        while not done.is_set():
            names(store, "queues/")

    writers = [threading.Thread(target=write, args=(n,)) for n in range(3)]
    tidying = threading.Thread(target=tidy)
    for thread in (*writers, tidying):
        thread.start()
    for thread in writers:
        thread.join()
    done.set()
    tidying.join()
    assert failures == []


# descriptors


def test_close_frees_every_descriptor_and_thread(root: Path) -> None:
    with bucketmq.connect(str(root)) as first:  # what is imported and opened once for all
        first.queue("jobs").send("one")
    before, threads = descriptors(), threading.active_count()
    for _ in range(3):
        bucket = bucketmq.connect(str(root))
        queue = bucket.queue("jobs")
        queue.send("two")
        for delivery in queue.receive(10):
            delivery.ack()
        assert descriptors() > before
        bucket.close()
        assert (descriptors(), threading.active_count()) == (before, threads)


def test_a_closed_store_opens_what_it_needs_again(store: FolderStore) -> None:
    created(store, "a/key", b"body")
    store.close()
    store.close()
    assert read(store, "a/key").body == b"body"


@pytest.fixture
def few_descriptors() -> Iterator[int]:
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = descriptors() + 60
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, limits[1]))
    yield most
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@contextlib.contextmanager
def all_but(free: int) -> Iterator[None]:
    """Every descriptor that this process may have is taken, but for so many."""
    taken = []
    try:
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.open("/dev/null", os.O_RDONLY))
        for _ in range(free):
            os.close(taken.pop())
        yield
    finally:
        for fd in taken:
            os.close(fd)


def test_without_free_descriptors_the_kept_ones_are_given_up_and_work_goes_on(
    store: FolderStore, few_descriptors: int
) -> None:
    version = created(store, "a/key", b"body")
    for n in range(30):
        created(store, f"{n}/key", b"")
    with all_but(0):
        assert read(store, "a/key").body == b"body"
        assert isinstance(store.replace("a/key", b"new", version), Written)
        created(store, "b/key", b"")
        assert len(names(store, "")) == 32
        store.delete("b/key")


def test_where_no_descriptors_are_left_at_all_the_cure_is_said_and_it_works_later(
    store: FolderStore, few_descriptors: int
) -> None:
    created(store, "a/key", b"body")
    store.close()
    with all_but(0), pytest.raises(Unavailable, match="ulimit -n"):
        store.get("a/key")
    assert read(store, "a/key").body == b"body"
    assert errno.EMFILE in folder._NO_DESCRIPTORS
