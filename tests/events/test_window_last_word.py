"""What the simulator found about the window: deletions that are news again, first tellings that must not be lost."""

from __future__ import annotations

from typing import Any

import msgspec

from bucketmq.events.event import ObjectEvent, Source, event_id, time_text
from bucketmq.events.window import Window

T = 1_800_000_000.0


def event(source: Source, kind: Any, at: float, *, seen_at: float | None = None, version: str = "v1") -> ObjectEvent:
    made = ObjectEvent(id="", kind=kind, key="a", at=time_text(T + at), source=source, version=version)
    seen = None if seen_at is None else time_text(T + seen_at)
    return msgspec.structs.replace(made, seen_at=seen, id=event_id(source, "", "a", kind, version, str(at)))


def fresh(*events: ObjectEvent) -> list[bool]:
    window = Window(0)
    return [not window.judge(offset, each).duplicate for offset, each in enumerate(events)]


def test_that_a_key_is_gone_is_news_when_it_was_told_to_be_there_since() -> None:
    """The inventory knew the first state; the second came and went between two sweeps."""
    gone = event("writer", "deleted", 50.0)
    there = event("writer", "created", 52.0, version="v2")
    found = event("sweep", "deleted", 55.0, seen_at=10.0)
    assert fresh(gone, found) == [True, False]
    assert fresh(gone, there, found) == [True, True, True]


def test_a_deletion_soon_after_a_sweep_looked_is_not_what_the_sweep_saw() -> None:
    looked = event("sweep", "deleted", 15.0, seen_at=5.0)
    assert fresh(looked, event("s3", "deleted", 14.0)) == [True, False]
    assert fresh(looked, event("s3", "deleted", 16.0)) == [True, True]


def test_a_first_telling_is_not_outdated_by_its_own_echo() -> None:
    """A notification may tell of an exact version long after the writer did: it is late, not newer."""
    window = Window(0)
    first = msgspec.structs.replace(event("writer", "created", 26.0), exact=True)
    echo = msgspec.structs.replace(event("gcs", "created", 40.0), exact=True)
    assert not window.judge(0, first).duplicate
    assert window.judge(1, echo).duplicate
    assert not window.superseded(first)
