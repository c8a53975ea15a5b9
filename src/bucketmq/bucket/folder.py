"""A store in a folder of a local disk: the embedded default, for any number of processes on one machine.

Every key is a plain file below the root, so `ls`, `cp -r` and backups work. A write makes a temporary file first,
forces it to disk, and only then gives it its name, which the kernel does in one step:

- `create` links the temporary file to its name; the link fails when the name is taken.
- `replace`, `remove` and `delete` look at the file and rename over it, or unlink it, while they hold one of `LOCKS`
  lock files. Nothing slow happens under the lock. The kernel frees the lock of a process that dies.

So a file is whole from the first moment anyone can see it, and a process killed between any two instructions leaves at
most a temporary file behind. What is private to this module lies under `.bucketmq/` in the root:

```
.bucketmq/tmp/     files being written; leftovers older than an hour are deleted when the store is opened
.bucketmq/locks/   empty lock files, chosen by a checksum of the key
```

**Versions.** A version is the file's modification time, size and inode number. Kernels stamp files only every few
milliseconds, so the time is set by hand: the machine's clock to the microsecond, and one digit more. A clock that was
set back shows the same microseconds a second time, so `replace` counts that digit up when it finds a state from the
future. The stamp is always the time of the write, never derived from a stamp that is in the future.

**Directories.** A listing removes the empty directories that it meets among this project's own keys, or one for each
second that a message was ever due would stay for ever. `create` makes its directory again when that happens between its
mkdir and its link. Users' directories stay, because other programs may be about to write there.

**Permissions.** Files get what the umask allows, except secrets, which only their owner can read. Lock files can be
opened for writing only: with a lock file that is readable, a user who may only read could hold the lock.

Attributes are JSON in one extended attribute of the file, `user.bucketmq`, set before the file gets its name. A file
without it, ours or another program's, has the content type of its name's suffix.
Programs that ignore the locks can change a file between the look at it and what `replace` or `remove` then do.

POSIX only (Linux, macOS), on a file system with hard links and fine timestamps. Not for network file systems: their
locks are unreliable. On a file system that ignores case, keys that differ only in case are the same key.
URLs and object stores do not belong here.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import itertools
import os
import stat
import threading
import time
import zlib
from collections.abc import Callable, Generator, Iterator
from typing import TypeVar

from bucketmq.bucket.files import (
    copy_all,
    extra_of,
    is_plain,
    look,
    microsecond,
    opened,
    read,
    set_extra,
    stamp_over,
    version_of,
    writing,
)
from bucketmq.bucket.listing import check_listing
from bucketmq.bucket.port import (
    KEY_BYTES_MAX,
    PLAIN,
    Attributes,
    Entry,
    Found,
    Missing,
    Object,
    Page,
    Refused,
    Removed,
    Unknown,
    Version,
    Written,
    check_key,
)
from bucketmq.errors import BucketMQError, Denied, Invalid, Unavailable, Unsupported
from bucketmq.log.layout import is_bookkeeping, is_secret

Result = TypeVar("Result")

LOCK_WAIT_SECONDS = 30.0
"""How long `replace` and `delete` wait for a lock that is normally held for a tenth of a millisecond."""

LOCKS = 64
"""Keys that share a lock file only wait for one another, so this number is not part of any promise but must not vary
between processes."""

LEFTOVER_SECONDS = 3600
"""A temporary file this old is a leftover of a process that died: no write takes an hour."""

TIDIED_MAX = 500
"""How many empty directories one listing removes: on a busy disk each takes half a millisecond."""

PRIVATE = ".bucketmq"
_TMP = (PRIVATE, "tmp")
_LOCKS = (PRIVATE, "locks")
_OPEN_DIRECTORIES_MAX = 100  # a shell on macOS allows a process 256 open files
_VANISHED_MAX = 5  # how often the folder may be cleared under one call
_MADE_MAX = 20  # how often listings may remove a directory between one call's mkdir and its link

NOT_FORCED = "the directory could not be forced to disk"
_GOOD_FILE_SYSTEMS = "use a folder on ext4, XFS, Btrfs or APFS"
_FULL_FSYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)  # macOS, whose fsync stops at the drive's cache
_FDATASYNC: Callable[[int], None] | None = getattr(os, "fdatasync", None)

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_LOCK = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
_READABLE = stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH


class FolderStore:
    """Objects as files below `root`, which is made at the first write.

    Costs: `get` six system calls; `create` and `replace` one file and one directory forced to disk, `remove` and
    `delete` one directory, and `together` each directory once. Directories stay open between calls, at most
    `_OPEN_DIRECTORIES_MAX`, until `close` or until the process runs out of descriptors.
    """

    lists_in_order = False
    local = True
    renames = False  # a link and an unlink are two steps
    copies = True
    exact_versions = True

    def __init__(self, root: str | os.PathLike[str], *, lock_wait_seconds: float = LOCK_WAIT_SECONDS) -> None:
        self._root = os.path.realpath(os.path.expanduser(os.fspath(root)))
        self._lock_wait_seconds = lock_wait_seconds
        self._directories: dict[tuple[str, ...], _Directory] = {}
        self._changed = _Changed()
        self._proven: tuple[int, int] | None = None
        self._token = os.urandom(6).hex()
        self._numbers = itertools.count()
        if os.path.exists(self._root) and not os.path.isdir(self._root):
            raise Invalid(f"{self._root} is a file; the root must be a directory")
        self._remove_leftovers()

    @property
    def root(self) -> str:
        """Where the files lie, for programs that watch them."""
        return self._root

    def get(self, key: str) -> Object | Missing:
        return self._read("read", key, read)

    def create(self, key: str, body: bytes, attributes: Attributes = PLAIN) -> Written | Refused | Unknown:
        parents, name = _split(key)
        extra = extra_of(name, attributes)
        return self._do("create", key, lambda: self._create(parents, name, key, writing(body), extra=extra))

    def replace(
        self, key: str, body: bytes, version: Version, attributes: Attributes = PLAIN
    ) -> Written | Refused | Unknown:
        parents, name = _split(key)
        extra = extra_of(name, attributes)

        def replace() -> Written | Refused | Unknown:
            directory = self._find(parents)
            # Looking before the slow part spares a loser the forced write.
            if directory is None or not _is_at(directory.fd, name, key, version):
                return Refused()
            return self._replace(directory, name, key, body, version, extra=extra)

        return self._do("replace", key, replace)

    def delete(self, key: str) -> None:
        parents, name = _split(key)

        def delete() -> None:
            directory = self._find(parents)
            if directory is None or _regular(directory.fd, name, key) is None:
                return
            with self._locked(key), contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=directory.fd)
            self._flush(directory)

        self._do("delete", key, delete)

    def look(self, key: str) -> Found | Missing:
        return self._read("look at", key, look)

    def remove(self, key: str, version: Version) -> Removed | Refused | Unknown:
        parents, name = _split(key)

        def remove() -> Removed | Refused | Unknown:
            directory = self._find(parents)
            if directory is None or not _is_at(directory.fd, name, key, version):
                return Refused()
            with self._locked(key):
                if not _is_at(directory.fd, name, key, version):
                    return Refused()
                try:
                    os.unlink(name, dir_fd=directory.fd)
                except FileNotFoundError:  # deleted by a program that ignores the locks
                    return Refused()
            try:
                self._flush(directory)
            except OSError as error:
                return Unknown(f"{NOT_FORCED}: {error.strerror}")
            return Removed()

        return self._do("remove", key, remove)

    def rename(self, key: str, target: str, version: Version) -> Removed | Refused | Unknown:
        _split(key)
        _split(target)
        raise Unsupported(f"a folder cannot rename {key!r} in one step; create {target!r}, then remove {key!r}")

    def copy(self, key: str, target: str, source: Found, attributes: Attributes = PLAIN) -> Written | Refused | Unknown:
        """By the kernel, which shares the blocks where the file system can. A hard link will not do: time, version and
        attributes belong to the file, not to its name."""
        folders, source_name = _split(key)
        parents, name = _split(target)
        extra = extra_of(name, attributes)

        def copy() -> Written | Refused | Unknown:
            directory = self._find(folders)
            if directory is None:
                return Refused()
            with opened(directory.fd, source_name, key) as file:
                if file is None or version_of(file[1]) != source.version:
                    return Refused()
                return self._create(parents, name, target, lambda to: copy_all(*file, to, key), extra=extra)

        return self._do("copy", key, copy)

    def list(self, prefix: str, *, after: str, limit: int) -> Page:
        check_listing(prefix, after, limit)
        parents = tuple(prefix.split("/")[:-1])
        if parents and _is_private(parents[0]):
            return Page((), more=False)

        def listing() -> Page:
            directory = self._find(parents)
            if directory is None:
                return Page((), more=False)
            tidying = iter(range(TIDIED_MAX))
            with contextlib.closing(_walk(directory.fd, ".", prefix, after, tidying)) as found:
                entries = tuple(itertools.islice(found, limit))
                return Page(entries, more=len(entries) == limit and next(found, None) is not None)

        return self._do("list", prefix, listing)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Directories that this thread's writes have changed are forced to disk once, at the end of the block."""
        changed: dict[_Directory, None] = {}
        self._changed.here = changed
        try:
            yield
        finally:
            self._changed.here = None
            try:
                for directory in changed:
                    directory.flush()
            except OSError as error:
                raise _translated(error, f"{NOT_FORCED} in {self._root}: {error.strerror}") from error

    def close(self) -> None:
        self._forget()

    def __repr__(self) -> str:
        return f"FolderStore({self._root!r})"

    def _read(self, verb: str, key: str, read: Callable[[int, str, str], Result | Missing]) -> Result | Missing:
        parents, name = _split(key)

        def found() -> Result | Missing:
            directory = self._find(parents)
            return Missing() if directory is None else read(directory.fd, name, key)

        return self._do(verb, key, found)

    def _do(self, verb: str, key: str, call: Callable[[], Result]) -> Result:
        """What `call` returns. It is repeated where the folder was cleared under it, and once where descriptors ran
        out, without those kept here: neither happens after its effect."""
        spared = False
        try:
            for _ in range(_VANISHED_MAX):
                try:
                    return call()
                except FileNotFoundError:
                    self._forget()
                except OSError as error:
                    if error.errno not in _NO_DESCRIPTORS or spared:
                        raise
                    spared = True
                    self._forget()
        except OSError as error:
            raise _translated(error, f"cannot {verb} {key!r} in {self._root}: {error.strerror}") from error
        raise Unavailable(
            f"directories of {key!r} below {self._root} keep being removed; stop what clears the folder, then try again"
        )

    def _create(
        self, parents: tuple[str, ...], name: str, key: str, fill: Callable[[int], None], *, extra: bytes | None
    ) -> Written | Refused | Unknown:
        found = self._find(parents)
        if found is not None and _regular(found.fd, name, key) is not None:
            return Refused()
        tmp = self._workshop()
        with self._temporary(tmp, fill, extra, secret=is_secret(key)) as (temporary, fd):
            written = os.fstat(fd)
            for attempt in range(1, _MADE_MAX + 1):
                try:
                    directory = self._make(parents)
                    os.link(temporary, name, src_dir_fd=tmp.fd, dst_dir_fd=directory.fd, follow_symlinks=False)
                    break
                except FileNotFoundError:
                    if attempt == _MADE_MAX or _lstat(temporary, tmp.fd) is None:
                        raise
                except FileExistsError:
                    if _is_directory(_lstat(name, directory.fd)):
                        raise Invalid(
                            f"keys lie below {key!r}, so it cannot be an object here; choose another key"
                        ) from None
                    return Refused()
        return self._settle(directory, written)

    def _replace(
        self, directory: _Directory, name: str, key: str, body: bytes, version: Version, *, extra: bytes | None
    ) -> Written | Refused | Unknown:
        tmp = self._workshop()
        with self._temporary(tmp, writing(body), extra, secret=is_secret(key)) as (temporary, fd), self._locked(key):
            found = _regular(directory.fd, name, key)
            if found is None or version_of(found) != version:
                return Refused()
            written = stamp_over(fd, found.st_mtime_ns)
            os.rename(temporary, name, src_dir_fd=tmp.fd, dst_dir_fd=directory.fd)
        return self._settle(directory, written)

    def _settle(self, directory: _Directory, written: os.stat_result) -> Written | Unknown:
        """The object has its name; make the name last."""
        try:
            self._flush(directory)
        except OSError as error:
            return Unknown(f"{NOT_FORCED}: {error.strerror}")
        return Written(version_of(written), written.st_mtime_ns / 1e9)

    def _flush(self, directory: _Directory) -> None:
        """Force a directory that was changed to disk, now or at the end of `together`."""
        if self._changed.here is None:
            directory.flush()
        else:
            self._changed.here[directory] = None

    @contextlib.contextmanager
    def _temporary(
        self, tmp: _Directory, fill: Callable[[int], None], extra: bytes | None = None, *, secret: bool = False
    ) -> Iterator[tuple[str, int]]:
        """A new file, filled, forced to disk and stamped with the time; its temporary name is removed afterwards."""
        name = f"{os.getpid()}-{self._token}-{next(self._numbers)}"
        fd = os.open(name, _OPEN_NEW, 0o600 if secret else 0o666, dir_fd=tmp.fd)
        try:
            fill(fd)
            stamp = microsecond()
            os.utime(fd, ns=(stamp, stamp))
            if extra is None:
                _flush_data(fd)
            else:
                set_extra(fd, extra, self._root)
                _flush(fd)  # attributes are not data
            yield name, fd
        finally:
            os.close(fd)
            with contextlib.suppress(OSError):
                os.unlink(name, dir_fd=tmp.fd)

    @contextlib.contextmanager
    def _locked(self, key: str) -> Iterator[None]:
        """Exclude every other replace and delete of `key`, in this process and in others."""
        fd = self._lock(str(zlib.crc32(key.encode()) % LOCKS), key)
        try:
            yield
        finally:
            # Unlocked by hand: a child forked by another thread meanwhile holds a copy of this descriptor.
            fcntl.flock(fd, fcntl.LOCK_UN)
            os.close(fd)

    def _lock(self, number: str, key: str) -> int:
        deadline = time.monotonic() + self._lock_wait_seconds
        pause = 0.0001
        while (fd := self._try_lock(number)) is None:
            if time.monotonic() > deadline:
                path = os.path.join(self._root, *_LOCKS, number)
                raise Unavailable(
                    f"waited {self._lock_wait_seconds:g} s for the lock {path} to write {key!r}; "
                    f"see which process holds it (`fuser {path}`) and let it run on, or end it"
                )
            time.sleep(pause)
            pause = min(pause * 2, 0.005)
        return fd

    def _try_lock(self, number: str) -> int | None:
        locks = self._make(_LOCKS)
        # A descriptor of its own for each lock: one that threads share would not keep them apart.
        fd = os.open(number, _OPEN_LOCK, 0o222, dir_fd=locks.fd)
        try:
            found = os.fstat(fd)
            if found.st_mode & _READABLE and found.st_uid == os.geteuid():
                os.fchmod(fd, stat.S_IMODE(found.st_mode) & ~_READABLE)  # made by a version before this one
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # A lock on a file that was removed meanwhile has no effect.
            if _leads_to(number, (found.st_dev, found.st_ino), locks.fd):
                return fd
        except BlockingIOError:
            pass
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)
        return None

    def _find(self, parents: tuple[str, ...]) -> _Directory | None:
        """The directory of a key, or None when there is none. No symbolic link below the root is followed."""
        known = self._known(parents)
        if known is not None:
            return known
        try:
            if not parents:
                return self._remember(parents, os.open(self._root, _OPEN_DIRECTORY))
            above = self._find(parents[:-1])
            return None if above is None else self._remember(parents, _open_below(above.fd, parents), above)
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _make(self, parents: tuple[str, ...]) -> _Directory:
        """The directory of a key, made with the directories above it if it was not there."""
        known = self._known(parents)
        if known is not None:
            return known
        if not parents:
            self._make_root()
            return self._remember(parents, os.open(self._root, _OPEN_DIRECTORY))
        above = self._make(parents[:-1])
        with contextlib.suppress(FileExistsError):
            os.mkdir(parents[-1], dir_fd=above.fd)
        try:
            return self._remember(parents, _open_below(above.fd, parents), above)
        except NotADirectoryError:
            path = "/".join(parents)
            raise Invalid(f"{path!r} is an object, so no key can lie below it here; choose another key") from None

    def _make_root(self) -> None:
        for _ in range(_VANISHED_MAX):
            try:
                return os.makedirs(self._root, exist_ok=True)
            except FileNotFoundError as error:  # what is above was removed, or cannot hold directories
                refused = error
            except OSError as error:
                raise _translated(error, f"cannot create the folder {self._root}: {error.strerror}") from error
        raise Invalid(
            f"cannot create the folder {self._root}: {_existing(self._root)} takes no new directories; "
            "choose a folder on a local disk"
        ) from refused

    def _known(self, parents: tuple[str, ...]) -> _Directory | None:
        """An open directory, if its path still leads to it: it may have been moved or removed since."""
        known = self._directories.get(parents)
        if known is not None and _leads_to("/".join((self._root, *parents)), known.identity):
            return known
        return None

    def _remember(self, parents: tuple[str, ...], fd: int, above: _Directory | None = None) -> _Directory:
        if len(self._directories) >= _OPEN_DIRECTORIES_MAX:
            self._forget()
        directory = self._directories[parents] = _Directory(fd, above)
        return directory

    def _forget(self) -> None:
        self._directories.clear()  # calls under way keep the directories they hold; the rest is closed

    def _workshop(self) -> _Directory:
        """The directory for temporary files, on a file system that has been tried out."""
        tmp = self._make(_TMP)
        if self._proven != tmp.identity:
            self._prove(tmp)
            self._proven = tmp.identity
        return tmp

    def _prove(self, tmp: _Directory) -> None:
        with self._temporary(tmp, writing(b"")) as (name, fd):
            stamp = time.time_ns() // 10**9 * 10**9 + 123_456_700
            os.utime(fd, ns=(stamp, stamp))
            if os.fstat(fd).st_mtime_ns != stamp:
                raise Unsupported(f"the file system of {self._root} rounds timestamps; {_GOOD_FILE_SYSTEMS}")
            try:
                os.link(name, name + "-link", src_dir_fd=tmp.fd, dst_dir_fd=tmp.fd, follow_symlinks=False)
            except OSError as error:
                if error.errno in (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK):
                    raise Unsupported(
                        f"the file system of {self._root} has no hard links; {_GOOD_FILE_SYSTEMS}"
                    ) from error
                raise
            os.unlink(name + "-link", dir_fd=tmp.fd)

    def _remove_leftovers(self) -> None:
        """Remove temporary files of processes that died. One that cannot be removed does no harm."""
        oldest = time.time() - LEFTOVER_SECONDS
        with contextlib.suppress(OSError, BucketMQError):
            tmp = self._find(_TMP)
            if tmp is None:
                return
            with os.scandir("/".join((self._root, *_TMP))) as entries:
                for entry in entries:
                    with contextlib.suppress(OSError):
                        if entry.stat(follow_symlinks=False).st_mtime < oldest:
                            os.unlink(entry.name, dir_fd=tmp.fd)


