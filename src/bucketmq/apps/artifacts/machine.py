"""Releases as folders of a machine: files written and checked, links and documents replaced in one step."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

from bucketmq.apps.artifacts.manifest import Manifest
from bucketmq.apps.artifacts.verify import Arrived


@contextlib.contextmanager
def alone(path: Path) -> Iterator[None]:
    """Wait until no other process, and no other thread, is in here with the same file."""
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def place(folder: Path, arrived: Arrived) -> None:
    """Write a verified file. Its path was checked; what it goes into is a folder of ours that nobody else writes."""
    target = folder / arrived.file.path
    target.parent.mkdir(parents=True, exist_ok=True)
    mode = 0o755 if arrived.file.executable else 0o644
    fd = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, mode)
    with os.fdopen(fd, "wb", buffering=0) as file:
        view = memoryview(arrived.body)
        while view:
            view = view[file.write(view) :]
        os.fsync(file.fileno())


def is_whole(folder: Path, manifest: Manifest) -> bool:
    """Whether a release that was fetched before still is what was signed."""
    for each in manifest.files:
        path = folder / each.path
        if path.is_symlink() or not path.is_file() or path.stat().st_size != each.size_bytes:
            return False
        with path.open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != each.sha256:
                return False
    return True


def point(link: Path, folder: Path) -> None:
    """Replace a link in one step."""
    made = link.with_name(f".{link.name}.new")
    with contextlib.suppress(FileNotFoundError):
        made.unlink()
    made.symlink_to(os.path.relpath(folder, link.parent))
    made.replace(link)
    sync(link.parent)


def write(path: Path, body: bytes) -> None:
    """Replace a file in one step, and have it on the disk before anything else is done."""
    made = path.with_name(f".{path.name}.{os.getpid()}.new")
    with made.open("wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    made.replace(path)
    sync(path.parent)


def sync(folder: Path) -> None:
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
