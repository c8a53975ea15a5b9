"""What the links of a text say about it: where they lead, as far as the text itself shows it. Pure, nothing is fetched.

A link becomes one made-up word (`links` puts it in its place) so that a model learns from there being a link, not from
which one. Signs are reasons for suspicion that a reviewer understands.
"""

from __future__ import annotations

import re

import msgspec

SHORTENED = "shortened link"
MANY = "many links"
PUNYCODE = "look-alike host name"
NUMERIC = "link to a bare address"
CREDENTIALS = "user name inside a link"
BAIT = "bait for credentials"
ODD_HOST = "odd host name"
DANGEROUS = "link that runs code"

MANY_LINKS = 4

_LINK = re.compile(
    r"(?:\b(?:https?|hxxps?|ftp)\s?:\s?//|\bwww\.)[^\s<>\"'()\[\]{}|\\^`]{2,2000}"
    r"|\b(?:javascript|data|vbscript):[^\s<>\"']{3,2000}"
    r"|(?<![\w@./-])(?:[a-z0-9-]{1,63}\.){1,4}"
    r"(?:com|net|org|info|biz|co\.uk|co|io|ly|me|tk|top|xyz|ru|cn|click|link|shop|site|online|live|win|bid|gl|gd|cc|to)\b"
    r"(?:/[^\s<>\"'()]{0,2000})?",
    re.IGNORECASE,
)
_SCHEME = re.compile(r"^(?:[a-z]+\s?:\s?//)?", re.IGNORECASE)
_NUMERIC_HOST = re.compile(r"^(?:\d{1,3}(?:\.\d{1,3}){3}|0x[0-9a-f]{2,}|\d{8,10}|\[[0-9a-f:]+\])$", re.IGNORECASE)
_SHORTENING_HOSTS = (
    "bit.ly bitly.com t.co tinyurl.com goo.gl ow.ly is.gd buff.ly adf.ly bl.ink cutt.ly rb.gy shorturl.at t.ly "
    "tiny.cc rebrand.ly s.id soo.gd v.gd x.co lnkd.in trib.al dlvr.it qr.ae u.to shorte.st bc.vc j.mp po.st "
    "clck.ru"
)
_SHORTENERS = frozenset(_SHORTENING_HOSTS.split())
_CHEAP = (".tk", ".top", ".xyz", ".click", ".bid", ".win", ".gq", ".ml", ".cf", ".ga", ".loan", ".work", ".zip", ".mov")
_BAIT = re.compile(
    r"\b(?:verify|confirm|update|unlock|restore|validate|re-?activate)\b.{0,40}"
    r"\b(?:account|password|identity|billing|payment|bank|card|wallet|login|details|information)\b"
    r"|\baccount\b.{0,30}\b(?:suspended|locked|limited|on hold|deactivated|expires?)\b"
    r"|\b(?:seed phrase|private key|recovery phrase|one-time (?:code|password)|security code|cvv|pin code)\b",
    re.IGNORECASE | re.DOTALL,
)


PLAIN_WORD, SHORT_WORD, ODD_WORD = "urlplain", "urlshort", "urlodd"
"""What a link becomes for the model."""
SHOWN = {PLAIN_WORD: "a link", SHORT_WORD: "a shortened link", ODD_WORD: "an odd link"}
"""The same for people."""


class Links(msgspec.Struct, frozen=True):
    """The links of one text."""

    text: str
    """The text with a made-up word for every link."""
    count: int = 0
    signs: tuple[str, ...] = ()


def links(text: str) -> Links:
    """Finds the links of a text. Linear in its length."""
    if "." not in text and ":" not in text:
        return Links(text)
    signs: dict[str, None] = {}
    count = 0

    def word(match: re.Match[str]) -> str:
        nonlocal count
        found = match.group()
        if found.lower().startswith(("javascript:", "data:", "vbscript:")):
            if "script" not in found.lower() and "base64" not in found.lower():
                return found
            signs[DANGEROUS] = None
        count += 1
        kinds = _signs_of(found)
        signs.update(dict.fromkeys(kinds))
        return f" {SHORT_WORD if SHORTENED in kinds else ODD_WORD if kinds else PLAIN_WORD} "

    replaced = _LINK.sub(word, text)
    if not count:
        return Links(text)
    if count >= MANY_LINKS:
        signs[MANY] = None
    if _BAIT.search(replaced):
        signs[BAIT] = None
    return Links(replaced, count, tuple(signs))


def _signs_of(link: str) -> list[str]:
    authority = re.split(r"[/?#]", link[_SCHEME.match(link).end() :], maxsplit=1)[0].lower()  # type: ignore[union-attr]
    user, at, host = authority.rpartition("@")
    host = re.sub(r":\d*$", "", host)
    signs = []
    if at and user:
        signs.append(CREDENTIALS)
    if host.removeprefix("www.") in _SHORTENERS:
        signs.append(SHORTENED)
    if "xn--" in host or not host.isascii():
        signs.append(PUNYCODE)
    if _NUMERIC_HOST.match(host):
        signs.append(NUMERIC)
    elif host.endswith(_CHEAP) or host.count("-") >= 3 or host.count(".") >= 5:
        signs.append(ODD_HOST)
    return signs
