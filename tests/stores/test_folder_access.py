"""Who may read what in a folder, who can stand in the way, and files that are not what they seem."""

from __future__ import annotations

import fcntl
import os
import resource
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import bucketmq
from bucketmq.bucket import port
from bucketmq.bucket.folder import LOCKS, FolderStore
from bucketmq.bucket.port import OBJECT_BYTES_MAX, Found, Refused, Written
from bucketmq.errors import Denied, Invalid
from bucketmq.log.layout import EventKeys, is_secret
from bucketmq.testing.contract import created, names, read

SECRETS = EventKeys("").secrets("to-partner")


@pytest.fixture
def root() -> Iterator[Path]:
    """A folder that every user of this machine can reach, under the usual umask.

    Not below pytest's own, which are for their owner alone and shared with the other processes of a run.
    """
    before = os.umask(0o022)
    place = Path(tempfile.mkdtemp(prefix="bucketmq-shared-"))
    place.chmod(0o755)
    yield place / "store"
    shutil.rmtree(place)
    os.umask(before)


@pytest.fixture
def store(root: Path) -> FolderStore:
    return FolderStore(root, lock_wait_seconds=1)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def as_another_user(work: Callable[[], None]) -> None:
    """Run `work` in a child that is nobody."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    child = os.fork()
    if child == 0:
        try:
            os.setgroups([])
            os.setgid(65534)
            os.setuid(65534)
            work()
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# secrets


def test_secrets_of_rules_are_for_their_owner_alone(root: Path, store: FolderStore) -> None:
    version = created(store, SECRETS, b"whsec_1")
    assert mode(root / SECRETS) == 0o600
    assert isinstance(store.replace(SECRETS, b"whsec_2", version), Written)
    assert mode(root / SECRETS) == 0o600
    created(store, "rules/to-partner.json", b"{}")
    assert mode(root / "rules/to-partner.json") == 0o644

    def work() -> None:
        assert read(FolderStore(root), "rules/to-partner.json").body == b"{}"
        with pytest.raises(Denied):
            FolderStore(root).get(SECRETS)

    as_another_user(work)


def test_secrets_written_by_an_older_version_are_closed_by_the_next_write(root: Path, store: FolderStore) -> None:
    version = created(store, SECRETS, b"whsec_1")
    (root / SECRETS).chmod(0o644)
    assert isinstance(store.replace(SECRETS, b"whsec_2", version), Written)
    assert mode(root / SECRETS) == 0o600


def test_secrets_are_closed_from_the_first_byte_on(root: Path, store: FolderStore) -> None:
    """While it has its temporary name only, too."""
    created(store, "a", b"")
    modes: list[int] = []
    write = os.write

    def noted(fd: int, body: bytes) -> int:
        modes.append(stat.S_IMODE(os.fstat(fd).st_mode))
        return write(fd, body)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "write", noted)
        created(store, SECRETS, b"whsec_1")
    assert modes == [0o600]


def test_a_rule_made_through_the_library_keeps_its_secret_to_itself(root: Path) -> None:
    with bucketmq.connect(str(root), probe=False) as bucket:
        bucket.rules.add("to-partner", to="https://example.com/hook", signing="whsec_" + "c2VjcmV0" * 4)
    found = [path for path in root.rglob("*") if path.is_file() and b"c2VjcmV0" in path.read_bytes()]
    assert found
    assert all(is_secret(path.name) and mode(path) == 0o600 for path in found)


# locks


def test_a_user_who_may_only_read_cannot_hold_a_lock(root: Path, store: FolderStore) -> None:
    version = created(store, "key", b"1")
    written = store.replace("key", b"2", version)
    assert isinstance(written, Written)

    def work() -> None:
        assert read(FolderStore(root), "key").body == b"2"
        locks = sorted((root / ".bucketmq" / "locks").iterdir())
        assert locks
        for path in locks:
            for flags in (os.O_RDONLY, os.O_RDWR, os.O_WRONLY):
                with pytest.raises(PermissionError):
                    os.open(path, flags)

    as_another_user(work)
    assert isinstance(store.replace("key", b"3", written.version), Written)


def test_lock_files_of_an_older_version_are_closed_to_readers(root: Path, store: FolderStore) -> None:
    version = created(store, "key", b"1")
    (root / ".bucketmq" / "locks").mkdir()
    for number in range(LOCKS):
        (root / ".bucketmq" / "locks" / str(number)).touch(0o644)
    assert isinstance(store.replace("key", b"2", version), Written)
    closed = [path for path in (root / ".bucketmq" / "locks").iterdir() if mode(path) == 0o200]
    assert len(closed) == 1


def test_locks_of_writers_still_exclude_each_other(root: Path, store: FolderStore) -> None:
    version = created(store, "key", b"1")
    with store._locked("key"):
        (lock,) = (root / ".bucketmq" / "locks").iterdir()
        fd = os.open(lock, os.O_WRONLY)
        with pytest.raises(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(fd)
    assert isinstance(store.replace("key", b"2", version), Written)


# files of any size


def test_a_terabyte_is_refused_before_it_is_read(root: Path, store: FolderStore) -> None:
    created(store, "small", b"body")
    with (root / "huge").open("wb") as file:
        file.truncate(10**12)  # sparse: it takes no room
    with pytest.raises(Invalid, match=r"'huge' has 1000000000000 bytes .*at most 5368709120 bytes; read it with"):
        store.get("huge")
    looked = store.look("huge")
    assert isinstance(looked, Found)
    assert looked.size_bytes == 10**12
    assert names(store, "") == ["huge", "small"]
    assert store.create("huge", b"") == Refused()
    store.delete("huge")
    assert names(store, "") == ["small"]


def test_an_object_that_does_not_fit_into_memory_is_refused_in_words(root: Path, store: FolderStore) -> None:
    created(store, "small", b"body")
    with (root / "large").open("wb") as file:
        file.truncate(OBJECT_BYTES_MAX)

    def work() -> None:
        most = 2 * 1024**3
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
        with pytest.raises(Invalid, match="must fit into memory"):
            store.get("large")
        assert read(store, "small").body == b"body"

    child = os.fork()
    if child == 0:
        try:
            work()
        except BaseException as error:
            os.write(2, f"{type(error).__name__}: {error}\n".encode())
            os._exit(1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_the_bound_is_the_same_for_every_store() -> None:
    port.check_size("key", OBJECT_BYTES_MAX)
    with pytest.raises(Invalid, match="'key'"):
        port.check_size("key", OBJECT_BYTES_MAX + 1)


# folders that cannot be


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
@pytest.mark.parametrize("path", ["/proc/nope", "/proc/nope/deeper"])
def test_a_folder_that_cannot_be_created_is_named_with_the_reason(path: str) -> None:
    with pytest.raises(Invalid, match=rf"cannot create the folder {path}: /proc takes no new directories; choose"):
        bucketmq.connect(path)


def test_a_folder_without_permission_to_create_it_is_denied(root: Path) -> None:
    def work() -> None:
        with pytest.raises(Denied, match=rf"cannot create the folder {root}: Permission denied; give this user"):
            bucketmq.connect(str(root))

    as_another_user(work)


def test_a_folder_below_a_file_is_invalid(root: Path) -> None:
    root.touch()
    with pytest.raises(Invalid, match=r"cannot create the folder .*/below: Not a directory"):
        bucketmq.connect(str(root / "below"))
