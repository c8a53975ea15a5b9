"""A process that Spark made for our tasks, settled for its work. What a task does belongs elsewhere."""

from __future__ import annotations

import ctypes
import functools
import gc

MMAP_BYTES, TRIM_BYTES = 32 << 20, 64 << 20
_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # <malloc.h>


@functools.cache
def settle_in() -> None:
    """To be called when a task begins; does something the first time in a process.

    - The garbage collector overlooks what was imported. PySpark collects after every task, and going through all
      modules again is most of what a small task costs.
    - Memory that was let go is kept for the next objects, up to 64 MiB, where the C library is glibc. Otherwise it
      goes back to the system and comes again in pages of zeros, which is an eighth of what reading costs.
    """
    gc.collect()
    gc.freeze()
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, TypeError, AttributeError):
        return
    mallopt(_MMAP_THRESHOLD, MMAP_BYTES)
    mallopt(_TRIM_THRESHOLD, TRIM_BYTES)
