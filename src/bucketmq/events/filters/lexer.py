r"""From characters to tokens, one at a time, so that the first mistake in the text is the one that is reported.

What a row of tokens means belongs to `parser`. A character that begins no token becomes an `odd` token: the parser
knows what was expected in its place.
"""

from __future__ import annotations

import math
import re
from typing import Literal

import msgspec

from bucketmq.events.filters.complaint import clip, complaint
from bucketmq.events.filters.grammar import NUMBER_CHARS_MAX

KEYWORDS = frozenset({"WHERE", "AND", "OR", "NOT", "IN", "LIKE", "REGEXP", "IS", "NULL", "TRUE", "FALSE"})

Sort = Literal["word", "name", "string", "number", "symbol", "odd", "end"]
"""`word` is bare, so perhaps a keyword; `name` stood in backticks."""

_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"[^\W\d][\w-]*")
_NUMBER = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_NUMBER_GOES_ON = re.compile(r"[\w.]+")
_SYMBOL = re.compile(r"==|!=|<>|<=|>=|=~|[=<>(),.\[\]]")
_ODD = re.compile(r"&&|\|\||::|.", re.DOTALL)
_ESCAPES = {"\\": "\\", '"': '"', "'": "'", "n": "\n", "r": "\r", "t": "\t"}


class Token(msgspec.Struct, frozen=True):
    sort: Sort
    text: str
    """As written; for a `name` without its backticks."""
    start: int
    end: int
    value: str | int | float = ""
    """What a string or a number stands for."""

    @property
    def keyword(self) -> str:
        """The keyword in upper case, or nothing."""
        upper = self.text.upper() if self.sort == "word" else ""
        return upper if upper in KEYWORDS else ""


def token_at(text: str, index: int) -> Token:
    """The first token at or after `index`."""
    space = _SPACE.match(text, index)
    start = space.end() if space else index
    if start == len(text):
        return Token("end", "", start, start)
    first = text[start]
    if first in "\"'":
        return _string(text, start)
    if first == "`":
        return _name(text, start)
    if number := _NUMBER.match(text, start):
        return _number(text, start, number.end())
    if word := _WORD.match(text, start):
        return Token("word", word.group(), start, word.end())
    if symbol := _SYMBOL.match(text, start):
        return Token("symbol", symbol.group(), start, symbol.end())
    odd = _ODD.match(text, start)
    assert odd is not None
    return Token("odd", odd.group(), start, odd.end())


def _string(text: str, start: int) -> Token:
    quote = text[start]
    parts: list[str] = []
    index = start + 1
    while index < len(text):
        c, after = text[index], text[index + 1 : index + 2]
        if c == quote and after != quote:
            return Token("string", text[start : index + 1], start, index + 1, "".join(parts))
        if c == quote:
            parts.append(quote)
            index += 2
        elif c == "\\" and after in _ESCAPES and after:
            parts.append(_ESCAPES[after])
            index += 2
        else:
            parts.append(c)
            index += 1
    hint = f"Close it with {quote}."
    if "\\" + quote in text[start:]:
        hint += f" A backslash before {quote} makes it part of the string; for a backslash at the end write two."
    raise complaint(text, start, "this string has no end", hint)


def _name(text: str, start: int) -> Token:
    parts: list[str] = []
    index = start + 1
    while True:
        end = text.find("`", index)
        if end < 0:
            raise complaint(text, start, "this name has no end", "Close it with a backtick: `Content-Type`.")
        parts.append(text[index:end])
        if text[end + 1 : end + 2] != "`":
            return Token("name", "".join(parts), start, end + 1)
        parts.append("`")
        index = end + 2


def _number(text: str, start: int, end: int) -> Token:
    if more := _NUMBER_GOES_ON.match(text, end):
        what = f"{clip(text[start : more.end()])} is not a number"
        raise complaint(text, start, what, "Write sizes in bytes, such as 1048576, and texts in quotes.")
    written = text[start:end]
    if len(written) > NUMBER_CHARS_MAX:
        what = f"a number of {len(written):,} characters; at most {NUMBER_CHARS_MAX:,} are allowed"
        raise complaint(text, start, what, "Was this meant to be a text? Put it in quotes.")
    value = float(written) if any(c in written for c in ".eE") else int(written)
    if isinstance(value, float) and math.isinf(value):
        raise complaint(text, start, f"{clip(written)} is too large", "Numbers with a fraction reach to about 1.8e308.")
    return Token("number", written, start, end, value)
