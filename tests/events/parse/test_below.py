"""A bucket opened at a prefix sees what lies below it, by shorter names."""

from __future__ import annotations

import msgspec
import pytest

from bucketmq.events.event import ObjectEvent, Order
from bucketmq.events.parse import below

PUT = ObjectEvent(id="evt_1", kind="created", key="team/a.txt", at="2026-03-04T10:30:00.000000Z", source="s3")
MOVED = msgspec.structs.replace(
    PUT, kind="moved", key="team/b.txt", from_key="team/a.txt", version="1", order=Order("text", "1")
)


def test_keys_are_made_shorter_by_the_prefix() -> None:
    for prefix in ("team", "team/", "/team"):
        assert below(prefix, PUT) == msgspec.structs.replace(PUT, key="a.txt")
    assert below("", PUT) == PUT
    assert below("team", MOVED) == msgspec.structs.replace(MOVED, key="b.txt", from_key="a.txt")


@pytest.mark.parametrize("key", ["a.txt", "team", "team/", "teams/a.txt", "other/team/a.txt"])
def test_what_lies_elsewhere_is_not_seen(key: str) -> None:
    assert below("team", msgspec.structs.replace(PUT, key=key)) is None


@pytest.mark.parametrize("key", ["queues/events/log/0/1.ndjson", "rules/a.json", "inventory/x"])
def test_our_own_bookkeeping_is_not_seen(key: str) -> None:
    assert below("", msgspec.structs.replace(PUT, key=key)) is None
    assert below("team", msgspec.structs.replace(PUT, key=f"team/{key}")) is None
    assert below("", msgspec.structs.replace(PUT, key=f"team/{key}")) is not None


def test_a_move_over_the_border_is_a_creation_or_a_deletion() -> None:
    into = below("team", msgspec.structs.replace(MOVED, from_key="elsewhere/a.txt"))
    assert into is not None
    assert (into.kind, into.key, into.from_key, into.version) == ("created", "b.txt", None, "1")
    out = below("team", msgspec.structs.replace(MOVED, key="elsewhere/b.txt"))
    assert out is not None
    assert (out.kind, out.key, out.from_key, out.version, out.order) == ("deleted", "a.txt", None, None, None)
    assert below("third", MOVED) is None


def test_a_move_that_does_not_tell_from_where_stays_a_move() -> None:
    seen = below("team", msgspec.structs.replace(MOVED, from_key=None))
    assert seen is not None
    assert (seen.kind, seen.key) == ("moved", "b.txt")
