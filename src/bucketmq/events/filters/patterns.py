r"""LIKE and REGEXP: from a pattern to a test of texts. The only module of the bus that knows RE2.

RE2 takes time in proportion to the text whatever the pattern, and refuses what it could not do so. `REGEXP` finds its
pattern anywhere in the text. `LIKE` covers the whole text: `%` is any number of characters, `_` is one, and a backslash
makes the next character an ordinary one.

Patterns that only ask how a text begins or ends, as most do, are answered by comparing.
"""

from __future__ import annotations

import re
from collections.abc import Callable

import re2  # type: ignore[import-untyped]

from bucketmq.errors import Invalid

Test = Callable[[str], bool]

MEMORY_BYTES_MAX = 8 << 20
"""For one pattern, compiled and running."""

_LONE_SURROGATE = re.compile("[\ud800-\udfff]")
_PLAIN = re.compile(r"(?P<start>\^|\\A)?(?P<literal>(?:[^\\.+*?()|\[\]{}^$]|\\[^\w\s])*)(?P<end>\$|\\z)?\Z", re.ASCII)
_BEGINNING = re.compile(r"(?:\^|\\A)((?:[^\\.+*?()|\[\]{}^$]|\\[^\w\s])*)", re.ASCII)
_UNIT = re.compile(r"\\?(.)", re.DOTALL)
"""One character of a literal, perhaps after a backslash."""
_REPEATED = ("*", "?", "{")


def regexp(pattern: str) -> Test:
    """Raise `Invalid` with RE2's reason for what RE2 does not take."""
    search = _search(pattern)
    plain = _PLAIN.match(pattern)
    if plain is None:
        return search
    literal = "".join(_UNIT.findall(plain["literal"]))
    match (plain["start"] is not None, plain["end"] is not None):
        case (True, True):
            return lambda text: text == literal
        case (True, False):
            return lambda text: text.startswith(literal)
        case (False, True):
            return lambda text: text.endswith(literal)
        case _:
            return lambda text: literal in text


def like(pattern: str) -> Test:
    parts = _like_parts(pattern)
    match parts:
        case []:
            return lambda text: text == ""
        case ["%"]:
            return lambda text: True
        case [(str(literal),)]:
            return lambda text: text == literal
        case [(str(literal),), "%"]:
            return lambda text: text.startswith(literal)
        case ["%", (str(literal),)]:
            return lambda text: text.endswith(literal)
        case ["%", (str(literal),), "%"]:
            return lambda text: literal in text
    wild = {"%": ".*", "_": "."}
    body = "".join(wild[part] if isinstance(part, str) else re2.escape(part[0]) for part in parts)
    return _search(rf"(?s)\A{body}\z")


def regexp_prefix(pattern: str) -> str:
    """What every text begins with in which the pattern is found. Empty when that cannot be told."""
    found = _BEGINNING.match(pattern)
    if found is None or "|" in pattern:  # `^a|b`: the anchor may belong to one branch only
        return ""
    units = _UNIT.findall(found[1])
    if pattern.startswith(_REPEATED, found.end()):
        units = units[:-1]  # `ab*` need not have the b
    return "".join(units)


def like_prefix(pattern: str) -> str:
    """What every text begins with that is like the pattern."""
    match _like_parts(pattern):
        case [(str(literal),), *_]:
            return literal
        case _:
            return ""


def _like_parts(pattern: str) -> list[str | tuple[str]]:
    """Wildcards as texts, with `%%` as one, and what lies between them as tuples of one."""
    parts: list[str | tuple[str]] = []
    index = 0
    while index < len(pattern):
        c = pattern[index]
        if c in "%_":
            if c == "_" or not parts or parts[-1] != "%":
                parts.append(c)
        else:
            if c == "\\" and index + 1 < len(pattern):
                index += 1
                c = pattern[index]
            if parts and isinstance(parts[-1], tuple):
                parts[-1] = (parts[-1][0] + c,)
            else:
                parts.append((c,))
        index += 1
    return parts


def _search(pattern: str) -> Test:
    options = re2.Options()
    options.max_mem = MEMORY_BYTES_MAX
    options.log_errors = False
    options.never_capture = True  # nobody asks what a group held, and without groups the search is quicker
    try:
        compiled = re2.compile(pattern.encode(), options)
    except re2.error as error:
        reason = error.args[0] if error.args else b"it cannot be compiled"
        raise Invalid(reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)) from None
    found = compiled.search

    def search(text: str) -> bool:
        try:
            data = text.encode()
        except UnicodeEncodeError:
            # Half a surrogate pair is not a character in UTF-8; it counts as one that no pattern names.
            data = _LONE_SURROGATE.sub("\ufffd", text).encode()
        return found(data) is not None

    return search
