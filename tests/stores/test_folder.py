"""What only the folder store promises: survival of `kill -9`, no way out of its root, versions that never come back."""

from __future__ import annotations

import errno
import fcntl
import itertools
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from bucketmq.bucket import folder
from bucketmq.bucket.folder import LOCKS, FolderStore
from bucketmq.bucket.port import Missing, Object, Refused, Unknown, Version, Written
from bucketmq.errors import Denied, Invalid, Unavailable, Unsupported
from bucketmq.testing.contract import count_up, created, names, read
from stores import folder_worker


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def store(root: Path) -> FolderStore:
    return FolderStore(root, lock_wait_seconds=5)


# kill -9


@pytest.mark.slow
def test_killed_writers_lose_nothing_they_promised(root: Path, store: FolderStore) -> None:
    created(store, "heads/shared", folder_worker.sealed(0, 10))
    chance = random.Random(20261115)
    promised: dict[str, int] = {}
    for kill in range(15):
        for key, sequence in _run_and_kill(root, f"life-{kill}", acknowledgements=chance.randrange(2, 40)):
            promised[key] = max(sequence, promised.get(key, 0))

    assert len(promised) > 100
    reopened = FolderStore(root, lock_wait_seconds=1)
    present = {entry.key for entry in reopened.list("", after="", limit=100_000).entries}
    assert promised.keys() <= present
    for key in present:
        sequence = folder_worker.opened(read(reopened, key).body)
        assert sequence >= promised.get(key, 0)
    folder_worker.advance(reopened, "heads/shared", 10)  # no dead process holds a lock


