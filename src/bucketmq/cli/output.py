"""Printing: data to standard output, everything else to standard error."""

from __future__ import annotations

import base64
import sys
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from bucketmq.deliveries import DeliveryData, PeekedMessage
from bucketmq.errors import BucketMQError, Invalid

PIPE_COLUMNS = 500
"""The width of tables that nobody sees as they are printed: wide enough that nothing is cut."""


def emit(row: object) -> None:
    """One JSON value on one line of standard output."""
    sys.stdout.write(msgspec.json.encode(row).decode() + "\n")


def emit_text(text: str) -> None:
    """One line of plain text on standard output."""
    sys.stdout.write(text + "\n")


def flush() -> None:
    """Hand over what was printed, so that whatever is done next is done after it was seen."""
    sys.stdout.flush()


def say(text: str) -> None:
    """A line for people, on standard error."""
    errors().print(Text(text))


def screen() -> Console:
    """Standard output for tables. Colours and width are found out by rich, which honours NO_COLOR."""
    return Console(soft_wrap=False, highlight=False, **_width(sys.stdout.isatty()))


def errors() -> Console:
    return Console(stderr=True, highlight=False, **_width(sys.stderr.isatty()))


def _width(terminal: bool) -> dict[str, Any]:
    return {} if terminal else {"width": PIPE_COLUMNS}


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """A table on standard output. Columns whose name begins with '#' are numbers."""
    made = Table(box=SIMPLE_HEAD, title=title, title_justify="left", pad_edge=False)
    for name in columns:
        made.add_column(name.lstrip("#"), justify="right" if name.startswith("#") else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text("" if cell is None else str(cell)) for cell in row))
    screen().print(made)


def ask(question: str, *, yes: bool) -> bool:
    """Whether to go ahead: asked on a terminal, taken from `--yes` elsewhere."""
    if yes:
        return True
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        raise Invalid(f"{question} Nobody is there to ask: add --yes to go ahead, or --dry-run where there is one")
    sys.stderr.write(f"{question} [y/N] ")
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


def message_row(message: DeliveryData | PeekedMessage) -> dict[str, Any]:
    """A message as JSON: `body`, or `body_base64` for bytes, or `body_at` for a large one that was not fetched."""
    row: dict[str, Any] = {
        "id": message.id,
        "shard": message.shard,
        "offset": message.offset,
        "sent_at": message.sent_at.isoformat(),
    }
    if message.key is not None:
        row["key"] = message.key
    if message.headers:
        row["headers"] = dict(message.headers)
    return row | _body(message)


def _body(message: DeliveryData | PeekedMessage) -> dict[str, Any]:
    at = message.message.body_at
    if at is not None and isinstance(message, PeekedMessage):
        return {"body_at": at.key, "body_bytes": at.size_bytes}
    try:
        body = message.body
    except BucketMQError as error:
        return {"body_error": str(error)}
    if isinstance(body, bytes):
        return {"body_base64": base64.b64encode(body).decode()}
    return {"body": body}


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
