"""What came out of a body: events, and what became of everything else in it.

Readers of single items answer with a `Parsed` each, or raise `BadItem`; `gather` makes one of many. Nothing here knows
a provider.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from bucketmq.errors import Invalid
from bucketmq.events.event import ObjectEvent

EVENTS_MAX = 10_000
"""Events in one body. Azure, which sends the most, stops at 5,000."""

KEY_BYTES_MAX = 1024
"""Of a key, in UTF-8: what S3 and its like allow. Longer ones belong to no object."""

NAME_CHARS_MAX = 100
"""How much of an unknown name is counted by: it becomes a metric's label."""

Item = dict[str, object]


class BadItem(Exception):
    """One item of a batch cannot be read; the text says why. Never leaves this package."""


class Bad(msgspec.Struct, frozen=True):
    """An item that could not be read."""

    index: int
    """Its place in the batch, from 0."""
    reason: str


class Confirm(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """A handshake that the body asks for. Whether to do it, and doing it, is the receiver's."""

    by: Literal["sns", "eventgrid"]
    url: str | None = None
    """To be fetched to confirm. Anybody can write one here: check it, and the topic, before that."""
    topic: str | None = None
    """SNS's TopicArn; for Event Grid, the topic if it was told."""
    code: str | None = None
    """Event Grid: to be answered as `{"validationResponse": code}`."""


class Parsed(msgspec.Struct, frozen=True, kw_only=True):
    """What a body said."""

    events: tuple[ObjectEvent, ...] = ()
    ignored: int = 0
    """Items that were understood and mean no change of an object: test events, placeholders, second tellings."""
    unknown: dict[str, int] = {}
    """Event names that are not known here, and how often. Their events are among `events`, of kind `other`."""
    bad: tuple[Bad, ...] = ()
    confirm: Confirm | None = None


IGNORED = Parsed(ignored=1)


def told(event: ObjectEvent, *, known: bool = True) -> Parsed:
    """One event; `known` says whether its name is."""
    return Parsed(events=(event,), unknown={} if known else {event.name[:NAME_CHARS_MAX]: 1})


def gather(items: Sequence[object], read: Callable[[Item], Parsed]) -> Parsed:
    """Read each item. A bad one loses no other."""
    _check_count(len(items))
    events: list[ObjectEvent] = []
    bad: list[Bad] = []
    unknown: dict[str, int] = {}
    ignored = 0
    confirm: Confirm | None = None
    for index, item in enumerate(items):
        if not isinstance(item, dict):
            bad.append(Bad(index, "is not a JSON object"))
            continue
        try:
            parsed = read(item)
        except BadItem as error:
            bad.append(Bad(index, str(error)))
            continue
        for event in parsed.events:
            wrong = _wrong_key(event.key) or (None if event.from_key is None else _wrong_key(event.from_key))
            if wrong is None:
                events.append(event)
            else:
                bad.append(Bad(index, wrong))
        _check_count(len(events))
        ignored += parsed.ignored
        for name, count in parsed.unknown.items():
            unknown[name] = unknown.get(name, 0) + count
        bad.extend(Bad(index, each.reason) for each in parsed.bad)
        confirm = confirm or parsed.confirm
    return Parsed(events=tuple(events), ignored=ignored, unknown=unknown, bad=tuple(bad), confirm=confirm)


def _wrong_key(key: str) -> str | None:
    """Why no handler should see a key: what is not an object's key, or plays tricks on the terminal that shows it."""
    size = len(key.encode("utf-8", "surrogatepass"))
    if not 0 < size <= KEY_BYTES_MAX:
        return f"has a key of {size} bytes; keys have 1 to {KEY_BYTES_MAX}"
    if not key.isprintable() and any(unicodedata.category(c) in ("Cc", "Cs") for c in key):
        return f"has a key with control characters or broken Unicode: {key[:80]!a}"
    return None


def _check_count(count: int) -> None:
    if count > EVENTS_MAX:
        raise Invalid(f"the body has more than {EVENTS_MAX} events; send smaller batches")