class _Changed(threading.local):
    """The directories that a thread has changed and forces to disk later, if it does."""

    here: dict[_Directory, None] | None = None


class _Directory:
    """An open directory, closed when the last call that uses it lets go of it."""

    __slots__ = ("_above", "_settled", "fd", "identity")

    def __init__(self, fd: int, above: _Directory | None) -> None:
        self.fd = fd
        self._above = above
        self._settled = False  # whether its own name is known to be on disk
        found = os.fstat(fd)
        self.identity = (found.st_dev, found.st_ino)

    def flush(self) -> None:
        """Force what is in it to disk, and its own name, too: the process that made it may have been killed before."""
        self._settle()
        _flush(self.fd)

    def _settle(self) -> None:
        if self._settled:
            return
        if self._above is None:
            _flush_at("..", self.fd)
        else:
            self._above.flush()
        self._settled = True

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # bound: `os` may be gone at exit
        close(self.fd)


def _split(key: str) -> tuple[tuple[str, ...], str]:
    check_key(key)
    *parents, name = key.split("/")
    if _is_private((parents or [name])[0]):
        raise Invalid(
            f"key {key!r} begins with {PRIVATE!r}, which the folder store keeps for itself; choose another key"
        )
    return tuple(parents), name


def _is_private(segment: str) -> bool:
    return segment.casefold() == PRIVATE  # macOS ignores case


