"""A text as the pieces that are judged: one for most, several if it is long, disguised or speaks to its judge. Pure.

The verdict on a post is the worst of its pieces, so padding a bad post out helps little. Here is also decided
what makes a low score worthless (`doubts`): another script or language, too long, a disguise, orders to the judge.
"""

from __future__ import annotations

import re

import msgspec

from bucketmq.apps.moderation.classify import addressed, normalise
from bucketmq.apps.moderation.classify.links import MANY, SHORTENED, SHOWN, links
from bucketmq.apps.moderation.classify.normalise import plain
from bucketmq.apps.moderation.classify.surface import surface

PIECE_CHARS = 120
"""Longer texts are judged in spans of this length, so that one bad sentence among many good ones is seen."""
PIECES_MAX = 128
CHARS_MAX = 8_000

_SUSPICIOUS = (
    normalise.HIDDEN,
    normalise.TAGS,
    normalise.MARKS,
    normalise.LOOKALIKES,
    normalise.SPACED,
    normalise.ENCODED,
    normalise.OVERRIDES,
    normalise.UNDECODABLE,
)
"""Disguises that nobody uses by chance."""

_COMMON_WORDS = (
    "the a an and or but if of to in on at for from with by about as is are was were be been am do does did "
    "have has had i you he she it we they me him her us them my your his its our their this that these those "
    "what who when where why how not no so just can will would should could may up out all get got go going "
    "like know now one there here then u ur im dont ok yes lol love good time see come back make some any more "
    "than very too need want"
)
_ENGLISH = frozenset(_COMMON_WORDS.split())
_MADE_UP = ("user", *SHOWN)
_WORDS = re.compile(r"[^\W\d_]+")
_BETWEEN_SENTENCES = re.compile(r"(?<=[.!?;:>\]}])\s+|\n+|\s[|•·–—-]{1,3}\s|[{}\[\]<>\"“”«»]+")


class Pieces(msgspec.Struct, frozen=True):
    """What of a post is judged."""

    texts: tuple[str, ...]
    surface: tuple[float, ...]
    signs: tuple[str, ...]
    """What struck: disguises and links."""
    doubts: tuple[str, ...]
    """Why a low score would mean nothing."""


def pieces(text: str) -> Pieces:
    """Cuts a text up for judging. Linear in its length, which is bounded by `CHARS_MAX`."""
    doubts: list[str] = []
    if len(text) > CHARS_MAX:
        doubts.append(f"longer than {CHARS_MAX} characters")
        text = text[: CHARS_MAX // 2] + "\n" + text[-CHARS_MAX // 2 :]
    found = links(text)
    made = plain(found.text)
    signs = [*made.signs, *found.signs]
    parts = spans(made.text, PIECE_CHARS)
    for other in made.others:
        parts += spans(plain(other).text, PIECE_CHARS)
    if why := addressed.in_text(text):
        # What speaks to the judge may be there to thin out the rest, so every sentence is judged by itself as well.
        doubts.append(why)
        parts += [plain(each).text[:PIECE_CHARS] for each in _sentences(found.text)]
    doubts += [each for each in _SUSPICIOUS if each in signs]
    doubts += [each for each in found.signs if each not in (SHORTENED, MANY)]
    doubts += _unreadable(made.text)
    parts = list(dict.fromkeys(parts))
    if len(parts) > PIECES_MAX:
        doubts.append("too many parts")
    numbers = tuple(surface(text, made, found))
    return Pieces(tuple(parts[:PIECES_MAX]), numbers, tuple(signs), tuple(doubts))


def spans(text: str, size: int) -> list[str]:
    """Parts of at most `size` characters, cut between sentences if there are any, or between words."""
    parts, at = [], 0
    while len(text) - at > size:
        cut = max(text.rfind(end, at + size // 2, at + size) for end in (". ", "! ", "? ")) + 1
        if cut <= 0:
            cut = text.rfind(" ", at + size // 2, at + size)
        cut = cut if cut > 0 else at + size
        parts.append(text[at:cut].strip())
        at = cut
    return [*parts, text[at:].strip()]


def _sentences(text: str) -> list[str]:
    return [part.strip() for part in _BETWEEN_SENTENCES.split(text) if len(part.strip()) > 3]


def _unreadable(text: str) -> list[str]:
    """Why a model of English cannot read this text, if so."""
    words = [word for word in _WORDS.findall(text) if word not in _MADE_UP]
    if not text.isascii():
        letters = [each for word in words for each in word if each.isalpha()]
        others = sum(each >= "\u0250" for each in letters)
        # A few in a Latin text are a name or a sign; where there is nothing else they are all it says.
        if others * 10 > len(letters) * 3 and (others > 4 or others == len(letters)):
            return ["in a script this model cannot read"]
    if len(text) > 60 and not any(map(str.isalpha, text)):
        return ["has no words"]
    if len(words) >= 6 and sum(word in _ENGLISH for word in words) * 14 < len(words):
        return ["probably not in English"]
    return []
