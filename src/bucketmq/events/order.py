"""Which of two events of one key is the newer: the marks that stores give, and their times where there is none.

`newer` answers only what is certain. `None` means that nobody can tell, and then nothing may be left out because of it.
How marks are made from what a store tells belongs to `bucketmq.events.parse`.
"""

from __future__ import annotations

from bucketmq.events.event import OBSERVED, ObjectEvent, Order, seconds_of

CLOCKS_SECONDS = 2.0
"""By how much the times of two tellings may be wrong: stores round to whole seconds, and writers have clocks."""

_OWN = OBSERVED | {"writer", "trigger"}
"""Sources whose times are not all from one clock that tells more than seconds."""


def newer(a: ObjectEvent, b: ObjectEvent) -> bool | None:
    """Whether `a` certainly is newer than `b`, an event of the same key; None if that cannot be known."""
    if a.key != b.key or a.id == b.id:
        return None
    if a.order is not None and b.order is not None and a.order.by == b.order.by:
        if a.order.by == "generation":
            return _by_generation(a, a.order, b, b.order)
        return (
            _greater(*_padded(a.order.mark, b.order.mark))
            if a.order.by == "sequencer"
            else _greater(a.order.mark, b.order.mark)
        )
    return _by_time(a, b)


def _by_generation(a: ObjectEvent, a_order: Order, b: ObjectEvent, b_order: Order) -> bool | None:
    """A generation is one write. Its metadata may change, which its metageneration counts, and it ends once."""
    a_generation, a_meta = _numbers(a_order.mark)
    b_generation, b_meta = _numbers(b_order.mark)
    if a_generation is None or b_generation is None:
        return _by_time(a, b)
    if a_generation != b_generation:
        return a_generation > b_generation
    if (a.kind == "deleted") != (b.kind == "deleted"):
        return a.kind == "deleted"
    if a_meta is None or b_meta is None or a_meta == b_meta:
        return None
    return a_meta > b_meta


def _numbers(mark: str) -> tuple[int | None, int | None]:
    """The generation and metageneration in `1700000000000000` or `1700000000000000.2`."""
    generation, _, meta = mark.partition(".")
    return _number(generation), _number(meta)


def _number(text: str) -> int | None:
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 40 else None


def _padded(a: str, b: str) -> tuple[str, str]:
    """Two sequencers as S3 wants them compared: hexadecimal, the shorter one filled up at the right."""
    width = max(len(a), len(b))
    return a.lower().ljust(width, "0"), b.lower().ljust(width, "0")


def _by_time(a: ObjectEvent, b: ObjectEvent) -> bool | None:
    a_first, a_last = _span(a)
    b_first, b_last = _span(b)
    if a_first > b_last:
        return True if _surely(a, b, a_first, b_last) else None
    return False if a_last < b_first and _surely(a, b, b_first, a_last) else None


def _surely(a: ObjectEvent, b: ObjectEvent, later: str, earlier: str) -> bool:
    """Whether two times are far enough apart to say which was first. One store's own times are, however near."""
    if a.source == b.source and a.source not in _OWN:
        return True
    return seconds_of(later) - seconds_of(earlier) > CLOCKS_SECONDS


def _span(event: ObjectEvent) -> tuple[str, str]:
    """Between which times it happened, as text that compares."""
    if event.source == "seaweedfs" and event.kind == "moved":
        return "", "~"  # it keeps the object's time and tells no other
    if event.seen_at is None:
        return event.at, event.at
    if event.source == "seaweedfs":
        return event.seen_at, event.seen_at  # it names the very state that it ended: whatever was stored later is newer
    return min(event.seen_at, event.at), event.at


def _greater(a: str, b: str) -> bool | None:
    return None if a == b else a > b
