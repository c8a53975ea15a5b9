"""A complaint about a filter's text: what is wrong, the text with a caret under the place, and what to do.

Every error of the language is made here, so that all of them look alike. What is wrong is found by the lexer, the
parser and `fields`.
"""

from __future__ import annotations

from bucketmq.errors import Invalid

_BEFORE_MAX, _AFTER_MAX = 70, 40
"""How much of a long line is shown on either side of the caret."""


def complaint(text: str, index: int, what: str, hint: str) -> Invalid:
    """The error to raise for the character at `index`, which may be one past the end."""
    line_start = text.rfind("\n", 0, index) + 1
    line_end = text.find("\n", index)
    line = text[line_start:] if line_end < 0 else text[line_start:line_end]
    column = index - line_start
    where = f"column {column + 1}"
    if "\n" in text:
        where = f"line {text.count(chr(10), 0, line_start) + 1}, {where}"
    shown, caret = _window(line, column)
    return Invalid(f"filter, {where}: {what}\n  {shown}\n  {' ' * caret}^\n{hint}")


def clip(text: str, chars_max: int = 40) -> str:
    """A text short enough to be part of a sentence."""
    return text if len(text) <= chars_max else text[: chars_max - 3] + "..."


def _window(line: str, column: int) -> tuple[str, int]:
    first = max(0, column - _BEFORE_MAX)
    last = min(len(line), column + _AFTER_MAX)
    head = "..." if first else ""
    tail = "..." if last < len(line) else ""
    # One place for each character, or the caret would stand elsewhere.
    visible = "".join(c if c.isprintable() else " " for c in line[first:last])
    return head + visible + tail, column - first + len(head)
