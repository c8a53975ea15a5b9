"""Makes a text plain: what a reader sees, in lower-case letters that a model has seen before. Pure.

People who want to get past a filter write so that a person can read it and a program cannot: zero-width characters,
look-alike letters of other alphabets, digits for letters, letters set apart, marks piled on top. `plain` undoes that
and says what it undid: a disguise is a sign by itself. What the text is about is decided elsewhere (`head`); links are
the business of `links`.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
import unicodedata

import msgspec

HIDDEN = "hidden characters"
TAGS = "hidden tag text"
MARKS = "stacked marks"
LOOKALIKES = "look-alike letters"
DIGITS = "digits for letters"
SPACED = "letters set apart"
STRETCHED = "stretched words"
MASKED = "masked letters"
ENCODED = "encoded text"
UNDECODABLE = "undecodable characters"
OVERRIDES = "direction overrides"


class Plain(msgspec.Struct, frozen=True):
    """A text made plain."""

    text: str
    signs: tuple[str, ...] = ()
    """What was undone, each once."""
    others: tuple[str, ...] = ()
    """Further readings: text that was hidden or encoded in it, and stretched words at their shortest."""


def _table() -> dict[int, str]:
    """Letters that look like a Latin one and that Unicode's compatibility forms leave alone."""
    pairs = {
        "авекмнорстухѕіјԁɡһӏѵԛԝьзгпи": "abekmhopctyxsijdghlvqwb3rnu",  # Cyrillic
        "αβεικνορτυχηωγσμζ": "abeikvoptuxnwyouz",  # Greek
        "օսոհցքյ": "ounhgpj",  # Armenian
        "ıłøđħŧƒɑɛɩɪʊʋɴʀʏʟᴀʙᴄᴅᴇꜰɢʜᴊᴋᴍᴏᴘǫꜱᴛᴜᴠᴡᴢ": "ilodhtfaeiiuvnryl" + "abcdefghjkmopqstuvwz",
    }
    table = {ord(a): b for these, those in pairs.items() for a, b in zip(these, those, strict=True)}
    for start in (0x1F150, 0x1F170, 0x1F1E6):  # white on black in circles and squares, and the letters of flags
        table |= {start + i: chr(ord("a") + i) for i in range(26)}
    return table


_ALIKE = _table()
_ALIKE_SET = frozenset(map(chr, _ALIKE))
_BADGES = re.compile("[\U0001f150-\U0001f169\U0001f170-\U0001f189]|[\U0001f1e6-\U0001f1ff]{3,}")
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb]"
)
_WITHIN = re.compile("[^\\W\\d_][\u00ad\u034f\u180b-\u180e\u200b-\u200d\u2060-\u206f\ufeff]+[^\\W\\d_]")
_OVERRIDE = re.compile("[\u202a-\u202e\u2066-\u2069]")
_TAG_RUN = re.compile("[\U000e0000-\U000e007f]+")
_FLAG_TAGS = re.compile("\U0001f3f4[\U000e0061-\U000e007a]{2,6}\U000e007f")  # the flags of England, Scotland, Wales
_CONTROL = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")
_SPACE = re.compile(r"\s+")
_WORD = re.compile(r"[^\W\d_]+")

_LEET = str.maketrans(
    {"0": "o", "1": "i", "3": "e", "4": "a", "5": "s", "7": "t", "@": "a", "$": "s", "!": "i", "|": "l", "€": "e"}
)
_LEET_WORD = re.compile(
    r"(?<![\w@#./:$£€-])(?=[\w@$!|€]*[a-z])"  # one word with a letter in it
    r"(?:[01357$](?=[a-z@$]{2})|@(?=ss)|[a-z])"  # that begins with a letter or with one sign that stands for one
    r"(?:[a-z]|[013457@$!|€](?=[a-z013457@$!|€]))*"  # goes on with either
    r"[a-z0134$@](?!\w|[\w@/.-]{0,60}[/@]|\.[a-z]{2})"  # and is not an address
)
_LEET_INSIDE = re.compile(r"[a-z][01345@$!|€]{1,2}[a-z]|^[01357$][a-z@$]{2}|^@ss|^[a-z]{2,}[$@]+$")
_LEET_SOMEWHERE = re.compile(r"[a-z][01345@$!|€][a-z01345@$!|€]|(?<!\w)[01357$][a-z@$]{2}|@ss|[a-z][$@](?!\w)")
_NOT_LEET = re.compile(
    r"^\d(?:st|nd|rd|th|am|pm|hr|hrs|min|mins|yr|yrs|day|days|week|weeks|km|kg|cm|mm|gb|mb|tb|ft|lb|lbs|px|way|ish)$"
    r"|^(?:[a-z]\d){2,}$|^(?:mp|ps|web|covid|gpt|utf|sha|md)\d|\d{3,}|\d{2,}$"
)
_MENTION = re.compile(r"(?<![\w@])@(?!ss)\w{2,}")
_SPACED_WORD = re.compile(r"(?<![^\W_])[a-z](?:(?:[ .\-_*~|+/,]|\s\s)[a-z]){3,}(?![^\W_])")
_BREAK_WORD = re.compile(r"(?<![a-z.])[a-z](?:[.\-_*~|+][a-z]){3,}(?![a-z])")
_RUN = re.compile(r"([a-z])\1{2,}")
_LONG_RUN = re.compile(r"([^\w\s])\1{3,}")
_MASK = re.compile(r"[a-z][*#%]{1,4}[a-z]|[a-z]{2}[*]{2,4}(?![\w*])")
_BASE64 = re.compile(r"(?<![\w+/=-])[A-Za-z0-9+/]{24,}={0,2}(?![\w+/=])")


