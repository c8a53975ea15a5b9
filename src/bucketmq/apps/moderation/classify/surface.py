"""How a text looks, as a few numbers: capitals, digits, money, links. Pure; what it says is the business of the models.

The order is fixed: the coefficients in the package belong to it.
"""

from __future__ import annotations

import re

from bucketmq.apps.moderation.classify import links, normalise

NAMES = (
    "length",
    "capitals",
    "digits",
    "exclamations",
    "phone numbers",
    "money",
    "links",
    "shortened links",
    "suspicious links",
    "disguised letters",
    "masked letters",
    "shouted words",
)

_PHONE = re.compile(r"(?<!\d)\+?\d[\d\s-]{4,}\d(?!\d)")
_MONEY = re.compile(r"[£$€]\s?\d|\d\s?(?:£|\$|€|usd|eur|gbp|dollars?|pounds?)\b", re.IGNORECASE)
_SHOUTED = re.compile(r"\b[A-Z]{3,}\b")


def surface(text: str, plain: normalise.Plain, found: links.Links) -> list[float]:
    """The numbers of one text as it was written, each between 0 and 1."""
    size = max(len(text), 1)
    letters = sum(map(str.isalpha, text)) or 1
    suspicious = [each for each in found.signs if each not in (links.SHORTENED, links.MANY)]
    disguised = [each for each in plain.signs if each not in (normalise.MASKED, normalise.STRETCHED)]
    return [
        min(size / 500, 1.0),
        sum(map(str.isupper, text)) / letters,
        sum(map(str.isdigit, text)) / size,
        min(text.count("!") / 4, 1.0),
        min(len(_PHONE.findall(text)) / 2, 1.0),
        min(len(_MONEY.findall(text)) / 2, 1.0),
        min(found.count / 3, 1.0),
        float(links.SHORTENED in found.signs),
        min(len(suspicious) / 2, 1.0),
        min(len(disguised) / 2, 1.0),
        float(normalise.MASKED in plain.signs),
        min(len(_SHOUTED.findall(text)) / 5, 1.0),
    ]