def _is_at(directory_fd: int, name: str, key: str, version: Version) -> bool:
    found = _regular(directory_fd, name, key)
    return found is not None and version_of(found) == version


def _regular(directory_fd: int, name: str, key: str) -> os.stat_result | None:
    found = _lstat(name, directory_fd)
    return found if found is not None and is_plain(found, key) else None


def _lstat(path: str, directory_fd: int | None = None) -> os.stat_result | None:
    try:
        return os.stat(path, dir_fd=directory_fd, follow_symlinks=False)
    except (FileNotFoundError, NotADirectoryError):
        return None


def _leads_to(path: str, identity: tuple[int, int], directory_fd: int | None = None) -> bool:
    found = _lstat(path, directory_fd)
    return found is not None and (found.st_dev, found.st_ino) == identity


def _is_directory(found: os.stat_result | None) -> bool:
    return found is not None and stat.S_ISDIR(found.st_mode)


def _open_below(above_fd: int, parents: tuple[str, ...]) -> int:
    try:
        return os.open(parents[-1], _OPEN_DIRECTORY, dir_fd=above_fd)
    except OSError as error:
        found = _lstat(parents[-1], above_fd) if error.errno in (errno.ENOTDIR, errno.ELOOP) else None
        if found is not None and stat.S_ISLNK(found.st_mode):
            path = "/".join(parents)
            raise Invalid(f"{path!r} is a symbolic link, which the folder store does not follow; remove it") from None
        raise


