"""A store in a folder of a local disk: the embedded default, for any number of processes on one machine.

Every key is a plain file below the root, so `ls`, `cp -r` and backups work. A write makes a temporary file first,
forces it to disk, and only then gives it its name, which the kernel does in one step:

- `create` links the temporary file to its name; the link fails when the name is taken.
- `replace`, `remove` and `delete` look at the file and rename over it, or unlink it, while they hold one of `LOCKS`
  lock files. Nothing slow happens under the lock. The kernel frees the lock of a process that dies.

So a file is whole from the first moment anyone can see it, and a process killed between any two instructions leaves at
most a temporary file behind. What is private to this module lies under `.bucketmq/` in the root:

```
.bucketmq/tmp/     files being written; what is older than an hour goes when the store is opened
.bucketmq/locks/   empty lock files, chosen by a checksum of the key
```

A version is the file's modification time, size and inode number. Kernels stamp files only every few milliseconds, so
the time is set by hand, to the microsecond, and `replace` sees to it that it grows from one state to the next.

Attributes lie in one extended attribute of the file, `user.bucketmq`, as JSON, set before the file gets its name. A
file without one, be it ours or put here by another program, has the content type that its name's ending tells.
Programs that do not know of the locks can change a file between the look at it and what `replace` or `remove` then do.

POSIX only (Linux, macOS), on a file system with hard links and fine timestamps; network file systems, where locks are a
matter of luck, are not for this. On a file system that ignores case, keys that differ only in case are the same key.
URLs and object stores do not belong here.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import functools
import itertools
import mimetypes
import os
import stat
import time
import zlib
from collections.abc import Callable, Generator, Iterator

import msgspec

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
    check_attributes,
    check_key,
)
from bucketmq.errors import BucketMQError, Corrupt, Denied, Invalid, Unavailable, Unsupported

LOCK_WAIT_SECONDS = 30.0
"""How long `replace` and `delete` wait for a lock that is normally held for a tenth of a millisecond."""

LOCKS = 64
"""Keys that share a lock file only wait for one another, so this number is not part of any promise but must not vary
between processes."""

LEFTOVER_SECONDS = 3600
"""A temporary file this old belongs to nobody: no write takes an hour."""

PRIVATE = ".bucketmq"
_TMP = (PRIVATE, "tmp")
_LOCKS = (PRIVATE, "locks")
_OPEN_DIRECTORIES_MAX = 100  # a shell on macOS allows a process 256 open files
_VANISHED_MAX = 5  # how often a directory may be pulled away under one call

_GOOD_FILE_SYSTEMS = "use a folder on ext4, XFS, Btrfs or APFS"
_FULL_FSYNC: int | None = getattr(fcntl, "F_FULLFSYNC", None)  # macOS, whose fsync stops at the drive's cache
_FDATASYNC: Callable[[int], None] | None = getattr(os, "fdatasync", None)

_XATTR = "user.bucketmq"
_XATTR_SMALL = 3000  # what every file system with extended attributes has room for; ext4 ends near 4,000
# Python has these on Linux only.
_LISTXATTR: Callable[[int], list[str]] | None = getattr(os, "listxattr", None)
_GETXATTR: Callable[[int, str], bytes] | None = getattr(os, "getxattr", None)
_SETXATTR: Callable[[int, str, bytes], None] | None = getattr(os, "setxattr", None)
_NO_XATTRS = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)

_OPEN_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # NONBLOCK: a pipe must not hang us
_OPEN_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_OPEN_LOCK = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


class FolderStore:
    """Objects as files below `root`, which is made at the first write.

    Costs: `get` six system calls; `create` and `replace` one file and one directory forced to disk.
    """

    lists_in_order = False
    local = True
    renames = False  # a link and an unlink are two steps
    exact_versions = True

    def __init__(self, root: str | os.PathLike[str], *, lock_wait_seconds: float = LOCK_WAIT_SECONDS) -> None:
        self._root = os.path.realpath(os.path.expanduser(os.fspath(root)))
        self._lock_wait_seconds = lock_wait_seconds
        self._directories: dict[tuple[str, ...], _Directory] = {}
        self._proven: tuple[int, int] | None = None
        self._token = os.urandom(6).hex()
        self._numbers = itertools.count()
        if os.path.exists(self._root) and not os.path.isdir(self._root):
            raise Invalid(f"{self._root} is a file; the root must be a directory")
        self._remove_leftovers()

    @property
    def root(self) -> str:
        """Where the files lie, for those who watch them."""
        return self._root

    def get(self, key: str) -> Object | Missing:
        parents, name = _split(key)
        with self._errors("read", key):
            directory = self._find(parents)
            return Missing() if directory is None else _read(directory.fd, name, key)

    def create(self, key: str, body: bytes, attributes: Attributes = PLAIN) -> Written | Refused | Unknown:
        parents, name = _split(key)
        extra = _extra(name, attributes)
        with self._errors("create", key):
            for _ in range(_VANISHED_MAX):
                try:
                    return self._create(self._make(parents), name, key, body, extra=extra)
                except FileNotFoundError:
                    self._forget()  # a directory was removed under our hands: make it again
        raise self._vanishing(key)

    def replace(
        self, key: str, body: bytes, version: Version, attributes: Attributes = PLAIN
    ) -> Written | Refused | Unknown:
        parents, name = _split(key)
        extra = _extra(name, attributes)
        with self._errors("replace", key):
            for _ in range(_VANISHED_MAX):
                directory = self._find(parents)
                # Looking before the slow part spares a loser the forced write.
                if directory is None or not _is_at(directory.fd, name, key, version):
                    return Refused()
                try:
                    settled = directory if directory.settled else self._make(parents)
                    return self._replace(settled, name, key, body, version, extra=extra)
                except FileNotFoundError:
                    self._forget()
        raise self._vanishing(key)

    def delete(self, key: str) -> None:
        # Empty directories stay: removing one could race with a create that has just found it.
        parents, name = _split(key)
        with self._errors("delete", key):
            directory = self._find(parents)
            if directory is None or _regular(directory.fd, name, key) is None:
                return
            with self._locked(key), contextlib.suppress(FileNotFoundError):
                os.unlink(name, dir_fd=directory.fd)
            _flush(directory.fd)

    def look(self, key: str) -> Found | Missing:
        parents, name = _split(key)
        with self._errors("look at", key):
            directory = self._find(parents)
            return Missing() if directory is None else _look(directory.fd, name, key)

    def remove(self, key: str, version: Version) -> Removed | Refused | Unknown:
        parents, name = _split(key)
        with self._errors("remove", key):
            directory = self._find(parents)
            if directory is None or not _is_at(directory.fd, name, key, version):
                return Refused()
            with self._locked(key):
                if not _is_at(directory.fd, name, key, version):
                    return Refused()
                try:
                    os.unlink(name, dir_fd=directory.fd)
                except FileNotFoundError:  # by a program that does not know of the locks
                    return Refused()
            try:
                _flush(directory.fd)
            except OSError as error:
                return Unknown(f"the directory could not be forced to disk: {error.strerror}")
            return Removed()

    def rename(self, key: str, target: str, version: Version) -> Removed | Refused | Unknown:
        _split(key)
        _split(target)
        raise Unsupported(f"a folder cannot rename {key!r} in one step; create {target!r}, then remove {key!r}")

    def list(self, prefix: str, *, after: str, limit: int) -> Page:
        check_listing(prefix, after, limit)
        parents = tuple(prefix.split("/")[:-1])
        if parents and _is_private(parents[0]):
            return Page((), more=False)
        with self._errors("list", prefix):
            directory = self._find(parents)
            if directory is None:
                return Page((), more=False)
            with contextlib.closing(_walk(directory.fd, ".", prefix, after)) as found:
                entries = tuple(itertools.islice(found, limit))
                return Page(entries, more=len(entries) == limit and next(found, None) is not None)

    def __repr__(self) -> str:
        return f"FolderStore({self._root!r})"

    def _create(
        self, directory: _Directory, name: str, key: str, body: bytes, *, extra: bytes | None
    ) -> Written | Refused | Unknown:
        if _regular(directory.fd, name, key) is not None:
            return Refused()
        tmp = self._workshop()
        with self._temporary(tmp, body, extra) as (temporary, fd):
            written = os.fstat(fd)
            try:
                os.link(temporary, name, src_dir_fd=tmp.fd, dst_dir_fd=directory.fd, follow_symlinks=False)
            except FileExistsError:
                if _is_directory(_lstat(name, directory.fd)):
                    raise Invalid(
                        f"keys lie below {key!r}, so it cannot be an object here; choose another key"
                    ) from None
                return Refused()
        return _settle(directory, written)

    def _replace(
        self, directory: _Directory, name: str, key: str, body: bytes, version: Version, *, extra: bytes | None
    ) -> Written | Refused | Unknown:
        tmp = self._workshop()
        with self._temporary(tmp, body, extra) as (temporary, fd), self._locked(key):
            found = _regular(directory.fd, name, key)
            if found is None or _version(found) != version:
                return Refused()
            written = _stamp_after(fd, found.st_mtime_ns)
            os.rename(temporary, name, src_dir_fd=tmp.fd, dst_dir_fd=directory.fd)
        return _settle(directory, written)

    @contextlib.contextmanager
    def _temporary(self, tmp: _Directory, body: bytes, extra: bytes | None = None) -> Iterator[tuple[str, int]]:
        """A new file, forced to disk and stamped with the time; its temporary name goes afterwards."""
        name = f"{os.getpid()}-{self._token}-{next(self._numbers)}"
        fd = os.open(name, _OPEN_NEW, 0o666, dir_fd=tmp.fd)
        try:
            _write(fd, body)
            stamp = time.time_ns() // 1000 * 1000
            os.utime(fd, ns=(stamp, stamp))
            if extra is None:
                _flush_data(fd)
            else:
                _set_extra(fd, extra, self._root)
                _flush(fd)  # attributes are no data
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
        # Opened anew, because only then does the lock exclude the other threads of this process too.
        fd = os.open(number, _OPEN_LOCK, 0o666, dir_fd=locks.fd)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            now = os.fstat(fd)
            # A lock file that was removed and made again meanwhile would exclude nobody.
            if _leads_to(number, (now.st_dev, now.st_ino), locks.fd):
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
            return None if above is None else self._remember(parents, _open_below(above.fd, parents))
        except (FileNotFoundError, NotADirectoryError):
            return None

    def _make(self, parents: tuple[str, ...]) -> _Directory:
        """The directory of a key, made and forced to disk with the directories above it if it was not there."""
        known = self._known(parents)
        if known is not None and known.settled:
            return known
        if parents:
            above = self._make(parents[:-1])
            with contextlib.suppress(FileExistsError):
                os.mkdir(parents[-1], dir_fd=above.fd)
            try:
                fd = _open_below(above.fd, parents)
            except NotADirectoryError:
                path = "/".join(parents)
                raise Invalid(f"{path!r} is an object, so no key can lie below it here; choose another key") from None
            made = self._remember(parents, fd)
            # Also if it was there before: whoever made it may have been killed before forcing it to disk.
            _flush(above.fd)
        else:
            os.makedirs(self._root, exist_ok=True)
            made = self._remember(parents, os.open(self._root, _OPEN_DIRECTORY))
            _flush_path(os.path.dirname(self._root))
        made.settled = True
        return made

    def _known(self, parents: tuple[str, ...]) -> _Directory | None:
        """An open directory, if its path still leads to it: somebody may have moved or removed it since."""
        known = self._directories.get(parents)
        if known is not None and _leads_to("/".join((self._root, *parents)), known.identity):
            return known
        return None

    def _remember(self, parents: tuple[str, ...], fd: int) -> _Directory:
        if len(self._directories) >= _OPEN_DIRECTORIES_MAX:
            self._forget()
        directory = self._directories[parents] = _Directory(fd)
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
        with self._temporary(tmp, b"") as (name, fd):
            stamp = time.time_ns() // 10**9 * 10**9 + 123_456_000
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

    def _vanishing(self, key: str) -> Unavailable:
        return Unavailable(
            f"directories of {key!r} below {self._root} keep being removed; stop what clears the folder, then try again"
        )

    @contextlib.contextmanager
    def _errors(self, verb: str, key: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise _translated(error, f"cannot {verb} {key!r} in {self._root}: {error.strerror}") from error


class _Directory:
    """An open directory, closed when the last call that uses it lets go of it."""

    __slots__ = ("fd", "identity", "settled")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.settled = False  # whether its own name is known to be on disk
        found = os.fstat(fd)
        self.identity = (found.st_dev, found.st_ino)

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


def _look(directory_fd: int, name: str, key: str) -> Found | Missing:
    try:
        fd = os.open(name, _OPEN_READ, dir_fd=directory_fd)
    except FileNotFoundError:
        return Missing()
    try:
        found = os.fstat(fd)
        if not _check_plain(found, key):
            return Missing()
        attributes = _attributes(fd, name, key)
    finally:
        os.close(fd)
    return Found(found.st_size, _version(found), found.st_mtime_ns / 1e9, attributes)


def _read(directory_fd: int, name: str, key: str) -> Object | Missing:
    try:
        fd = os.open(name, _OPEN_READ, dir_fd=directory_fd)
    except FileNotFoundError:
        return Missing()
    try:
        found = os.fstat(fd)  # of this very file: a rename may put another one in its place at any time
        if not _check_plain(found, key):
            return Missing()
        body = os.read(fd, found.st_size)
        while len(body) < found.st_size:
            more = os.read(fd, found.st_size - len(body))
            if not more:
                raise Unavailable(f"the file of {key!r} shrank while it was read; keep other programs from changing it")
            body += more
        attributes = _attributes(fd, name, key)
    finally:
        os.close(fd)
    return Object(body, _version(found), found.st_mtime_ns / 1e9, attributes)


def _attributes(fd: int, name: str, key: str) -> Attributes:
    """Of an open file. Asking for the list first is cheaper than asking for what is not there."""
    if _LISTXATTR is not None and _GETXATTR is not None:
        try:
            if _XATTR in _LISTXATTR(fd):
                return msgspec.json.decode(_GETXATTR(fd, _XATTR), type=Attributes)
        except OSError as error:
            if error.errno not in _NO_XATTRS:
                raise
        except msgspec.DecodeError as error:
            raise Corrupt(
                f"the extended attribute {_XATTR} of {key!r} is not what the folder store writes ({error}); "
                f"remove it (`setfattr -x {_XATTR}`)"
            ) from error
    return _guess(name.rpartition(".")[2].lower()) if "." in name else PLAIN


def _extra(name: str, attributes: Attributes) -> bytes | None:
    """What to write beside the body; None if a reader knows without."""
    if attributes is PLAIN:
        return None
    check_attributes(attributes)
    guess = _guess(name.rpartition(".")[2].lower()) if "." in name else PLAIN
    if not attributes.metadata and attributes.content_type in ("", guess.content_type):
        return None
    return msgspec.json.encode(attributes)


def _set_extra(fd: int, extra: bytes, root: str) -> None:
    try:
        if _SETXATTR is None:
            raise OSError(errno.ENOTSUP, "not on this system")
        _SETXATTR(fd, _XATTR, extra)
    except OSError as error:
        if error.errno in _NO_XATTRS:
            raise Unsupported(
                f"the folder {root} cannot keep metadata, or a content type other than the key's ending tells: "
                "it lacks extended attributes; leave them out, or use a folder on ext4, XFS, Btrfs or tmpfs on Linux"
            ) from error
        if len(extra) > _XATTR_SMALL:
            raise Invalid(
                f"the file system of {root} has no room for {len(extra)} bytes of attributes beside a file; "
                "use less metadata"
            ) from error
        raise


@functools.lru_cache(maxsize=256)
def _guess(ending: str) -> Attributes:
    """By Python's own table, so that it is the same on every machine."""
    kind = _KINDS.types_map[True].get(f".{ending}")
    return PLAIN if kind is None else Attributes(kind)


