"""A worker process, settled for its work."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from bucketmq.spark.worker import settle_in

PAGES = """
import gc, resource
{settle}
def work():
    return [bytearray(b"x") * (8 << 20) for _ in range(3)]
work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(10):
    work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before, gc.get_freeze_count())
"""


def pages_and_frozen(settle: str) -> tuple[int, int]:
    code = PAGES.format(settle=settle)
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    pages, frozen = found.stdout.split()
    return int(pages), int(frozen)


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have no such setting")
def test_memory_that_was_let_go_is_kept_and_modules_are_overlooked() -> None:
    left, none_frozen = pages_and_frozen("")
    settled, frozen = pages_and_frozen(f"from {settle_in.__module__} import settle_in; settle_in(); settle_in()")
    assert none_frozen == 0 < frozen
    assert settled * 10 < left


def test_what_a_task_has_imported_is_overlooked_from_the_next_one_on() -> None:
    settle = f"from {settle_in.__module__} import settle_in; settle_in()"
    _, once = pages_and_frozen(settle)
    _, again = pages_and_frozen(f"{settle}; import xml.etree.ElementTree; settle_in()")
    assert again > once