def _existing(path: str) -> str:
    """The deepest directory on the way to `path` that is there."""
    while not os.path.isdir(path) and path != os.path.dirname(path):
        path = os.path.dirname(path)
    return path


def _walk(
    directory_fd: int, name: str, prefix: str, after: str, tidying: Iterator[int]
) -> Generator[Entry, None, None]:
    """Objects below a directory in byte order of their keys, from `after` on. Empty directories of ours are removed:
    one for each element of `tidying`."""
    try:
        # A descriptor of its own: it has the position in the directory, and other threads may be listing too.
        fd = os.open(name, _OPEN_DIRECTORY, dir_fd=directory_fd)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        children = _children(fd, prefix, after)
        if not children and name != "." and is_bookkeeping(prefix) and next(tidying, None) is not None:
            with contextlib.suppress(OSError):  # it is not empty, or this user may not
                os.rmdir(name, dir_fd=directory_fd)
        for key, entry in children:
            if key.endswith("/"):
                yield from _walk(fd, entry.name, key, after, tidying)
                continue
            with contextlib.suppress(FileNotFoundError):
                found = entry.stat(follow_symlinks=False)
                yield Entry(key, found.st_size, found.st_mtime_ns / 1e9, version_of(found))
    finally:
        os.close(fd)


def _children(fd: int, prefix: str, after: str) -> list[tuple[str, os.DirEntry[str]]]:
    """Sorted by key; a directory by its key with the '/', because that is how the keys below it sort."""
    found: list[tuple[str, os.DirEntry[str]]] = []
    with os.scandir(fd) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                key = f"{prefix}{entry.name}/"
                if (key > after or after.startswith(key)) and (prefix or not _is_private(entry.name)):
                    found.append((key, entry))
            elif entry.is_file(follow_symlinks=False) and (key := prefix + entry.name) > after:
                found.append((key, entry))
    found = [child for child in found if _is_key(child[0].removesuffix("/"), child[1].name)]
    found.sort(key=lambda child: child[0])
    return found


