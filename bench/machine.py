"""What the numbers were measured on, without which they say nothing."""

from __future__ import annotations

import os
import platform
from pathlib import Path

import msgspec

import bucketmq


class Machine(msgspec.Struct, frozen=True):
    cores: int
    processor: str
    memory_bytes: int
    system: str
    python: str
    bucketmq: str
    load: tuple[float, ...]
    """The load average before the run. A busy machine makes every number worse."""


def this_machine() -> Machine:
    return Machine(
        cores=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        processor=_processor(),
        memory_bytes=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        system=f"{platform.system()} {platform.release()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        bucketmq=bucketmq.__version__,
        load=tuple(round(each, 2) for each in os.getloadavg()),
    )


def load_now() -> float:
    return round(os.getloadavg()[0], 2)


def resident_bytes() -> int:
    """The memory this process has in use now. On systems without /proc, the most it ever had."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        import resource

        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return peak if platform.system() == "Darwin" else peak * 1024
    return pages * os.sysconf("SC_PAGE_SIZE")


def peak_bytes() -> int:
    """The most memory this process ever had in use."""
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return resident_bytes()
    # Not from getrusage, which on Linux remembers what the process was a copy of before it ran this program.
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) * 1024


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "")