_KINDS = mimetypes.MimeTypes()


def _write(fd: int, body: bytes) -> None:
    written = os.write(fd, body)
    while written < len(body):  # one call writes at most 2 GiB, and less on a disk that is filling up
        written += os.write(fd, memoryview(body)[written:])


def _settle(directory: _Directory, written: os.stat_result) -> Written | Unknown:
    """The object has its name; make the name last."""
    try:
        _flush(directory.fd)
    except OSError as error:
        return Unknown(f"the directory could not be forced to disk: {error.strerror}")
    return Written(_version(written), written.st_mtime_ns / 1e9)


def _stamp_after(fd: int, before_ns: int) -> os.stat_result:
    """Make the file younger than `before_ns`, so that no two states in a row have the same version."""
    found = os.fstat(fd)
    if found.st_mtime_ns <= before_ns:
        stamp = before_ns // 1000 * 1000 + 1000
        os.utime(fd, ns=(stamp, stamp))
        found = os.fstat(fd)
    return found


def _version(found: os.stat_result) -> Version:
    return Version(f"{found.st_mtime_ns:x}-{found.st_size:x}-{found.st_ino:x}")


def _is_at(directory_fd: int, name: str, key: str, version: Version) -> bool:
    found = _regular(directory_fd, name, key)
    return found is not None and _version(found) == version