def plain(text: str) -> Plain:
    """The text as a reader sees it, in lower case, and what had to be undone for that. Linear in the text's length."""
    signs: dict[str, None] = {}
    others: list[str] = []
    if "&" in text:
        text = html.unescape(text)
    if not text.isascii():
        text = _unmask(text, signs, others)
    elif _CONTROL.search(text):
        text = _CONTROL.sub("", text)
        signs[UNDECODABLE] = None
    for encoded in _BASE64.findall(text):
        if decoded := _decoded(encoded):
            signs[ENCODED] = None
            others.append(decoded)
    text = text.lower()
    if "@" in text:
        text = _MENTION.sub("@user", text)  # whom it mentions does not matter here, and a nickname is not a signal
    if _LEET_SOMEWHERE.search(text):
        text = _LEET_WORD.sub(lambda match: _unleet(match.group(), signs), text)
    for pattern in (_SPACED_WORD, _BREAK_WORD):
        if pattern.search(text):
            text = pattern.sub(lambda match: _joined(match.group(), signs), text)
    if _MASK.search(text):
        signs[MASKED] = None
    text = _LONG_RUN.sub(r"\1\1\1", text)
    if _RUN.search(text):
        shortest = _RUN.sub(r"\1", text)
        text = _RUN.sub(r"\1\1", text)
        others.append(_SPACE.sub(" ", shortest).strip())
        signs[STRETCHED] = None
    return Plain(_SPACE.sub(" ", text).strip(), tuple(signs), tuple(others))


def _unmask(text: str, signs: dict[str, None], others: list[str]) -> str:
    """Non-ASCII disguises undone."""
    text = _FLAG_TAGS.sub(" ", text)
    if tags := _TAG_RUN.findall(text):
        hidden = "".join(chr(ord(each) - 0xE0000) for each in "".join(tags) if 0xE0020 <= ord(each) < 0xE007F)
        signs[TAGS] = None
        others.append(hidden.lower())
        text = _TAG_RUN.sub("", text)
    if _OVERRIDE.search(text):
        signs[OVERRIDES] = None
    if _WITHIN.search(text):
        signs[HIDDEN] = None
    text = _OVERRIDE.sub("", _INVISIBLE.sub("", text))
    if (lost := len(_CONTROL.findall(text)) + text.count("\ufffd")) > 2 and lost * 50 > len(text):
        signs[UNDECODABLE] = None
    text = unicodedata.normalize("NFKC", _CONTROL.sub("", text))
    text = _unstack(text, signs)
    text = _BADGES.sub(lambda match: match.group().translate(_ALIKE), text).lower()
    return _unalike(text, signs)


def _unstack(text: str, signs: dict[str, None]) -> str:
    """Marks taken off: one on a letter is an accent, a pile of them is a disguise."""
    apart = unicodedata.normalize("NFD", text)
    bare = "".join(each for each in apart if unicodedata.category(each) != "Mn")
    if bare == apart:
        return text
    marks = len(apart) - len(bare)
    letters = sum(map(str.isalpha, bare))
    if marks > 4 and marks * 2 > letters and bare.isascii():
        signs[MARKS] = None
    # Only Latin letters lose their marks: in other scripts they are letters.
    return bare if sum(map(str.isascii, bare)) * 2 > len(bare) else unicodedata.normalize("NFC", apart)


def _unalike(text: str, signs: dict[str, None]) -> str:
    """Words that become Latin when look-alikes are read as what they look like; a text in another script stays."""
    if text.isascii() or not any(each in _ALIKE_SET for each in text):
        return text
    foreign = sum(1 for each in text if each.isalpha() and not each.isascii() and each not in _ALIKE_SET)
    latin = sum(1 for each in text if each.isascii() and each.isalpha())

    def reading(match: re.Match[str]) -> str:
        word = match.group()
        if word.isascii():
            return word
        read = word.translate(_ALIKE)
        mixed = any(map(str.isascii, word))
        if not read.isascii() or not (mixed or foreign * 4 <= latin or foreign == 0):
            return word
        if not mixed or len(word) > 1:
            signs[LOOKALIKES] = None
        return read

    return _WORD.sub(reading, text)


def _unleet(word: str, signs: dict[str, None]) -> str:
    if word.isalpha() or not _LEET_INSIDE.search(word) or _NOT_LEET.search(word):
        return word
    signs[DIGITS] = None
    return word.translate(_LEET)


def _joined(letters: str, signs: dict[str, None]) -> str:
    signs[SPACED] = None
    return "".join(each for each in letters if each.isalpha())


def _decoded(encoded: str) -> str | None:
    """What base64 says if that is a text: a run of letters is valid base64 as well."""
    try:
        text = base64.b64decode(encoded[: len(encoded) // 4 * 4], validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return None
    return text.lower() if text.isprintable() and " " in text else None
