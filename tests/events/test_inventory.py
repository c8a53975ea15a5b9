"""What a sweep saw, against a plain model: what is new, changed and gone, in the order of keys, under stable ids."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketmq.errors import Corrupt
from bucketmq.events.event import seconds_of
from bucketmq.events.inventory import Item, decode_items, differences, encode_items, gone, same_state, there

STATES = st.tuples(st.sampled_from(['"v1"', '"v2"', None]), st.sampled_from([1.0, 2.5]), st.integers(0, 2))
VIEWS = st.dictionaries(st.text("abc/é😀", min_size=1, max_size=4), STATES, max_size=12)


def items(view: dict[str, tuple[str | None, float, int]]) -> list[Item]:
    return [Item(key, *state) for key, state in sorted(view.items())]


@given(VIEWS, VIEWS)
def test_the_differences_are_those_of_two_dicts(before: dict, after: dict) -> None:
    found = list(differences(items(before), items(after)))
    created = {event.key for event in found if event.kind == "created"}
    changed = {event.key for event in found if event.kind == "changed"}
    deleted = {event.key for event in found if event.kind == "deleted"}
    assert created == set(after) - set(before)
    assert deleted == set(before) - set(after)
    assert changed == {
        key for key in set(before) & set(after) if not same_state(Item(key, *before[key]), Item(key, *after[key]))
    }
    assert [event.key for event in found] == sorted(created | changed | deleted)


@given(VIEWS, VIEWS)
def test_the_same_two_views_always_give_the_same_events(before: dict, after: dict) -> None:
    first = list(differences(items(before), items(after), bucket="b", exact=True))
    assert first == list(differences(items(before), items(after), bucket="b", exact=True))
    assert len({event.id for event in first}) == len(first)


@given(VIEWS)
def test_a_view_does_not_differ_from_itself_and_from_nothing_in_everything(view: dict) -> None:
    assert list(differences(items(view), items(view))) == []
    assert {event.kind for event in differences([], items(view))} <= {"created"}
    assert {event.kind for event in differences(items(view), [])} <= {"deleted"}


@given(VIEWS)
def test_a_chunk_is_read_back_as_it_was_written(view: dict) -> None:
    assert decode_items(encode_items(items(view)), "chunk") == items(view)


def test_a_state_has_one_id_whether_it_is_new_or_changed() -> None:
    """One sweeper saw the object before, another did not: they tell the same."""
    item = Item("k", '"v"', 5.0, 1)
    assert there(item).id == there(item, changed=True).id
    assert there(item).id != gone(item).id
    assert there(item).id != there(Item("k", '"v"', 6.0, 1)).id
    assert there(item, bucket="b").id != there(item).id


def test_equal_bytes_written_again_are_a_change() -> None:
    before, after = Item("k", '"v"', 5.0, 1), Item("k", '"v"', 6.0, 1)
    (event,) = differences([before], [after])
    assert (event.kind, event.version, seconds_of(event.at)) == ("changed", "v", 6.0)


def test_a_deletion_tells_since_when_it_may_have_happened() -> None:
    event = gone(Item("k", 'W/"v"', 5.0, 1))
    assert event.seen_at is not None
    assert (event.version, seconds_of(event.seen_at), event.exact) == ("v", 5.0, False)


def test_only_a_version_can_be_exact() -> None:
    assert there(Item("k", "7", 1.0, 1), exact=True).exact
    assert not there(Item("k", None, 1.0, 1), exact=True).exact


@pytest.mark.parametrize("body", [b"{", b"[1]", b'["k","v",1]', b"\xff\xfe", b'["k",null,"x",1]\n'])
def test_what_is_no_chunk_says_so(body: bytes) -> None:
    with pytest.raises(Corrupt, match="the/chunk"):
        decode_items(body, "the/chunk")