def _regular(directory_fd: int, name: str, key: str) -> os.stat_result | None:
    found = _lstat(name, directory_fd)
    return found if found is not None and _check_plain(found, key) else None


def _check_plain(found: os.stat_result, key: str) -> bool:
    """True for a plain file, False for a directory, which is no object; `Invalid` for what does not belong here."""
    if stat.S_ISREG(found.st_mode):
        return True
    if stat.S_ISDIR(found.st_mode):
        return False
    raise Invalid(f"{key!r} is a symbolic link or a device, which the folder store does not follow; remove it")


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


def _walk(directory_fd: int, name: str, prefix: str, after: str) -> Generator[Entry, None, None]:
    """Objects below a directory in byte order of their keys, from `after` on."""
    try:
        # Opened anew: a position in a directory belongs to the open file, and other threads may be listing too.
        fd = os.open(name, _OPEN_DIRECTORY, dir_fd=directory_fd)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        for key, entry in _children(fd, prefix, after):
            if key.endswith("/"):
                yield from _walk(fd, entry.name, key, after)
                continue
            with contextlib.suppress(FileNotFoundError):
                found = entry.stat(follow_symlinks=False)
                yield Entry(key, found.st_size, found.st_mtime_ns / 1e9, _version(found))
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


def _flush_path(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _flush(fd)
    finally:
        os.close(fd)


def _translated(error: OSError, what: str) -> BucketMQError:
    kind, cure = _CURES.get(error.errno or 0, (Unavailable, "look at the disk and the system log, then try again"))
    return kind(f"{what}; {cure}")


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
