"""One plain file of the folder store: its bytes, its attributes, its version, its stamp.

`bucketmq.bucket.folder` says why files look like this; which file a key has, locks and directories are its business.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import mimetypes
import os
import stat
import time
from collections.abc import Callable, Iterator

import msgspec

from bucketmq.bucket.port import (
    PLAIN,
    Attributes,
    Found,
    Missing,
    Object,
    Version,
    check_attributes,
    check_size,
    too_large,
)
from bucketmq.errors import Corrupt, Invalid, Unavailable, Unsupported

_MICROSECOND_NS = 1_000
_TICK_NS = 1_000_000
_PASS_NS = 100  # the digit behind the microsecond: how often the clock was set back between two states

_XATTR = "user.bucketmq"
_XATTR_SMALL = 3000  # what every file system with extended attributes has room for; ext4 ends near 4,000
# Python has these on Linux only.
_LISTXATTR: Callable[[int], list[str]] | None = getattr(os, "listxattr", None)
_GETXATTR: Callable[[int, str], bytes] | None = getattr(os, "getxattr", None)
_SETXATTR: Callable[[int, str, bytes], None] | None = getattr(os, "setxattr", None)
_NO_XATTRS = (errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)

_COPY_RANGE: Callable[[int, int, int], int] | None = getattr(os, "copy_file_range", None)  # on Linux only
_COPY_BYTES = 1 << 30
_READ_BYTES = 1 << 20

_OPEN_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC  # NONBLOCK: a pipe must not hang us


@contextlib.contextmanager
def opened(directory_fd: int, name: str, key: str) -> Iterator[tuple[int, os.stat_result] | None]:
    """The file of a key as it is now, if it has one: a rename may put another in its place at any time."""
    try:
        fd = os.open(name, _OPEN_READ, dir_fd=directory_fd)
    except FileNotFoundError:
        yield None
        return
    try:
        found = os.fstat(fd)
        yield (fd, found) if is_plain(found, key) else None
    finally:
        os.close(fd)


def look(directory_fd: int, name: str, key: str) -> Found | Missing:
    with opened(directory_fd, name, key) as file:
        if file is None:
            return Missing()
        fd, found = file
        return Found(found.st_size, version_of(found), found.st_mtime_ns / 1e9, _attributes(fd, name, key))


def read(directory_fd: int, name: str, key: str) -> Object | Missing:
    with opened(directory_fd, name, key) as file:
        if file is None:
            return Missing()
        fd, found = file
        check_size(key, found.st_size)
        body = _read_all(fd, found.st_size, key)
        return Object(body, version_of(found), found.st_mtime_ns / 1e9, _attributes(fd, name, key))


def _read_all(fd: int, size: int, key: str) -> bytes:
    try:
        body = os.read(fd, size)
        while len(body) < size:
            more = os.read(fd, size - len(body))
            if not more:
                raise Unavailable(f"the file of {key!r} shrank while it was read; keep other programs from changing it")
            body += more
    except MemoryError:
        raise too_large(key, size) from None
    return body


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


def extra_of(name: str, attributes: Attributes) -> bytes | None:
    """What to write beside the body; None if a reader knows without."""
    if attributes is PLAIN:
        return None
    check_attributes(attributes)
    guess = _guess(name.rpartition(".")[2].lower()) if "." in name else PLAIN
    if not attributes.metadata and attributes.content_type in ("", guess.content_type):
        return None
    return msgspec.json.encode(attributes)


def set_extra(fd: int, extra: bytes, root: str) -> None:
    try:
        if _SETXATTR is None:
            raise OSError(errno.ENOTSUP, "not on this system")
        _SETXATTR(fd, _XATTR, extra)
    except OSError as error:
        if error.errno in _NO_XATTRS:
            raise Unsupported(
                f"the folder {root} cannot keep metadata, or a content type other than that of the key's suffix: "
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


def writing(body: bytes) -> Callable[[int], None]:
    return lambda fd: _write(fd, body)


def copy_all(fd: int, found: os.stat_result, to: int, key: str) -> None:
    """Copy an open file, as it was found, into an empty one."""
    done = 0
    while done < found.st_size:
        count = _copy_some(fd, to, min(_COPY_BYTES, found.st_size - done))
        if not count:
            break
        done += count
    if done != found.st_size or version_of(os.fstat(fd)) != version_of(found):
        raise Unavailable(f"the file of {key!r} changed while it was copied; keep other programs from changing it")


def _copy_some(fd: int, to: int, size: int) -> int:
    """Copy so many bytes at most, from where both files are; how many it were."""
    if _COPY_RANGE is not None:
        try:
            return _COPY_RANGE(fd, to, size)
        except OSError as error:
            if error.errno not in (*_NO_XATTRS, errno.EXDEV, errno.EINVAL):
                raise
    body = os.read(fd, min(size, _READ_BYTES))
    _write(to, body)
    return len(body)


def _write(fd: int, body: bytes) -> None:
    written = os.write(fd, body)
    while written < len(body):  # one call writes at most 2 GiB, and less on a disk that is filling up
        written += os.write(fd, memoryview(body)[written:])


def stamp_over(fd: int, before_ns: int) -> os.stat_result:
    """Stamp the file that replaces a state of `before_ns`, so that it has a version that no state before it had."""
    passes = before_ns // _PASS_NS % 10
    stamp = microsecond() + passes * _PASS_NS
    if stamp <= before_ns:
        if before_ns - stamp < _TICK_NS:  # a clock with coarse ticks, or two writes at once
            stamp = before_ns + _MICROSECOND_NS
        else:  # the clock was set back
            stamp = microsecond() + (passes + 1) % 10 * _PASS_NS
    os.utime(fd, ns=(stamp, stamp))
    return os.fstat(fd)


def microsecond() -> int:
    return time.time_ns() // _MICROSECOND_NS * _MICROSECOND_NS


def version_of(found: os.stat_result) -> Version:
    return Version(f"{found.st_mtime_ns:x}-{found.st_size:x}-{found.st_ino:x}")


def is_plain(found: os.stat_result, key: str) -> bool:
    """True for a plain file, False for a directory, which is not an object; `Invalid` for anything else."""
    if stat.S_ISREG(found.st_mode):
        return True
    if stat.S_ISDIR(found.st_mode):
        return False
    raise Invalid(f"{key!r} is a symbolic link or a device, which the folder store does not follow; remove it")
