"""This package as a zip file that Spark sends to its executors (`--py-files`).

Pure Python and the data that lies beside it. What it depends on (msgspec, obstore, pyarrow, ...) has machine code and
cannot travel so: it is installed on the nodes, or travels as an archive of a whole environment.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import msgspec

from bucketmq.errors import Invalid, Unsupported

NAMES = ("bucketmq", "pyspark_bucketmq")

DRIVER_ONLY = (
    "bucketmq/cli",
    "bucketmq/dashboard",
    "bucketmq/server",
    "bucketmq/testing",
)
"""What no executor runs."""

FOR_BROWSERS = "static"
"""The name of folders with what only browsers need."""

MADE_AT = (1980, 1, 1, 0, 0, 0)
"""The same code gives the same bytes, whenever it is packed. It is the oldest time that the format knows."""


class Packaged(msgspec.Struct, frozen=True):
    path: str
    files: int
    size_bytes: int


def package(path: str | Path) -> Packaged:
    """Write the zip file, at once or not at all."""
    target = Path(path)
    if target.suffix != ".zip":
        raise Invalid(f"{target} does not end with .zip, and Spark would not know what it is")
    try:
        number, name = tempfile.mkstemp(dir=target.absolute().parent, prefix=target.name)
    except OSError as error:
        raise Invalid(f"{target} cannot be written: {error.strerror}") from error
    made = Path(name)
    try:
        with os.fdopen(number, "wb") as file, zipfile.ZipFile(file, "w") as packed:
            files = 0
            for inside, source in sorted(_files()):
                packed.writestr(zipfile.ZipInfo(inside, MADE_AT), source.read_bytes(), zipfile.ZIP_DEFLATED)
                files += 1
        made.chmod(0o644)
        made.replace(target)
    except BaseException:
        made.unlink(missing_ok=True)
        raise
    return Packaged(str(target), files, target.stat().st_size)


def package_once(folder: Path) -> Path:
    """The zip file in `folder` under a name that says what is in it, so that sessions of several versions share it."""
    made = Path(package(folder / f"making-{os.getpid()}.zip").path)
    return made.replace(folder / f"bucketmq-{hashlib.sha256(made.read_bytes()).hexdigest()[:16]}.zip")


def _files() -> Iterator[tuple[str, Path]]:
    root = Path(__file__).parents[3]
    if not root.is_dir():
        raise Unsupported(f"bucketmq runs from {root}, which is packed already: use that file")
    for name in NAMES:
        for path in (root / name).rglob("*"):
            inside = path.relative_to(root)
            if path.is_file() and "__pycache__" not in inside.parts and not _left_out(inside):
                yield inside.as_posix(), path


def _left_out(inside: Path) -> bool:
    return FOR_BROWSERS in inside.parts or any(inside.is_relative_to(folder) for folder in DRIVER_ONLY)
