"""The terms of a text, for BM25: words in lower case without their endings. The same for passages and queries. Pure.

Words of English are stemmed; others stay as they are. Chinese, Japanese and Korean have no spaces: their characters are
taken in pairs.
"""

from __future__ import annotations

import functools
import re
import threading
import unicodedata
from collections import Counter
from collections.abc import Iterator
from typing import Any

_WORD = re.compile(r"[^\W_]+")
_CJK = re.compile(r"[\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff]+")
TERM_CHARACTERS_MAX = 64
"""A longer word is noise: encoded bytes, or a line without spaces."""

_COMMON = """
a about after all also am an and any are as at be because been before being between both but by can could did do does
down for from had has have he her here him his how i if in into is it its just me more most my no nor not of off on or
our out over own same she should so some such than that the their them then there these they this those through to too
under until up very was we were what when where which while who whom why will with would you your
"""

_local = threading.local()


def terms_of(text: str) -> list[str]:
    """The terms of a text, in order."""
    return [term for term, _, _ in spans_of(text)]


def asked_for(query: str) -> list[str]:
    """The terms of a query that tell texts apart, each once: words that every text has only if there are no others."""
    found = dict.fromkeys(terms_of(query))
    return [term for term in found if term not in _common()] or list(found)


def counted(text: str) -> dict[str, int]:
    """How often each term is in a text."""
    return dict(Counter(terms_of(text)))


def spans_of(text: str) -> Iterator[tuple[str, int, int]]:
    """The terms of a text, each with where its word begins and ends."""
    for found in _WORD.finditer(text):
        word = unicodedata.normalize("NFKC", found[0]).casefold()
        if len(word) > TERM_CHARACTERS_MAX:
            continue
        if word.isascii():
            yield _stemmer().stemWord(word), found.start(), found.end()
        elif _CJK.search(word):
            yield from _pairs(word, found.start(), found.end())
        else:
            yield word, found.start(), found.end()


def _pairs(word: str, start: int, end: int) -> Iterator[tuple[str, int, int]]:
    if len(word) != end - start or len(word) == 1:  # its normal form has other places
        yield word, start, end
        return
    for at in range(len(word) - 1):
        yield word[at : at + 2], start + at, start + at + 2


@functools.cache
def _common() -> frozenset[str]:
    return frozenset(terms_of(_COMMON))


def _stemmer() -> Any:
    """Each thread has its own: it is not safe to share one."""
    if not hasattr(_local, "stemmer"):
        import Stemmer

        _local.stemmer = Stemmer.Stemmer("english")
    return _local.stemmer
