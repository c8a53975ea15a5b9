"""Plain text and syslog: a time and a level at the beginning, and stack traces joined to the line they belong to."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime

from bucketmq.apps.logs.parse.formats import head_of, logcat
from bucketmq.apps.logs.parse.lines import SYSLOG, TEXT_CHARS_MAX, Line, level_in, stamped, time_of

PRIORITY = re.compile(r"<(\d{1,3})>")
RFC_5424 = re.compile(r"1 (?P<at>\S{1,40}) (?P<host>\S{1,255}) (?P<app>\S{1,48}) (?P<pid>\S{1,128}) (?P<id>\S{1,32}) ")
STRUCTURED = re.compile(r'(?:-|(?:\[(?:[^\]\\"]|\\.|"(?:[^"\\]|\\.){0,2000}"){0,4000}\])+) ?')
TAG = re.compile(r"(?P<host>\S{1,255}) (?P<tag>[\w./() -]{1,60}?)(?:\[(?P<pid>\d{1,10})\])?: ")

_FOLLOWS = re.compile(r"\s|Caused by:|Traceback \(most recent|\.\.\. \d+ more|Suppressed:|\)|\}|\]")
"""How a line begins that belongs to the one before, where times do not tell."""
_NAMES_ERROR = re.compile(r"[A-Za-z_][\w.$]{0,200}(?:Error|Exception|Exit|Interrupt|Fault)\b")


class Entries:
    """Lines of a file, one after the other, to entries of the log."""

    def __init__(self, near: datetime) -> None:
        self._near = near
        self._timed: bool | None = None
        """Whether entries begin with a time, by the first one: then what does not begin with one belongs to it."""
        self._open: Line | None = None
        self._error = ""
        self._in_trace = False

    def add(self, text: str, at: float | None = None) -> Iterator[Line]:
        """The entry before this line, if it is over. `at` is when the line was written, if it does not say so."""
        if not text.strip():
            return
        found = self._entry(text)
        follows = self._follows(text, found)
        if follows and self._open is not None:
            self._join(text)
            return
        yield from self.end()
        self._open = found._replace(at=at) if found.at is None else found
        self._timed = found.at is not None if self._timed is None else self._timed
        self._in_trace = text.startswith("Traceback (most recent")

    def end(self) -> Iterator[Line]:
        """The entry that was open."""
        if self._open is not None:
            text = f"{self._open.text} | {self._error}" if self._error else self._open.text
            yield self._open._replace(text=text[:TEXT_CHARS_MAX])
        self._open, self._error, self._in_trace = None, "", False

    def _follows(self, text: str, found: Line) -> bool:
        if text[0] == "<" and PRIORITY.match(text):
            return False
        if self._timed:
            return found.at is None
        if self._in_trace and _NAMES_ERROR.match(text):
            return True
        return _FOLLOWS.match(text) is not None

    def _join(self, text: str) -> None:
        """Of a stack trace the name of the error counts; where it was raised differs from release to release."""
        if text.startswith("Traceback (most recent"):
            self._in_trace = True
        elif not text[0].isspace():
            said = text.removeprefix("Caused by: ").strip()
            if _NAMES_ERROR.match(said):
                self._error = said[:500]

    def _entry(self, text: str) -> Line:
        level = ""
        priority = PRIORITY.match(text)
        if priority is not None and int(priority[1]) <= 191:
            level = SYSLOG[int(priority[1]) & 7]
            text = text[priority.end() :]
            modern = RFC_5424.match(text)
            if modern is not None:
                rest = text[modern.end() :]
                data = STRUCTURED.match(rest)
                said = (rest[data.end() :] if data else rest).lstrip("\ufeff")
                app = modern["app"]
                return Line(time_of(modern["at"]), level, said if app == "-" else f"{app}: {said}")
        head = head_of(text, self._near) if not level else None
        if head is not None:
            return Line(head.at, head.level, head.rest[:TEXT_CHARS_MAX])
        timed = stamped(text, self._near)
        at, rest = timed if timed is not None else (None, text)
        if timed is not None and (mobile := logcat(rest)) is not None:
            return Line(at, mobile[0], mobile[1][:TEXT_CHARS_MAX])
        if timed is not None and (tag := TAG.match(rest)) is not None and text[0].isalpha():
            rest = f"{tag['tag']}: {rest[tag.end() :]}"  # syslog of old: what the host is called tells nothing
        return Line(at, level or level_in(rest), rest[:TEXT_CHARS_MAX])
