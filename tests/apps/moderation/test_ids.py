"""Whatever a post is called, it is one part of a key, nobody else's, and can be read back."""

from __future__ import annotations

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketmq.apps.moderation.ids import ID_BYTES_MAX, check_id, id_at, id_of, key_of, part_of
from bucketmq.apps.moderation.record import OUTCOMES, PENDING
from bucketmq.bucket.port import check_key
from bucketmq.errors import Invalid

HOSTILE = [
    "a/b",
    "../approved/x",
    "..",
    ".",
    ".hidden",
    "%2e%2e",
    "%2F",
    "a b",
    "a+b?c#d",
    "a\x00b",
    "line\nline",
    "\\",
    "ünï",
    unicodedata.normalize("NFD", "ü"),
    "\u202egnp.exe",
    "😀" * 10,
    "x" * ID_BYTES_MAX,
    " ",
    "a.json",
    "con",
    "~",
]


@pytest.mark.parametrize("id", HOSTILE)
def test_a_hostile_id_is_an_ordinary_name(id: str) -> None:
    key = key_of(PENDING, id)
    check_key(key)
    assert key.isascii() and key.count("/") == 1
    assert id_at(PENDING, key) == id


def test_no_two_ids_share_a_key() -> None:
    keys = {key_of(PENDING, id) for id in HOSTILE}
    assert len(keys) == len(HOSTILE)


@given(st.text(min_size=1, max_size=26))
def test_every_short_text_is_an_id_and_comes_back(id: str) -> None:
    try:
        id.encode()
    except UnicodeEncodeError:
        with pytest.raises(Invalid):
            check_id(id)
        return
    if len(part_of(id)) > 240:
        return
    check_key(key_of(PENDING, id))
    assert id_of(part_of(id)) == id


@given(st.text(max_size=300))
def test_a_part_is_read_back_only_if_it_is_how_its_id_is_written(part: str) -> None:
    id = id_of(part)
    assert id is None or part_of(id) == part


@pytest.mark.parametrize("id", ["", "x" * (ID_BYTES_MAX + 1), "é" * 101, "é" * 60, "\ud800", None, 7])
def test_what_cannot_be_an_id_is_refused_with_a_reason(id: object) -> None:
    with pytest.raises(Invalid, match="id"):
        check_id(id)


@pytest.mark.parametrize(
    "key", ["pending/a/b.json", "pending/a", "approved/a.json", "pending/%2e.json", "pending/.json"]
)
def test_a_key_that_no_id_makes_has_no_id(key: str) -> None:
    assert id_at(PENDING, key) is None


def test_prefixes_do_not_overlap() -> None:
    assert len({key_of(prefix, "a") for prefix in (PENDING, *OUTCOMES)}) == 4
