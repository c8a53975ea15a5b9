"""Reading untrusted JSON: bytes to values, and the fields that most providers have in one way or another.

What an item must have raises `BadItem` when it is missing; what is only good to know is None when it is missing or odd.
"""

from __future__ import annotations

import base64
import binascii
import re
from datetime import UTC, datetime
from urllib.parse import unquote, unquote_plus

import msgspec

from bucketmq.errors import Invalid
from bucketmq.events.event import LINEAGE_MAX, ObjectEvent
from bucketmq.events.parse.result import BadItem, Item

HOPS_METADATA = "bucketmq-hops"
LINEAGE_METADATA = "bucketmq-lineage"
ANCESTOR_CHARS_MAX = 200

_SIZE_MAX = 2**63 - 1  # more does not fit where events are kept, nor into any store


class Reading(msgspec.Struct, frozen=True, kw_only=True):
    """How a body is to be read."""

    source: str
    """What it is said to be, where items do not say it themselves."""
    own: bool = False
    """Whether to believe items that carry one of our own events."""
    received_at: str | None = None
    """Stands in where no time is told. Never part of an id."""


def decode(body: bytes | str) -> object:
    """JSON, or `Invalid`."""
    try:
        return msgspec.json.decode(body)
    except RecursionError:
        raise Invalid("the body's JSON is nested too deeply") from None
    except (msgspec.MsgspecError, ValueError) as error:  # ValueError: broken UTF-8
        raise Invalid(f"the body is not JSON: {str(error)[:200]}") from None


def items_of(value: object, otherwise: str) -> list[object]:
    """The items of a body that is one, or a list of them. `Invalid` says `otherwise` if it does not look like that."""
    items = value if isinstance(value, list) else [value]
    if not all(isinstance(item, dict) for item in items[:1]):
        raise Invalid(otherwise)
    return items


def text(item: Item, name: str) -> str | None:
    """A text that is there and not empty."""
    value = item.get(name)
    return value if isinstance(value, str) and value else None


def need(item: Item, name: str) -> str:
    value = text(item, name)
    if value is None:
        raise BadItem(f"has no {name}")
    return value


def inner(item: Item, name: str) -> Item:
    """An object inside, empty if there is none."""
    value = item.get(name)
    return value if isinstance(value, dict) else {}


def need_inner(item: Item, name: str) -> Item:
    value = item.get(name)
    if not isinstance(value, dict):
        raise BadItem(f"has no object {name}")
    return value


def size(item: Item, name: str) -> int | None:
    """A number of bytes, also when it is written as text."""
    value = item.get(name)
    if isinstance(value, str) and value.isascii() and value.isdecimal() and len(value) <= 20:
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= _SIZE_MAX:
        return value
    return None


def pairs(value: object) -> dict[str, str] | None:
    """A JSON object of texts, names in lower case; None if it is not an object."""
    if not isinstance(value, dict):
        return None
    return {name.lower(): each for name, each in value.items() if isinstance(each, str)}


_RFC3339 = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d:\d\d(\.\d{1,12})?([Zz]|[+-]\d\d:?\d\d)?", re.ASCII)


def moment(value: str | None) -> str | None:
    """A time as events write it; None if it is not a time. Without a zone it is UTC's."""
    if value is None or not _RFC3339.fullmatch(value):
        return None
    try:
        when = datetime.fromisoformat(value.upper())
        when = when.replace(tzinfo=UTC) if when.tzinfo is None else when.astimezone(UTC)
    except (ValueError, OverflowError):
        return None
    return when.isoformat(timespec="microseconds").replace("+00:00", "Z")


def at_of(reading: Reading, *told: str | None) -> str:
    """The first of these that is a time."""
    for each in told:
        when = moment(each)
        if when is not None:
            return when
    if reading.received_at is None:
        raise BadItem("tells no time")
    return reading.received_at


def form_decoded(key: str) -> str:
    """A key as S3's records write it: `red+flower%2Fa.jpg`."""
    try:
        return unquote_plus(key, errors="strict")
    except UnicodeDecodeError:
        raise BadItem(f"has a key that is not UTF-8: {key[:100]!r}") from None


def percent_decoded(value: str, what: str) -> str:
    try:
        return unquote(value, errors="strict")
    except UnicodeDecodeError:
        raise BadItem(f"has a {what} that is not UTF-8: {value[:100]!r}") from None


def from_base64(value: object) -> bytes | None:
    """None if it is not base64."""
    if not isinstance(value, str):
        return None
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        return None


def text_from_base64(value: object) -> str | None:
    found = from_base64(value)
    try:
        return None if found is None else found.decode()
    except UnicodeDecodeError:
        return None


def hops_of(metadata: dict[str, str] | None) -> int:
    """How many hops the writer of this object was away from where it all began."""
    told = (metadata or {}).get(HOPS_METADATA, "").strip()
    return int(told) if told.isascii() and told.isdecimal() and len(told) <= 6 else 0


def lineage_of(metadata: dict[str, str] | None) -> tuple[str, ...]:
    told = (metadata or {}).get(LINEAGE_METADATA, "")
    ancestors = [each.strip() for each in told.split(",")]
    return tuple(each for each in ancestors if 0 < len(each) <= ANCESTOR_CHARS_MAX)[-LINEAGE_MAX:]


def own_event(value: object) -> ObjectEvent | None:
    """One of our own events that an item carries; None if it is not one in full."""
    if not isinstance(value, dict):
        return None
    try:
        event = msgspec.convert(value, ObjectEvent)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return None
    times = (event.at,) if event.seen_at is None else (event.at, event.seen_at)
    whole = bool(event.id and event.key) and all(moment(each) == each for each in times)
    counts = 0 <= event.hops <= 10**6 and len(event.lineage) <= LINEAGE_MAX
    return event if whole and counts and 0 <= (event.size_bytes or 0) <= _SIZE_MAX else None
