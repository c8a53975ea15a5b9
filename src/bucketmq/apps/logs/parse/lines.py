"""What every format becomes: lines. And what their times and levels can look like."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

TEXT_CHARS_MAX = 8_192
"""So much of a line is looked at; one giant line costs no more than this."""

EARLIEST = 1e8
"""March 1973. An earlier time comes from a clock that was not set, and does not say when the line was written."""

LEVELS = ("", "trace", "debug", "info", "notice", "warning", "error", "critical")
"""From the least to the most severe; empty is unknown."""

_NAMES = {
    **{name: name for name in LEVELS if name},
    "finest": "trace",
    "finer": "trace",
    "verbose": "debug",
    "dbg": "debug",
    "fine": "debug",
    "d": "debug",
    "v": "trace",
    "i": "info",
    "information": "info",
    "informational": "info",
    "w": "warning",
    "warn": "warning",
    "e": "error",
    "err": "error",
    "severe": "error",
    "failure": "error",
    "f": "critical",
    "fatal": "critical",
    "crit": "critical",
    "alert": "critical",
    "emerg": "critical",
    "emergency": "critical",
    "panic": "critical",
}
SYSLOG = ("critical", "critical", "critical", "error", "warning", "notice", "info", "debug")
"""The severities 0 to 7 of syslog."""


class Line(NamedTuple):
    """One entry of a log; several lines of the file, if it has a stack trace."""

    at: float | None
    """Seconds since 1970, as the line says; None if it does not."""
    level: str
    text: str
    key: str = ""
    """What it belongs to: a request, a session; empty if nothing says so."""


def level_of(name: object) -> str:
    """A level by any of its names, or by the number of OpenTelemetry or Bunyan."""
    if isinstance(name, str):
        return _NAMES.get(name.strip().lower(), "")
    if isinstance(name, int) and not isinstance(name, bool):
        return level_of_number(name if name <= 24 else name // 10 * 4 - 3)
    return ""


def level_of_number(severity: int) -> str:
    """OpenTelemetry's severity number: 1 to 24, four for each level."""
    return ("", "trace", "debug", "info", "warning", "error", "critical")[min(max((severity + 3) // 4, 0), 6)]


WORD = re.compile(
    r"\b(TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|ERR|SEVERE|CRITICAL|CRIT|FATAL|EMERG|PANIC)\b|"
    r"[\[<(](trace|debug|info|notice|warn|warning|error|crit|alert|emerg)[\])>]|"
    r"(?:^|[\s:])(debug|info|notice|warn|warning|error|fatal|critical|panic)(?=:|\t)"
)
"""A level that a line names near its beginning."""
LEVEL_WITHIN_CHARS = 80


def level_in(text: str) -> str:
    """The level that a text names near its beginning; empty if it names none."""
    found = WORD.search(text, 0, LEVEL_WITHIN_CHARS)
    return "" if found is None else level_of(found[1] or found[2] or found[3])


_NAMED = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTHS = {name: number for number, name in enumerate(_NAMED, 1)}

STAMP = re.compile(
    r"\[?(?:"
    r"(?P<y>\d{4})[-/.](?P<mo>\d{1,2})[-/.](?P<d>\d{1,2})[T _-](?P<h>\d{1,2})[:.](?P<mi>\d{2})(?:[:.](?P<s>\d{2})"
    r"(?P<f>[.,]\d{1,9})?)?\s?(?P<z>Z|[+-]\d{2}:?\d{2})?"
    r"|(?P<y2>\d{2})/(?P<mo2>\d{2})/(?P<d2>\d{2}) (?P<h2>\d{2}):(?P<mi2>\d{2}):(?P<s2>\d{2})(?P<f2>[.,]\d{1,9})?"
    r"|(?P<mo3>\d{2})-(?P<d3>\d{2}) (?P<h3>\d{2}):(?P<mi3>\d{2}):(?P<s3>\d{2})(?P<f3>[.,]\d{1,9})?"
    r"|(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun),? )?(?P<mo4>[A-Z][a-z]{2}) +(?P<d4>\d{1,2}),? (?P<h4>\d{2}):(?P<mi4>\d{2}):"
    r"(?P<s4>\d{2})(?P<f4>[.,]\d{1,9})?(?: (?P<y4>\d{4}))?"
    r"|(?P<e>1\d{9})(?P<ef>\.\d{1,9}|\d{3})?"
    r")\]?(?=\s|$|:)\s*:?\s*"
)
"""A time at the beginning of a line. Bounded everywhere, so that no line makes it slow."""


def stamped(text: str, year: datetime) -> tuple[float, str] | None:
    """The time a line begins with, and the rest of it; `year` is when the object came, for times without a year."""
    found = STAMP.match(text)
    if found is None:
        return None
    try:
        at = _seconds(found, year)
    except ValueError:
        return None
    return (at, text[found.end() :]) if at > EARLIEST else None


def _seconds(found: re.Match[str], near: datetime) -> float:
    get = found.group
    if get("e"):
        return float(get("e")) + (float(get("ef")) if (get("ef") or "").startswith(".") else int(get("ef") or 0) / 1000)
    if get("y"):
        numbers = [int(get(name) or 0) for name in ("mo", "d", "h", "mi", "s")]
        return _utc(int(get("y")), numbers).timestamp() + _fraction(get("f")) - _offset(get("z"))
    if get("y2"):
        numbers = [int(get(name)) for name in ("mo2", "d2", "h2", "mi2", "s2")]
        return _utc(2000 + int(get("y2")), numbers).timestamp() + _fraction(get("f2"))
    if get("mo3"):
        numbers = [int(get(name)) for name in ("mo3", "d3", "h3", "mi3", "s3")]
        return _without_year(numbers, near) + _fraction(get("f3"))
    month = _MONTHS.get(get("mo4").lower())
    if month is None:
        raise ValueError("not a month")
    numbers = [month, *(int(get(name)) for name in ("d4", "h4", "mi4", "s4"))]
    if get("y4"):
        return _utc(int(get("y4")), numbers).timestamp() + _fraction(get("f4"))
    return _without_year(numbers, near) + _fraction(get("f4"))


def _utc(year: int, numbers: list[int]) -> datetime:
    month, day, hour, minute, second = numbers
    return datetime(year, month, day, hour, minute, second, tzinfo=UTC)


def _without_year(numbers: list[int], near: datetime) -> float:
    """The latest such time that is not after tomorrow: a line of 31 December may come on 1 January."""
    for year in (near.year + 1, near.year, near.year - 1):
        try:
            at = _utc(year, numbers)
        except ValueError:  # 29 February
            continue
        if at <= near + timedelta(days=1):
            return at.timestamp()
    raise ValueError("not a date")


def _fraction(text: str | None) -> float:
    return float("0." + text[1:]) if text else 0.0


def _offset(zone: str | None) -> float:
    if not zone or zone == "Z":
        return 0.0
    digits = zone[1:].replace(":", "")
    seconds = int(digits[:2]) * 3600 + int(digits[2:]) * 60
    return float(-seconds if zone[0] == "-" else seconds)


def time_of(value: object) -> float | None:
    """A time as structured logs have it: a text, or a number of seconds, milliseconds, micro- or nanoseconds."""
    if isinstance(value, str):
        try:
            at = datetime.fromisoformat(value)
        except ValueError:
            return _number_of(value)
        seconds = (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
        return seconds if seconds > EARLIEST else None
    if isinstance(value, int | float) and not isinstance(value, bool):
        return _scaled(float(value))
    return None


_LATEST = datetime(2000, 1, 1, tzinfo=UTC)
"""For times without a year in structured logs, which say nothing of when they were: better none than a wrong one."""


def _number_of(text: str) -> float | None:
    found = None if text.isdigit() else stamped(text, _LATEST)
    if found is not None:
        return found[0] if found[0] > _LATEST.timestamp() else None
    try:
        return _scaled(float(text))
    except ValueError:
        return None


def _scaled(number: float) -> float | None:
    if not EARLIEST < number < 1e20:
        return None
    while number > 1e11:
        number /= 1000.0
    return number
