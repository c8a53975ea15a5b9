"""What becomes of a record: approved, flagged, or a person looks at it. Pure, and closed when it fails.

Only a record about which nothing is unclear is approved: it can be read, names every category once and none that is
unknown, its numbers are probabilities, it does not contradict itself, there is no doubt, nothing is flagged, and no
category comes near. Where objects lie and what was decided before does not belong here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from bucketmq.apps.moderation.record import (
    APPROVED,
    CATEGORIES,
    FLAGGED,
    NEEDS_REVIEW,
    SCHEMA,
    Category,
    Outcome,
    Record,
)
from bucketmq.errors import Invalid

FLAG_ABOVE = 0.85
CLEAR_UP_TO = 0.3

DEMO_CATEGORIES = frozenset({"hate_speech", "spam", "nsfw", "harassment"})
"""What records of the public demo name. They have no `schema`."""

ROUNDING = 0.001
"""How far a record's confidence may be from that of its categories: writers round."""

RECORD_TEXT_CHARS_MAX = 100_000
"""How much of an object that is not a record is shown to the person who looks at it."""


class Thresholds(msgspec.Struct, frozen=True, kw_only=True):
    """Where the bands of confidence end. What is configured; a category that is not named has the common one."""

    flag: float = FLAG_ABOVE
    """A violation above it is flagged without a person."""
    clear: float = CLEAR_UP_TO
    """Without a violation, a category above it makes a person look."""
    flag_by: dict[str, float] = {}
    clear_by: dict[str, float] = {}

    def flags(self, category: Category) -> bool:
        return category.confidence > self.flag_by.get(category.name, self.flag)

    def clears(self, category: Category) -> bool:
        return category.confidence <= self.clear_by.get(category.name, self.clear)


def make_thresholds(
    *,
    flag: float = FLAG_ABOVE,
    clear: float = CLEAR_UP_TO,
    flag_by: Mapping[str, float] | None = None,
    clear_by: Mapping[str, float] | None = None,
) -> Thresholds:
    """Checked: each is a probability, and each category is one that there is."""
    for name in (*(flag_by or {}), *(clear_by or {})):
        if name not in CATEGORIES:
            raise Invalid(f"there is no category {name!r}; there are {', '.join(CATEGORIES)}")
    for value in (flag, clear, *(flag_by or {}).values(), *(clear_by or {}).values()):
        if not 0 <= value <= 1:
            raise Invalid(f"a threshold must be 0 to 1, not {value}")
    return Thresholds(flag=flag, clear=clear, flag_by=dict(flag_by or {}), clear_by=dict(clear_by or {}))


STANDARD = Thresholds()


class Routed(msgspec.Struct, frozen=True):
    """Where a record belongs, and why in a sentence for people."""

    outcome: Outcome
    reason: str


class Reading(msgspec.Struct, frozen=True):
    """What was found below `pending/`."""

    record: Record
    """As it was read; made up around its text if it is not a record."""
    revision: int | None
    """None if it does not say: a writer that does not know of revisions."""
    fault: str | None = None
    """Why it is not a record that counts."""
    required: frozenset[str] = frozenset(CATEGORIES)
    """The categories it must name."""
    unreadable: bool = False
    """Whether it is not a record at all, so that `record` is made up."""


def read(body: bytes, *, id: str) -> Reading:
    """The record in `body`, never an error: what cannot be read is a record with a doubt, for a person to look at.

    `id` is whose record it is by its key; one that says otherwise does not count.
    """
    try:
        raw = msgspec.json.decode(body)
        if not isinstance(raw, dict):
            raise Invalid("it is not a JSON object")
        record = msgspec.convert(_without_nulls(raw), Record)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, Invalid, ValueError) as error:
        return _unreadable(body, id, f"not a record: {error}")
    own = "schema" in raw
    revision = record.revision if "revision" in raw and record.revision >= 1 else None
    fault = _fault(record, id)
    return Reading(record, revision, fault, frozenset(CATEGORIES) if own else DEMO_CATEGORIES)


def _without_nulls(raw: dict[str, Any]) -> dict[str, Any]:
    """Writers in other languages write null for what is empty, or leave it out."""
    return {"media_url": None, **{name: value for name, value in raw.items() if value is not None}}


def _fault(record: Record, id: str) -> str | None:
    if record.id != id:
        return f"it says that it is of the post {record.id[:200]!r}"
    if record.schema != SCHEMA:
        return f"it has schema {record.schema}, and {SCHEMA} is known here"
    if record.revision < 1:
        return f"its revision is {record.revision}"
    return None


def _unreadable(body: bytes, id: str, why: str) -> Reading:
    text = body.decode("utf-8", "replace")
    shown = Record(
        id=id,
        text=text[:RECORD_TEXT_CHARS_MAX],
        media_url=None,
        categories=(),
        violation=False,
        confidence=0.0,
        created_at="",
        doubt=why[:500],
    )
    return Reading(shown, None, why[:500], unreadable=True)


def outcome_of(reading: Reading, thresholds: Thresholds = STANDARD) -> Routed:
    """Where it belongs."""
    record = reading.record
    unclear = reading.fault or _unclear(record, reading.required)
    if unclear is not None:
        return Routed(NEEDS_REVIEW, unclear)
    if record.violation:
        sure = [each for each in record.categories if each.flagged and thresholds.flags(each)]
        if sure:
            return Routed(FLAGGED, f"violation: {_named(sure)}")
        return Routed(NEEDS_REVIEW, f"a violation that is not sure: {_named(_flagged(record))}")
    close = [each for each in record.categories if not thresholds.clears(each)]
    if close:
        return Routed(NEEDS_REVIEW, f"no violation, but not clear of {_named(close)}")
    return Routed(APPROVED, "no violation")


def _unclear(record: Record, required: frozenset[str]) -> str | None:
    """Why the record's numbers cannot be trusted; None if they can."""
    if record.doubt is not None:
        return f"doubt: {record.doubt[:500]}"
    names = [each.name for each in record.categories]
    if len(set(names)) < len(names):
        return "a category is named twice"
    if unknown := sorted(set(names) - set(CATEGORIES)):
        return f"unknown category {unknown[0][:100]!r}"
    if missing := sorted(required - set(names)):
        return f"no word about {', '.join(missing)}"
    if not all(_is_probability(each.confidence) for each in record.categories):
        return "a confidence is not a probability"
    if record.violation != bool(_flagged(record)):
        return "it says violation" if record.violation else "it says no violation, and a category is flagged"
    expected = max(each.confidence for each in (_flagged(record) or record.categories))
    if not _is_probability(record.confidence) or abs(record.confidence - expected) > ROUNDING:
        return "its confidence is not that of its categories"
    return None


def _is_probability(value: float) -> bool:
    return math.isfinite(value) and 0 <= value <= 1


def _flagged(record: Record) -> list[Category]:
    return [each for each in record.categories if each.flagged]


def _named(categories: list[Category]) -> str:
    return ", ".join(f"{each.name} ({each.confidence:.2f})" for each in categories)
