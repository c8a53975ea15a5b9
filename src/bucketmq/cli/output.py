"""Printing: data to standard output, everything else to standard error.

Whatever is printed passes `printable` here, as text, in tables, as JSON and in log lines: bodies, keys, headers and
errors come from anybody who may send, and a terminal obeys the control characters in them.
"""

from __future__ import annotations

import logging
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from bucketmq.errors import Invalid

PIPE_COLUMNS = 500
"""The width of tables that go to a pipe or a file: wide enough that nothing is cut."""

_CONTROL = "\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff"
"""C0 but for tabs and line ends, DEL, C1, marks and overrides of the direction of text, line separators, surrogates."""

_UNPRINTABLE = re.compile(f"[\n{_CONTROL}]")
_UNPRINTABLE_BUT_LINES = re.compile(f"[{_CONTROL}]")


def printable(text: str, *, lines: bool = False) -> str:
    """The text with control characters as JSON writes them: an escape sequence is shown and not obeyed.

    Line ends too, so that no text can pass for a line of ours, unless `lines`.
    """
    return (_UNPRINTABLE_BUT_LINES if lines else _UNPRINTABLE).sub(_escaped, text)


def _escaped(found: re.Match[str]) -> str:
    return {"\n": "\\n", "\r": "\\r"}.get(found[0], f"\\u{ord(found[0]):04x}")


def emit(row: object) -> None:
    """One JSON value on one line of standard output. What JSON leaves as it is and a terminal obeys is escaped too."""
    sys.stdout.write(printable(msgspec.json.encode(row).decode()) + "\n")


def emit_all(rows: Iterable[object]) -> None:
    """A line of JSON for each."""
    for row in rows:
        emit(row)


def emit_text(text: str) -> None:
    """One line of plain text on standard output."""
    sys.stdout.write(printable(text) + "\n")


def emit_bytes(body: bytes) -> None:
    """Bytes as they are, to a file or a pipe; on a terminal as text, or not at all."""
    flush()
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(body)
        sys.stdout.buffer.flush()
        return
    try:
        text = body.decode()
    except UnicodeDecodeError:
        raise Invalid("these bytes are not text; send them to a file or a program: > FILE, or --output FILE") from None
    sys.stdout.write(printable(text, lines=True))


def flush() -> None:
    """Hand over what was printed, so that whatever is done next is done after it was seen."""
    sys.stdout.flush()


def say(text: str) -> None:
    """A line for people, on standard error."""
    errors().print(Text(printable(text)))


def answer(row: object, text: str, *, as_json: bool) -> None:
    """What came of a verb: one JSON value on standard output, or a line for people on standard error."""
    if as_json:
        emit(row)
    else:
        say(text)


def say_lines(text: str) -> None:
    """Several lines for people, such as a traceback, on standard error."""
    sys.stderr.write(printable(text.rstrip("\n"), lines=True) + "\n")


class _Console(Console):
    """Rich with every text made printable. What rich itself sends to move the cursor is marked as such, and passes."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else Segment(printable(segment.text, lines=True), segment.style)


def screen() -> Console:
    """Standard output for tables. Rich finds out colours and width, and honours NO_COLOR."""
    return _Console(soft_wrap=False, highlight=False, **_width(sys.stdout.isatty()))


def errors() -> Console:
    return _Console(stderr=True, highlight=False, **_width(sys.stderr.isatty()))


def _width(terminal: bool) -> dict[str, Any]:
    return {} if terminal else {"width": PIPE_COLUMNS}


class LogLines(logging.Formatter):
    """A line for each record, with the lines of its traceback below."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        return printable(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        return printable(super().format(record), lines=True)


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """A table on standard output. Columns whose name begins with '#' are numbers."""
    screen().print(made_table(columns, rows, title=title))


def made_table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> Table:
    """The same, not printed yet."""
    made = Table(box=SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for name in columns:
        made.add_column(name.lstrip("#"), justify="right" if name.startswith("#") else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text("" if cell is None else printable(str(cell))) for cell in row))
    return made


DIAGNOSES = {"ok": "green", "warn": "yellow", "lost": "yellow", "FAIL": "bold red"}
"""What a diagnosis can say, and its style."""


def diagnose(status: str, text: str, fix: str = "") -> None:
    """A line of `doctor` on standard output, and one that says what to do."""
    console = screen()
    console.print(f"{status:<6}", style=DIAGNOSES[status], end="", soft_wrap=True)
    console.print(printable(text), markup=False, soft_wrap=True)
    if fix:
        console.print(printable(f"      fix: {fix}"), markup=False, soft_wrap=True)


def ask(question: str, *, yes: bool) -> bool:
    """Whether to go ahead: asked on a terminal, taken from `--yes` elsewhere."""
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Invalid(f"{question} Nobody is there to ask: add --yes to go ahead, or --dry-run where there is one")
    sys.stderr.write(f"{printable(question)} [y/N] ")
    sys.stderr.flush()
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def plural(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def age(seconds: float | None) -> str:
    """A length of time as people say it."""
    if seconds is None:
        return ""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"


def body_text(row: dict[str, Any], characters: int = 0) -> str:
    """A body for people: JSON on one line, cut after so many characters (0: never)."""
    if "body" in row:
        text = row["body"] if isinstance(row["body"], str) else msgspec.json.encode(row["body"]).decode()
    elif "body_base64" in row:
        text = f"(bytes) {row['body_base64']}"
    elif "body_at" in row:
        text = f"({row['body_bytes']:,} bytes in {row['body_at']})"
    else:
        text = f"(no body: {row['body_error']})"
    return text[: characters - 1] + "…" if characters and len(text) > characters else text
