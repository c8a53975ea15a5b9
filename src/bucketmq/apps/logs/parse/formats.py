"""Beginnings that common programs give their lines: containers, klog, logcat, access logs, logfmt. Pure.

Expressions are bounded everywhere, so that no line makes them slow.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple

from bucketmq.apps.logs.parse.lines import level_of, stamped, time_of

CONTAINER = re.compile(r"(\d{4}-\d{2}-\d{2}T\S{8,30}) (?:stdout|stderr) [FP] ")
"""What Kubernetes puts before each line of a container's output (CRI)."""
KLOG = re.compile(
    r"([IWEF])(\d{2})(\d{2}) (\d{2}:\d{2}:\d{2}(?:\.\d{1,9})?) {1,10}\d{1,10} ([\w./-]{1,100}):\d{1,6}\] "
)
LOGCAT = re.compile(r" {0,10}\d{1,10} {1,10}\d{1,10} ([VDIWEFA]) ")
ACCESS = re.compile(
    r"\S{1,100} \S{1,100} \S{1,100} \[(\d{2})/([A-Z][a-z]{2})/(\d{4}):(\d{2}:\d{2}:\d{2}) ([+-]\d{4})\] "
    r'"[^"]{0,4000}" (\d{3}) '
)
PAIR = re.compile(r'([A-Za-z_@][\w.-]{0,60})=(?:"((?:[^"\\]|\\.){0,8192})"|([^\s"]{0,8192}))(?: +|$)')
_ESCAPED = re.compile(r"\\(.)")


class Head(NamedTuple):
    """What the beginning of a line says, and the rest of it."""

    at: float | None
    level: str
    rest: str


def unwrapped(line: str) -> tuple[float | None, str]:
    """A line of a container's output: when it was written, and what the program wrote. Others as they are."""
    found = CONTAINER.match(line) if line[10:11] == "T" else None
    return (None, line) if found is None else (time_of(found[1]), line[found.end() :])


def head_of(text: str, near: datetime) -> Head | None:
    """Time and level of a line with a beginning of its own; None if it has none of these."""
    if text[:1] in "IWEF" and (klog := KLOG.match(text)) is not None:
        timed = stamped(f"{klog[2]}-{klog[3]} {klog[4]}", near)
        return Head(timed and timed[0], level_of(klog[1]), f"{klog[5]}: {text[klog.end() :]}")
    if '] "' in text[:400] and (access := ACCESS.match(text)) is not None:
        day, month, year, clock, zone, status = access.groups()
        timed = stamped(f"{month} {day} {clock} {year}", near)
        offset = (1 if zone[0] == "+" else -1) * (3600 * int(zone[1:3]) + 60 * int(zone[3:]))
        return Head(timed and timed[0] - offset, "error" if status[0] == "5" else "info", text)
    return None


def logcat(rest: str) -> tuple[str, str] | None:
    """Level and text behind the time of a line of Android."""
    found = LOGCAT.match(rest)
    if found is None:
        return None
    return "critical" if found[1] == "A" else level_of(found[1]), rest[found.end() :]


def logfmt(line: str) -> dict[str, str] | None:
    """The fields of a line that is nothing but `name=value` and `name="several words"`."""
    fields: dict[str, str] = {}
    place = 0
    while place < len(line):
        found = PAIR.match(line, place)
        if found is None:
            return None
        fields[found[1]] = _ESCAPED.sub(r"\1", found[2]) if found[2] is not None else found[3]
        place = found.end()
    return fields if len(fields) > 1 else None
