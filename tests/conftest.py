"""What holds for every test.

- One that not even its timeout can end takes its process with it, and says where each thread was.
- Writes to folders are not forced to the disk, of which a test can see nothing and which takes longer than the rest of
  many of them. The tests of stores do force theirs.
- Whatever needs the Spark session runs in one process of `make test`.
- The garbage collector leaves alone what collecting the tests has left: ten thousand tests are many objects to visit.
"""

from __future__ import annotations

import faulthandler
import gc
import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from bucketmq.bucket import folder

STORES = Path(__file__).parent / "stores"

GRACE_SECONDS = 60  # after the timeout: its exception may be on the way through a slow clean-up

_stderr = pytest.StashKey[int]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_stderr] = os.dup(2)  # while a test runs, 2 is captured


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    marker = item.get_closest_marker("timeout")
    seconds = float(marker.args[0] if marker and marker.args else item.config.getini("timeout"))
    faulthandler.dump_traceback_later(seconds + GRACE_SECONDS, exit=True, file=item.config.stash[_stderr])
    try:
        with nullcontext() if item.path.is_relative_to(STORES) else _not_forced():
            return (yield)
    finally:
        faulthandler.cancel_dump_traceback_later()


@contextmanager
def _not_forced() -> Iterator[None]:
    """`fstat` instead: it fails for what is not a descriptor, too."""
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(os, "fsync", os.fstat)
        patches.setattr(folder, "_FDATASYNC", os.fstat)
        yield


@pytest.hookimpl(tryfirst=True)  # before xdist reads the marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever needs the session runs in one process of `make test`, so that there is one JVM at a time."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group("spark"))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()


ID_CHARS_MAX = 60


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Bytes are called by the name of their argument: archives and documents are made with the time of day in them, and
    processes that collect the same tests must give them the same names."""
    if isinstance(val, bytes):
        return None if len(val) <= ID_CHARS_MAX and all(32 <= each < 127 for each in val) else argname
    if isinstance(val, str) and len(val) > 4 * ID_CHARS_MAX:
        return f"{val[:ID_CHARS_MAX]}..."
    return None
