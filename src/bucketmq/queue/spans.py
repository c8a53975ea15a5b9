"""Spans of offsets and lists of them: cutting, covering, joining. Arithmetic only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from bucketmq.queue.head import Span, Waiting

replace = msgspec.structs.replace


def cut(span: Span, limit: int) -> tuple[Span, Span | None]:
    if span.count <= limit:
        return span, None
    middle = span.start + limit
    return Span(span.base, span.start, middle), Span(span.base, middle, span.stop)


def without(spans: Iterable[Span], covered: Sequence[Span]) -> list[Span]:
    """The parts of `spans` that `covered` leaves out."""
    ordered, left = sorted(covered, key=lambda span: span.start), []
    for span in spans:
        position = span.start
        for hole in ordered:
            if hole.stop <= position or hole.start >= span.stop:
                continue
            if position < hole.start:
                left.append(Span(span.base, position, hole.start))
            position = hole.stop
        if position < span.stop:
            left.append(Span(span.base, position, span.stop))
    return left


def join_spans(spans: list[Span]) -> list[Span]:
    joined: list[Span] = []
    for span in spans:
        if joined and joined[-1].stop == span.start:
            joined[-1] = Span(span.base, joined[-1].start, span.stop)
        else:
            joined.append(span)
    return joined


def join_waiting(entries: Iterable[Waiting]) -> tuple[Waiting, ...]:
    """In offset order, neighbours that are alike made one."""
    joined: list[Waiting] = []
    for entry in sorted(entries, key=lambda entry: entry.span.start):
        last = joined[-1] if joined else None
        if last is not None and last.span.stop == entry.span.start and _likeness(last) == _likeness(entry):
            joined[-1] = replace(last, span=Span(last.span.base, last.span.start, entry.span.stop))
        else:
            joined.append(entry)
    return tuple(joined)


def _likeness(entry: Waiting) -> object:
    return entry.span.base, entry.attempts, entry.after, entry.failed, entry.key
