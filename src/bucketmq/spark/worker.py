"""A process that Spark made for our tasks, settled for its work. What a task does belongs elsewhere."""

from __future__ import annotations

import ctypes
import functools
import gc
import os
import signal
import sys
from typing import Any

from bucketmq.pipeline.resources import of_process

MMAP_BYTES, TRIM_BYTES = 32 << 20, 64 << 20
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # <malloc.h>

PYSPARK_DAEMON = "pyspark.daemon"


def settle_in() -> None:
    """To be called when a task begins; does something the first time in a process, and again when more was imported
    since, such as what a model needs that the task before has loaded.

    - The garbage collector overlooks what was imported. PySpark collects after every task, and going through all
      modules again is most of what a small task costs.
    - Memory that was let go is kept for the next objects, up to 64 MiB, where the C library is glibc. Otherwise it
      goes back to the system and comes again in pages of zeros, which is an eighth of what reading costs.
    """
    _overlook(len(sys.modules))
    _keep_memory()


@functools.cache
def _overlook(modules: int) -> None:
    gc.collect()
    gc.freeze()


@functools.cache
def _keep_memory() -> None:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):
        return
    mallopt(_MMAP_THRESHOLD, MMAP_BYTES)
    mallopt(_TRIM_THRESHOLD, TRIM_BYTES)


@functools.cache
def close_at_the_end() -> None:
    """Close what stages use when this process ends. PySpark's daemon ends its workers by `os._exit` or by a signal, and
    neither runs what was registered with `atexit`."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    if getattr(main, "name", None) == PYSPARK_DAEMON:
        close_before_exit()


def close_before_exit() -> None:
    """Close what stages use before `os._exit`, and on the signals that would end the process."""
    leave = os._exit

    def close_and_leave(code: int) -> Any:
        try:
            of_process().close()
        finally:
            leave(code)

    os._exit = close_and_leave  # type: ignore[assignment]
    for number in (signal.SIGHUP, signal.SIGTERM):
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, lambda told, _: close_and_leave(128 + told))
