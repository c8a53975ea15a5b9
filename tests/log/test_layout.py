"""Where things lie: keys that sort as their offsets do, that can be read back, and that nothing else is taken for."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketmq.errors import Corrupt
from bucketmq.log.layout import QueueKeys, archived_of, base_of, due_of, head_of, join
from bucketmq.queue.settings import SHARDS_MAX
from bucketmq.testing import strategies

ZERO = "\N{ARABIC-INDIC DIGIT ZERO}"
"""A digit to Python, but none that we write."""

KEYS = QueueKeys("team/inbox", "jobs")

prefixes = st.sampled_from(["", "p", "team/inbox"])
queue_keys = st.builds(QueueKeys, prefixes, strategies.names())
shards = st.integers(0, SHARDS_MAX - 1)
offsets = st.integers(0, 10**20 - 1)


def test_the_keys_are_those_of_the_format():
    assert KEYS.settings == "team/inbox/queues/jobs/queue.json"
    assert KEYS.segment(3, 42) == "team/inbox/queues/jobs/log/3/00000000000000000042.ndjson"
    assert KEYS.head("main", 3) == "team/inbox/queues/jobs/heads/main/3.json"
    assert KEYS.trim(3) == "team/inbox/queues/jobs/trim/3.json"
    assert KEYS.hint(3) == "team/inbox/queues/jobs/hint/3.json"
    assert KEYS.dedup(9) == "team/inbox/queues/jobs/dedup/9.json"
    assert KEYS.dedup(9, "3a0f") == "team/inbox/queues/jobs/dedup/9-3a0f.json"
    assert KEYS.later(1_700_000_000, "n1") == "team/inbox/queues/jobs/later/001700000000/n1.ndjson"
    assert KEYS.later_register == "team/inbox/queues/jobs/later.json"
    assert KEYS.failure("f1") == "team/inbox/queues/jobs/failures/f1.ndjson"
    assert KEYS.body("b1") == "team/inbox/queues/jobs/bodies/b1"
    assert KEYS.parts == "team/inbox/queues/jobs/parts/"


def test_without_a_prefix_keys_begin_at_the_root_of_the_bucket():
    assert QueueKeys("", "jobs").settings == "queues/jobs/queue.json"


def test_empty_parts_of_a_key_are_left_out():
    assert join("", "a", "", "b") == "a/b"
    assert join() == ""


@given(queue_keys, shards, offsets, offsets)
def test_segment_keys_sort_as_their_offsets_do(keys, shard, one, other):
    assert (keys.segment(shard, one) < keys.segment(shard, other)) == (one < other)


@given(queue_keys, st.integers(0, 10**12 - 1), st.integers(0, 10**12 - 1), strategies.ids(), strategies.ids())
def test_keys_of_delayed_messages_sort_as_their_due_times_do(keys, one, other, name, other_name):
    if one != other:
        assert (keys.later(one, name) < keys.later(other, other_name)) == (one < other)


@given(queue_keys, shards, offsets)
def test_a_segment_key_names_its_base(keys, shard, base):
    assert base_of(keys.segment(shard, base)) == base


@given(queue_keys, st.integers(0, 10**12 - 1), strategies.ids())
def test_a_delayed_key_names_its_due_time(keys, due, name):
    assert due_of(keys.later(due, name)) == due


@given(queue_keys, strategies.names(), shards)
def test_a_head_key_names_its_subscription_and_shard(keys, subscription, shard):
    assert head_of(keys.head(subscription, shard)) == (subscription, shard)


@given(queue_keys, strategies.names(), shards, offsets, strategies.ids())
def test_keys_lie_in_the_folders_that_are_listed_for_them(keys, subscription, shard, base, name):
    assert keys.segment(shard, base).startswith(keys.log(shard))
    assert keys.head(subscription, shard).startswith(keys.heads)
    assert keys.later(base % 10**12, name).startswith(keys.laters)
    assert keys.failure(name).startswith(keys.failures)
    assert keys.body(name).startswith(keys.bodies)


@given(st.lists(st.tuples(shards, offsets), min_size=2, max_size=2, unique=True))
def test_different_segments_never_share_a_key(places):
    one, other = places
    assert KEYS.segment(*one) != KEYS.segment(*other)


def test_the_folder_of_a_shard_holds_no_other_shard():
    assert not KEYS.segment(10, 0).startswith(KEYS.log(1))


@pytest.mark.parametrize(
    "name",
    [
        "", "x", "0.ndjson", "42.ndjson", "00000000000000000042", "00000000000000000042.json",
        "000000000000000000420.ndjson", "0000000000000000004x.ndjson", "-0000000000000000042.ndjson",
        "00000000000000000042.ndjson.tmp", ZERO * 20 + ".ndjson", " 0000000000000000042.ndjson",
    ],
)  # fmt: skip
def test_what_is_not_a_segment_key_is_corrupt(name):
    with pytest.raises(Corrupt, match="move it away"):
        base_of(KEYS.log(0) + name)


@pytest.mark.parametrize(
    "name",
    ["", "x", "001700000000", "1700000000/n.ndjson", "001700000000/n", "00170000000x/n.ndjson",
     ZERO * 12 + "/n.ndjson", "9" * 5000 + "/n.ndjson", "-00000000001/n.ndjson"],
)  # fmt: skip
def test_what_is_not_a_delayed_key_is_corrupt(name):
    with pytest.raises(Corrupt, match="move it away"):
        due_of(KEYS.laters + name)


@pytest.mark.parametrize(
    "name",
    ["", "main", "main/0", "main/x.json", "main/.json", "main/-1.json", f"main/{ZERO}.json", f"main/{'9' * 5000}.json"],
)  # fmt: skip
def test_what_is_not_a_head_key_is_corrupt(name):
    with pytest.raises(Corrupt, match="move it away"):
        head_of(KEYS.heads + name)


@given(queue_keys, shards, offsets, offsets)
def test_the_key_of_an_archived_file_can_be_read_back(keys, shard, start, end):
    assert archived_of(keys.archived_file("2026-11-16", shard, start, end)) == ("2026-11-16", shard, start, end)


@pytest.mark.parametrize(
    "name",
    ["", "x.parquet", "date=2026-11-16/x.parquet", "date=2026-11-16/0-1-2.parquet",
     f"date=2026-11-16/0-{1:020}.parquet", f"date=2026-11-16/0-{1:020}-{2:020}", f"2026/0-{1:020}-{2:020}.parquet",
     f"date=2026-11-16/{ZERO}-{1:020}-{2:020}.parquet", f"date=2026-11-16/{'9' * 5000}-{1:020}-{2:020}.parquet"],
)  # fmt: skip
def test_what_is_not_the_key_of_an_archived_file_is_corrupt(name):
    with pytest.raises(Corrupt, match="move it away"):
        archived_of(KEYS.archived + name)


@given(st.text())
def test_any_text_is_a_key_or_corrupt_and_nothing_else(text):
    for read in (base_of, due_of, head_of, archived_of):
        try:
            read(text)
        except Corrupt:
            pass
