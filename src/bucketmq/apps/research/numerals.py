"""Numbers that a text says by itself: in digits of any script, English words, Roman numerals, or in disguise. Pure.

What is not a number can be refused here ("that one"); its writer then says it otherwise. Words of other languages are
not known, but for their digits.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

_UP_TO_TWELVE = "zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
_TEENS = "(?:thir|four|fif|six|seven|eigh|nine|ump)teen"
_TENS = "(?:twen|thir|for|fif|six|seven|eigh|nine)"
_POWERS = "hundred|thousand|(?:m|b|tr|quadr)illion"
_PARTS = "third|fourth|fifth|sixth|seventh|eighth|ninth|tenth|eleventh|twelfth|quarter"
_TIMES = "doubl|trebl|tripl|quadrupl|quintupl|sextupl|halv"
WORDS = re.compile(
    rf"\b(?:(?:(?:{_UP_TO_TWELVE}|{_TEENS}|{_TENS}ty|{_POWERS})(?:fold|s)?"
    rf"|(?:{_PARTS}|{_TEENS}th|{_TENS}tieth|(?:{_POWERS})th|dozen|couple|pair)s?"
    rf"|(?:{_TIMES})(?:e|es|ed|ing)|half|nil|nought|once|twice|thrice|single|orders? of magnitude))\b",
    re.IGNORECASE,
)
_ROMAN = re.compile(r"\b(?=[IVX]{2})X{0,3}(?:IX|IV|V?I{0,3})\b")
_HIDDEN = re.compile(r"[^\W\d_]\?[^\W\d_]")
"""A letter that a page must not have, as it was replaced in a word."""
_ALIKE = frozenset(("LATIN", "CYRILLIC", "GREEK", "ARMENIAN", "CHEROKEE"))
"""Scripts with letters that look the same."""
_HARMLESS = "°©®"


def numbers_in(text: str) -> Iterator[str]:
    """What is a number in a text, or may be one in disguise; the first of each sort."""
    digits = "".join(each if unicodedata.numeric(each, None) is not None else " " for each in text).split()
    if digits:
        yield digits[0]
    plain = "".join(each for each in unicodedata.normalize("NFKD", text.replace("µ", "u")) if not _is_mark(each))
    for pattern in (WORDS, _ROMAN, _HIDDEN):
        found = pattern.search(plain)
        if found:
            yield found[0]
    yield from (each for each in text if each not in _HARMLESS and unicodedata.category(each) in _DISGUISES)
    yield from (word for word in re.findall(r"\w+", plain) if len(_scripts(word)) > 1)


_DISGUISES = frozenset(("Cf", "Co", "Cn", "Cs", "So"))
"""What cannot be seen, and pictures."""


def _is_mark(each: str) -> bool:
    return unicodedata.category(each) == "Mn"


def _scripts(word: str) -> frozenset[str]:
    return _ALIKE.intersection(unicodedata.name(each, "").partition(" ")[0] for each in word if each.isalpha())