def _run_and_kill(root: Path, name: str, acknowledgements: int) -> Iterator[tuple[str, int]]:
    """Two writers, killed in the middle of whatever they do; yields what they had acknowledged by then."""
    writers = [
        subprocess.Popen(
            [sys.executable, folder_worker.__file__, str(root), f"{name}-{n}"],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        for n in range(2)
    ]
    try:
        assert writers[0].stdout is not None
        first = [writers[0].stdout.readline() for _ in range(acknowledgements)]
    finally:
        for writer in writers:
            writer.send_signal(signal.SIGKILL)
    rest = [line for writer in writers for line in writer.communicate()[0].splitlines()]
    for line in first + rest:
        key, sequence = line.split()
        yield key.decode(), int(sequence)


def test_a_writer_killed_before_any_system_call_leaves_whole_objects(root: Path) -> None:
    for step in itertools.count(1):
        shutil.rmtree(root, ignore_errors=True)
        store = FolderStore(root)
        old = created(store, "a/head", b"old head")
        created(store, "a/gone", b"gone soon")
        acknowledged, killed = _killed_at(step, root, old)

        survivor = FolderStore(root, lock_wait_seconds=1)
        new = survivor.get("a/b/new")
        assert new == Missing() or read(survivor, "a/b/new").body == b"new object"
        assert isinstance(new, Object) or b"created" not in acknowledged
        head = read(survivor, "a/head")
        assert head.body == b"new head" if b"replaced" in acknowledged else head.body in (b"old head", b"new head")
        gone = survivor.get("a/gone")
        assert gone == Missing() or (b"deleted" not in acknowledged and read(survivor, "a/gone").body == b"gone soon")
        assert set(names(survivor, "")) <= {"a/b/new", "a/head", "a/gone"}
        assert isinstance(survivor.replace("a/head", b"next head", head.version), Written)
        if not killed:
            assert acknowledged == [b"created", b"replaced", b"deleted"]
            break
    assert step > 40


_SYSTEM_CALLS = (
    "open",
    "close",
    "write",
    "read",
    "stat",
    "fstat",
    "utime",
    "fsync",
    "link",
    "rename",
    "unlink",
    "mkdir",
)


def _killed_at(step: int, root: Path, version: Version) -> tuple[list[bytes], bool]:
    """Create, replace and delete in a child that is killed before its system call number `step`."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        say, calls = os.write, itertools.count(1)

        def deadly(call: Callable[..., object]) -> Callable[..., object]:
            def wrapped(*args: object, **kwargs: object) -> object:
                if next(calls) == step:
                    os.kill(os.getpid(), signal.SIGKILL)
                return call(*args, **kwargs)

            return wrapped

        for name in _SYSTEM_CALLS:
            setattr(os, name, deadly(getattr(os, name)))
        folder._FDATASYNC = deadly(folder._FDATASYNC or os.fsync)  # type: ignore[assignment]
        fcntl.flock = deadly(fcntl.flock)  # type: ignore[assignment]
        store = FolderStore(root)
        store.create("a/b/new", b"new object")
        say(writer, b"created ")
        store.replace("a/head", b"new head", version)
        say(writer, b"replaced ")
        store.delete("a/gone")
        say(writer, b"deleted ")
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        acknowledged = pipe.read().split()
    return acknowledged, os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def test_leftovers_of_dead_writers_go_after_an_hour(root: Path, store: FolderStore) -> None:
    created(store, "key", b"body")
    tmp = root / ".bucketmq" / "tmp"
    (tmp / "old").write_bytes(b"half a bo")
    (tmp / "young").write_bytes(b"half a bo")
    os.utime(tmp / "old", (time.time() - 2 * 3600,) * 2)

    FolderStore(root)

    assert [path.name for path in tmp.iterdir()] == ["young"]
    assert names(store, "") == ["key"]


def test_nothing_is_left_in_tmp_after_writes_and_refusals(root: Path, store: FolderStore) -> None:
    version = created(store, "a/key", b"1")
    assert store.create("a/key", b"2") == Refused()
    assert isinstance(store.replace("a/key", b"3", version), Written)
    assert store.replace("a/key", b"4", version) == Refused()

    assert list((root / ".bucketmq" / "tmp").iterdir()) == []


# order on disk


def _replaced_once(store: FolderStore, key: str) -> Version:
    """So that every directory a write needs is there."""
    written = store.replace(key, b"1", created(store, key, b"0"))
    assert isinstance(written, Written)
    return written.version


def test_data_is_on_disk_before_it_has_a_name_and_the_name_before_it_is_promised(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = _replaced_once(store, "a/key")
    steps: list[str] = []

    def noted(name: str, call: Callable[..., object]) -> Callable[..., object]:
        def wrapped(*args: object, **kwargs: object) -> object:
            steps.append(name)
            return call(*args, **kwargs)

        return wrapped

    monkeypatch.setattr(folder, "_flush_data", noted("data", folder._flush_data))
    monkeypatch.setattr(folder, "_flush", noted("directory", folder._flush))
    monkeypatch.setattr(os, "link", noted("link", os.link))
    monkeypatch.setattr(os, "rename", noted("rename", os.rename))
    monkeypatch.setattr(os, "unlink", noted("unlink", os.unlink))

    store.create("a/other", b"2")
    assert [step for step in steps if step != "unlink"] == ["data", "link", "directory"]
    steps.clear()
    store.replace("a/key", b"2", version)
    assert [step for step in steps if step != "unlink"] == ["data", "rename", "directory"]
    steps.clear()
    store.delete("a/key")
    assert steps == ["unlink", "directory"]


def test_new_directories_are_on_disk_too(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    created(store, "a/key", b"1")
    flushed: list[str] = []
    flush = folder._flush

    def noted(fd: int) -> None:
        flushed.append(_path_of(fd))
        flush(fd)

    monkeypatch.setattr(folder, "_flush", noted)

    store.create("a/b/c/key", b"2")
    assert [path.rpartition("/store")[2] for path in flushed] == ["/a", "/a/b", "/a/b/c"]
    flushed.clear()
    store.create("a/b/c/other", b"2")
    assert [path.rpartition("/store")[2] for path in flushed] == ["/a/b/c"]


def test_directories_are_forced_to_disk_once_for_what_is_done_together(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = created(store, "a/key", b"1")
    created(store, "b/key", b"1")
    flushed: list[str] = []
    flush = folder._flush

    def noted(fd: int) -> None:
        flushed.append(_path_of(fd).rpartition("/store")[2])
        flush(fd)

    monkeypatch.setattr(folder, "_flush", noted)

    with store.together():
        assert isinstance(store.replace("a/key", b"2", version), Written)
        assert isinstance(store.create("a/other", b"2"), Written)
        assert isinstance(store.create("b/other", b"2"), Written)
        store.delete("b/key")
        assert flushed == []
    assert flushed == ["/a", "/b"]
    store.delete("b/other")
    assert flushed == ["/a", "/b", "/b"]


def test_what_another_thread_does_at_the_same_time_is_forced_to_disk_at_once(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    created(store, "a/key", b"1")
    flushed: list[int] = []
    monkeypatch.setattr(folder, "_flush", flushed.append)
    with store.together():
        other = threading.Thread(target=store.create, args=("a/other", b"2"))
        other.start()
        other.join()
        assert len(flushed) == 1


def _path_of(fd: int) -> str:
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    return str(Path(f"/proc/self/fd/{fd}").readlink())


@pytest.mark.parametrize("verb", ["create", "replace"])
def test_a_write_that_may_not_last_is_unknown(store: FolderStore, monkeypatch: pytest.MonkeyPatch, verb: str) -> None:
    version = _replaced_once(store, "a/key")

    def broken(fd: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(folder, "_flush", broken)
    answer = store.create("a/other", b"2") if verb == "create" else store.replace("a/key", b"2", version)
    assert answer == Unknown("the directory could not be forced to disk: Input/output error")


# versions


@pytest.mark.parametrize("step_ns", [0, -1_000_000_000], ids=["a clock that stands", "a clock that runs back"])
def test_a_version_never_comes_back(store: FolderStore, monkeypatch: pytest.MonkeyPatch, step_ns: int) -> None:
    now = [time.time_ns()]

    def clock() -> int:
        now[0] += step_ns
        return now[0]

    monkeypatch.setattr(time, "time_ns", clock)
    version = created(store, "key", b"0000")
    seen = {version}
    for n in range(1, 200):
        written = store.replace("key", b"%04d" % n, version)
        assert isinstance(written, Written)
        version = written.version
        assert read(store, "key").version == version
        seen.add(version)
    assert len(seen) == 200


def test_the_time_of_a_write_is_kept_to_the_microsecond(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_700_000_000_123_456_789)
    assert store.create("key", b"") == Written(read(store, "key").version, 1_700_000_000.123456)


def test_a_version_does_not_come_back_after_a_delete(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    # Without waiting for the disk, many files are made within one tick of the kernel's clock, often in the same inode.
    monkeypatch.setattr(folder, "_flush", lambda fd: None)
    monkeypatch.setattr(folder, "_flush_data", lambda fd: None)
    seen = set()
    for n in range(500):
        seen.add(created(store, "key", b"%04d" % n))
        store.delete("key")
    assert len(seen) == 500


def test_a_version_is_that_of_the_bytes_that_were_read(store: FolderStore) -> None:
    version = created(store, "key", b"%06d" % 0)
    versions = {version: b"%06d" % 0}
    done = threading.Event()

    def watch() -> list[Object]:
        seen = []
        while not done.is_set():
            seen.append(read(store, "key"))
        return seen

    with ThreadPoolExecutor(1) as pool:
        watching = pool.submit(watch)
        for n in range(1, 200):
            written = store.replace("key", b"%06d" % n, version)
            assert isinstance(written, Written)
            version = written.version
            versions[version] = b"%06d" % n
        done.set()
        assert all(versions[found.version] == found.body for found in watching.result())


# locks and processes


def test_forked_children_share_the_store_they_inherited(store: FolderStore) -> None:
    created(store, "counter", b"0 nobody")
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=count_up, args=(store, "counter", f"child-{n}", 50)) for n in range(4)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
    assert [child.exitcode for child in children] == [0] * 4
    assert read(store, "counter").body.split()[0] == b"200"


def test_a_child_forked_under_a_lock_does_not_keep_it(store: FolderStore) -> None:
    version = created(store, "key", b"1")
    impatient = FolderStore(store._root, lock_wait_seconds=0.2)
    release, released = os.pipe()
    with store._locked("key"):
        child = os.fork()
        if child == 0:
            os.close(released)
            os.read(release, 1)  # lives, with a copy of the lock's descriptor, until the parent lets go
            os._exit(0)
    try:
        assert isinstance(impatient.replace("key", b"2", version), Written)
    finally:
        os.close(released)
        os.waitpid(child, 0)
        os.close(release)


def test_a_lock_that_somebody_keeps_is_not_waited_for_for_ever(root: Path) -> None:
    store = FolderStore(root, lock_wait_seconds=0.1)
    version = created(store, "key", b"1")
    store.replace("key", b"2", version)  # makes the directory for locks
    version = read(store, "key").version
    with ExitStack() as locks:
        for number in range(LOCKS):
            lock = locks.enter_context((root / ".bucketmq" / "locks" / str(number)).open("w"))
            fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(Unavailable, match=r"waited 0.1 s for the lock .*fuser"):
            store.replace("key", b"3", version)
        with pytest.raises(Unavailable):
            store.delete("key")
        created(store, "other", b"creates need no lock")
        assert read(store, "key").body == b"2"
    assert isinstance(store.replace("key", b"3", version), Written)


def test_a_lock_file_that_was_removed_and_made_anew_excludes_again(root: Path, store: FolderStore) -> None:
    version = created(store, "key", b"1")
    with store._locked("key"):
        shutil.rmtree(root / ".bucketmq" / "locks")
    assert isinstance(store.replace("key", b"2", version), Written)


# nothing leaves the root


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    place = tmp_path / "outside"
    place.mkdir()
    (place / "secret").write_text("secret")
    return place


def _tries(store: FolderStore, key: str) -> list[Callable[[], object]]:
    return [
        lambda: store.get(key),
        lambda: store.create(key, b"broken in"),
        lambda: store.replace(key, b"broken in", Version("1-2-3")),
        lambda: store.delete(key),
    ]


@pytest.mark.parametrize("key", ["way/secret", "way/new", "way/new/deeper"])
@pytest.mark.parametrize("known", [False, True], ids=["planted first", "swapped in later"])
def test_a_symlinked_directory_is_not_followed(
    root: Path, store: FolderStore, outside: Path, key: str, known: bool
) -> None:
    created(store, "other", b"")
    if known:
        created(store, "way/key", b"")
        created(store, "way/new/key", b"")
        shutil.rmtree(root / "way")
    (root / "way").symlink_to(outside)

    for verb in _tries(store, key):
        with pytest.raises(Invalid, match="symbolic link"):
            verb()
    with pytest.raises(Invalid, match="symbolic link"):
        store.list("way/", after="", limit=10)
    assert names(store, "") == ["other"]
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("secret", "secret")]


def test_a_symlinked_file_is_not_followed(root: Path, store: FolderStore, outside: Path) -> None:
    created(store, "a/key", b"")
    (root / "a" / "link").symlink_to(outside / "secret")
    (root / "a" / "dangling").symlink_to(outside / "nowhere")

    for key in ("a/link", "a/dangling"):
        for verb in _tries(store, key):
            with pytest.raises(Invalid):
                verb()
    assert names(store, "") == ["a/key"]
    assert [(path.name, path.read_text()) for path in outside.iterdir()] == [("secret", "secret")]


@pytest.mark.parametrize("key", [".bucketmq", ".bucketmq/tmp/x", ".bucketmq/locks/1", ".BucketMQ/tmp/x"])
def test_what_is_private_cannot_be_touched(store: FolderStore, key: str) -> None:
    created(store, "key", b"")
    for verb in _tries(store, key):
        with pytest.raises(Invalid, match="keeps for itself"):
            verb()
    assert names(store, ".bucketmq/") == []
    assert names(store, "") == ["key"]


def test_a_private_name_further_down_is_a_key_like_any_other(store: FolderStore) -> None:
    created(store, "a/.bucketmq/key", b"")
    assert names(store, "") == ["a/.bucketmq/key"]


# what a file system cannot hold


def test_a_key_cannot_be_above_or_below_another(store: FolderStore) -> None:
    version = created(store, "a/b", b"")
    with pytest.raises(Invalid, match="keys lie below 'a'"):
        store.create("a", b"")
    with pytest.raises(Invalid, match="'a/b' is an object"):
        store.create("a/b/c", b"")
    assert store.get("a") == store.get("a/b/c") == Missing()
    assert store.replace("a", b"", version) == store.replace("a/b/c", b"", version) == Refused()
    store.delete("a")
    store.delete("a/b/c")
    assert names(store, "a/b/") == []
    assert names(store, "") == ["a/b"]


def test_a_segment_too_long_for_a_file_name_is_invalid(store: FolderStore) -> None:
    created(store, "a/key", b"")
    for verb in _tries(store, "a/" + "x" * 256):
        with pytest.raises(Invalid, match="255 bytes"):
            verb()


def test_foreign_files_do_no_harm(root: Path, store: FolderStore) -> None:
    created(store, "a/key", b"")
    os.mkfifo(root / "a" / "pipe")
    (root / "a" / "back\\slash").touch()
    (root / "a" / "new\nline").touch()
    os.close(os.open(os.fsencode(root / "a") + b"/\xff", os.O_CREAT))

    assert names(store, "") == ["a/key"]
    with pytest.raises(Invalid):
        store.get("a/pipe")  # and does not hang


# trouble with the disk


def _as_nobody(work: Callable[[], None]) -> None:
    """Run `work` without the right to everything that root has."""
    child = os.fork()
    if child == 0:
        try:
            if os.geteuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            work()
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_folder_without_permission_to_write_is_denied_and_can_still_be_read(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    root = tmp_path_factory.mktemp("readonly")
    version = created(FolderStore(root), "a/key", b"body")
    closed = [root, *root.rglob("*")]
    for path in closed:
        path.chmod(0o555 if path.is_dir() else 0o444)
    opened_up = [parent for parent in root.parents if parent.stat().st_uid == os.getuid() and parent != Path("/")]
    modes = {parent: parent.stat().st_mode for parent in opened_up}
    for parent in opened_up:
        parent.chmod(0o755)

    def work() -> None:
        store = FolderStore(root)
        assert read(store, "a/key").body == b"body"
        assert names(store, "a/") == ["a/key"]
        with pytest.raises(Denied, match="give this user permission"):
            store.create("a/new", b"")
        with pytest.raises(Denied):
            store.create("b/new", b"")
        with pytest.raises(Denied):
            store.replace("a/key", b"new", version)
        with pytest.raises(Denied):
            store.delete("a/key")

    try:
        _as_nobody(work)
    finally:
        for path in closed:
            path.chmod(0o755)
        for parent, mode in modes.items():
            parent.chmod(mode)
    assert read(FolderStore(root), "a/key").body == b"body"


@pytest.mark.parametrize(
    "trouble",
    [
        (errno.ENOSPC, Unavailable, "free space"),
        (errno.EDQUOT, Unavailable, "quota"),
        (errno.EROFS, Denied, "mount the file system writable"),
        (errno.EIO, Unavailable, "look at the disk"),
        (errno.EMFILE, Unavailable, "ulimit -n"),
    ],
    ids=lambda trouble: errno.errorcode[trouble[0]],
)
def test_trouble_with_the_disk_says_what_to_do(
    root: Path, store: FolderStore, monkeypatch: pytest.MonkeyPatch, trouble: tuple[int, type[Exception], str]
) -> None:
    code, kind, cure = trouble
    version = created(store, "key", b"1")

    def full(fd: int, body: bytes) -> int:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(kind, match=cure):
        store.create("other", b"2")
    with pytest.raises(kind, match=cure):
        store.replace("key", b"2", version)
    monkeypatch.undo()
    assert names(store, "") == ["key"]
    assert read(store, "key").body == b"1"
    assert list((root / ".bucketmq" / "tmp").iterdir()) == []


def test_a_file_system_without_hard_links_is_unsupported(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_links(*args: object, **kwargs: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", no_links)
    for _ in range(2):
        with pytest.raises(Unsupported, match="no hard links; use a folder on ext4"):
            store.create("key", b"")


def test_a_file_system_with_coarse_timestamps_is_unsupported(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    utime = os.utime
    monkeypatch.setattr(os, "utime", lambda fd, ns: utime(fd, ns=(ns[0] // 10**9 * 10**9,) * 2))
    with pytest.raises(Unsupported, match="rounds timestamps"):
        store.create("key", b"")


def test_a_root_that_is_a_file_is_invalid_and_not_an_empty_bucket(tmp_path: Path) -> None:
    store = FolderStore(tmp_path / "file")
    (tmp_path / "file").touch()
    with pytest.raises(Invalid, match="the root must be a directory"):
        store.create("key", b"")
    with pytest.raises(Invalid, match="the root must be a directory"):
        FolderStore(tmp_path / "file")


# directories that come and go


def test_the_root_is_made_by_the_first_write(root: Path, store: FolderStore) -> None:
    assert store.get("a/key") == Missing()
    assert names(store, "") == []
    store.delete("a/key")
    assert not root.exists()
    created(store, "a/key", b"")
    assert (root / "a" / "key").is_file()


def test_a_folder_that_was_cleared_is_made_again(root: Path, store: FolderStore) -> None:
    for n in range(3):
        version = created(store, "a/b/key", b"%d" % n)
        assert isinstance(store.replace("a/b/key", b"%d again" % n, version), Written)
        shutil.rmtree(root)
        assert store.get("a/b/key") == Missing()
        assert store.replace("a/b/key", b"", version) == Refused()
        store.delete("a/b/key")
        assert names(store, "a/b/") == []


def test_a_directory_that_was_exchanged_is_seen(root: Path, store: FolderStore) -> None:
    created(store, "a/key", b"old")
    (root / "a").rename(root / "old")
    created(FolderStore(root), "a/key", b"new")
    assert read(store, "a/key").body == b"new"
    assert read(store, "old/key").body == b"old"


def test_a_folder_that_is_cleared_all_the_time_gives_up(
    root: Path, store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    created(store, "a/key", b"")

    def clear_first(*args: object, **kwargs: object) -> None:
        shutil.rmtree(root)
        raise FileNotFoundError(errno.ENOENT, "No such file or directory")

    monkeypatch.setattr(os, "link", clear_first)
    monkeypatch.setattr(FolderStore, "_prove", lambda self, tmp: None)
    with pytest.raises(Unavailable, match="keep being removed"):
        store.create("a/other", b"")


def test_many_directories_need_few_descriptors(store: FolderStore) -> None:
    if not Path("/proc/self/fd").exists():
        pytest.skip("needs /proc")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for n in range(250):
        created(store, f"{n}/key", b"")
    assert len(list(Path("/proc/self/fd").iterdir())) - before < 150
    assert len(names(store, "")) == 250


def test_threads_that_list_one_directory_do_not_disturb_each_other(store: FolderStore) -> None:
    keys = [f"a/{n:03}" for n in range(300)]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: store.create(key, b""), keys))
        listings = list(pool.map(lambda _: names(store, "a/"), range(100)))
    assert all(listing == keys for listing in listings)