def _is_key(key: str, name: str) -> bool:
    """False for files that others put here under names that no key can have."""
    if name.isprintable() and "\\" not in name and len(key) * 4 <= KEY_BYTES_MAX:
        return True
    try:
        check_key(key)
    except Invalid:
        return False
    return True


def _flush(fd: int) -> None:
    """Force a file or directory to the disk itself."""
    if _FULL_FSYNC is not None:
        with contextlib.suppress(OSError):  # not every file system has it; then fsync must do
            fcntl.fcntl(fd, _FULL_FSYNC)
            return
    os.fsync(fd)


def _flush_data(fd: int) -> None:
    if _FDATASYNC is not None:
        _FDATASYNC(fd)
    else:
        _flush(fd)


def _flush_at(path: str, directory_fd: int) -> None:
    fd = os.open(path, _OPEN_DIRECTORY, dir_fd=directory_fd)
    try:
        _flush(fd)
    finally:
        os.close(fd)


def _translated(error: OSError, what: str) -> BucketMQError:
    kind, cure = _CURES.get(error.errno or 0, (Unavailable, "look at the disk and the system log, then try again"))
    return kind(f"{what}; {cure}")


_NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)

_CURES: dict[int, tuple[type[BucketMQError], str]] = {
    errno.EACCES: (Denied, "give this user permission to read and write there"),
    errno.EPERM: (Denied, "give this user permission to read and write there"),
    errno.EROFS: (Denied, "mount the file system writable or choose another folder"),
    errno.ENOSPC: (Unavailable, "free space on the disk, then try again"),
    errno.EDQUOT: (Unavailable, "free space within the quota, then try again"),
    errno.EMFILE: (Unavailable, "raise the limit of open files (`ulimit -n`)"),
    errno.ENFILE: (Unavailable, "raise the system's limit of open files"),
    errno.ENAMETOOLONG: (Invalid, "use shorter names: a file system allows 255 bytes between two '/'"),
    errno.ENOTDIR: (Invalid, "the root must be a directory"),
    errno.EEXIST: (Invalid, "the root must be a directory"),
    errno.ELOOP: (Invalid, "the folder store holds plain files only; remove what is there"),
    errno.ENXIO: (Invalid, "the folder store holds plain files only; remove what is there"),
    errno.EXDEV: (Unsupported, "the whole folder must lie on one file system"),
}
