"""Committing: what it costs, what is refused, and that commits of one process ride together."""

from __future__ import annotations

import threading
from datetime import UTC, datetime
from typing import Any

import msgspec
import pandas as pd
import pyarrow as pa
import pytest

import bucketmq
from bucketmq.engines.meter import Requests
from bucketmq.procedures.tables import files as table_files
from bucketmq.tables import Delete, Replace, Upsert
from procedures.tables.shards import SHAPE, chunks, content, files, texts
from procedures.world import World


def spent(bucket: Any, act: Any) -> tuple[int, int, int, int]:
    """GETs, PUTs, LISTs and DELETEs of an act."""

    def count(requests: Requests) -> tuple[int, int, int, int]:
        return requests.get, requests.create + requests.replace, requests.list, requests.delete

    before = count(bucket.requests)
    act()
    after = count(bucket.requests)
    return tuple(b - a for a, b in zip(before, after, strict=True))  # type: ignore[return-value]


def other(table: Any) -> Any:
    """A snapshot, as if it were another table's."""
    return msgspec.structs.replace(table.snapshot(), table="other")


def test_a_group_is_replaced_as_a_whole_and_others_stay(world: World) -> None:
    table = world.connect().table("t", **SHAPE)
    table.commit(Replace(chunks("a", 3), "a"), Replace(chunks("b", 2), "b"))
    table.replace("a", chunks("a", 1, rev=2))  # shorter than before: nothing of the old one stays
    assert content(table) == {"a": texts("a", 1, 2), "b": texts("b", 2)}
    table.delete("b", newer=2)
    assert content(table) == {"a": texts("a", 1, 2)}
    assert table.snapshot().rows == 1


def test_an_older_state_that_comes_late_changes_nothing(world: World) -> None:
    table = world.connect().table("t", **SHAPE)
    table.replace("a", chunks("a", 2, rev=5))
    assert table.replace("a", chunks("a", 3, rev=4)).stale == ("a",)
    assert table.delete("a", newer=4).stale == ("a",)
    assert table.upsert(chunks("a", 3, rev=4)).stale == ("a",)
    assert content(table) == {"a": texts("a", 2, 5)}
    assert table.delete("a", newer=6).stale == ()
    assert table.replace("a", chunks("a", 2, rev=5)).stale == ("a",)  # deleted, and still newer
    assert content(table) == {}
    world.advance(table_files.GONE_SECONDS + 1)
    table.replace("b", chunks("b"))  # whoever writes the file forgets what was deleted long ago
    assert table.replace("a", chunks("a", 2, rev=5)).stale == ()


def test_a_group_that_is_deleted_again_at_a_newer_state_stays_deleted_up_to_that(blocking: World) -> None:
    table = blocking.connect().table("t", **SHAPE)
    table.replace("a", chunks("a", rev=1))
    table.delete("a", newer=2)
    table.delete("a", newer=5)
    assert table.replace("a", chunks("a", rev=4)).stale == ("a",)


def test_rows_deleted_at_a_newer_state_do_not_return_while_the_rest_of_their_group_stays(world: World) -> None:
    table = world.connect().table("t", **SHAPE)
    table.replace("a", chunks("a", 2, rev=1))
    table.delete("a", keys=[1], newer=5)
    assert table.upsert(chunks("a", 2, rev=3)).stale == ("a",)
    assert content(table) == {"a": texts("a", 1, 1)}
    assert table.replace("a", chunks("a", 2, rev=5)).stale == ()
    assert content(table) == {"a": texts("a", 2, 5)}


def test_of_a_commit_only_what_is_older_is_left_out(world: World) -> None:
    table = world.connect().table("t", **SHAPE)
    table.replace("a", chunks("a", 1, rev=5))
    done = table.commit(Replace([*chunks("a", 2, rev=4), *chunks("b", 2, rev=4)]))
    assert done.stale == ("a",)
    assert content(table) == {"a": texts("a", 1, 5), "b": texts("b", 2, 4)}


def test_a_time_says_what_is_newer_too(blocking: World) -> None:
    table = blocking.connect().table("t", key="id", newer_by="at")
    early, late = datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 2, tzinfo=UTC)
    table.upsert([{"id": "x", "at": late, "n": 2}])
    assert table.upsert([{"id": "x", "at": early, "n": 1}]).stale == ("x",)
    assert table.delete("x", newer=early).stale == ("x",)
    assert table.delete("x", newer=late).stale == ()
    assert table.read().num_rows == 0
    with pytest.raises(bucketmq.Invalid, match="newer is a number, but column 'at'"):
        table.delete("x", newer=7)


def test_the_same_commit_id_changes_nothing_the_second_time(world: World) -> None:
    table = world.connect().table("t", **SHAPE)
    assert not table.commit(Replace(chunks("a"), "a"), id="one").already
    table.delete("a")
    again = world.connect().table("t").commit(Replace(chunks("a"), "a"), id="one")
    assert again.already
    assert content(table) == {}


def test_a_commit_that_changes_nothing_is_remembered_if_it_has_a_name(blocking: World) -> None:
    table = blocking.connect().table("t", key="id")
    table.upsert([{"id": 1, "n": 1}])
    assert table.commit(Upsert([{"id": 1, "n": 1}]), id="same").version == 2
    table.upsert([{"id": 1, "n": 2}])
    assert table.commit(Upsert([{"id": 1, "n": 1}]), id="same").already
    assert table.read().to_pylist() == [{"id": 1, "n": 2}]


def test_a_commit_costs_two_gets_and_two_puts_and_nothing_more_with_history(blocking: World) -> None:
    bucket = blocking.connect()
    table = bucket.table("t", **SHAPE)
    assert spent(bucket, lambda: table.replace("a", chunks("a"))) == (2, 3, 1, 0)  # makes the table, and looks once
    for n in range(30):
        assert spent(bucket, lambda n=n: table.replace("a", chunks("a", rev=n + 2))) == (2, 2, 0, 0)
    assert spent(bucket, lambda: table.replace("a", chunks("a", rev=31))) == (2, 0, 0, 0)  # nothing changes
    assert spent(bucket, lambda: table.replace("a", chunks("a", rev=3))) == (2, 0, 0, 0)  # it is older
    assert spent(bucket, table.read) == (2, 0, 0, 0)
    assert spent(bucket, table.snapshot) == (1, 0, 0, 0)


def test_a_large_table_costs_no_more_than_a_small_one(blocking: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "SPLIT_BYTES", 4_000)
    bucket = blocking.connect()
    table = bucket.table("t", **SHAPE)
    for n in range(60):
        table.replace(f"d{n}", chunks(f"d{n}", 4))
    assert 4 <= len(table.snapshot().files) <= 40
    assert spent(bucket, lambda: table.replace("d7", chunks("d7", 1, rev=2))) == (2, 2, 0, 0)
    assert spent(bucket, lambda: table.read(groups=["d7"])) == (2, 0, 0, 0)
    assert content(table, groups=["d7", "none"]) == {"d7": texts("d7", 1, 2)}
    assert len(content(table)) == 60
    sizes = [shard.size_bytes for shard in table.snapshot().head.shards]
    assert max(sizes) <= 4_000


def test_a_group_larger_than_a_file_stays_whole(blocking: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "SPLIT_BYTES", 1_000)
    table = blocking.connect().table("t", **SHAPE)
    table.replace("a", chunks("a", 200))
    assert len(table.snapshot().files) == 1
    assert table.read().num_rows == 200


def test_commits_of_one_process_ride_together(blocking: World) -> None:
    bucket = blocking.connect()
    bucket.table("t", **SHAPE).replace("z", chunks("z"))
    version = bucket.table("t").snapshot().version
    start = threading.Barrier(12)

    def one(n: int) -> None:
        start.wait()
        for k in range(5):
            bucket.table("t", **SHAPE).replace(f"{n}-{k}", chunks(f"{n}-{k}"))

    threads = [threading.Thread(target=one, args=(n,)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    table = bucket.table("t")
    assert len(content(table)) == 61
    assert table.snapshot().version - version < 60


def test_a_commit_that_does_not_fit_fails_alone(blocking: World) -> None:
    from bucketmq.procedures.tables.commit import _Carrying
    from bucketmq.procedures.tables.opened import Load
    from bucketmq.procedures.tables.steps import step_of

    bucket = blocking.connect()
    table = bucket.table("t", **SHAPE)
    table.replace("a", chunks("a"))
    opened = bucket.run(table.api.open())
    good = Load(None, [step_of(Upsert(chunks("b")), opened.shape)])
    bad = Load(None, [step_of(Upsert([{"id": 1, "doc": "c", "rev": 1, "text": 7}]), opened.shape)])
    odd = Load(None, [step_of(Upsert([{"id": 1, "doc": "d", "rev": 1, "more": {}}]), opened.shape)])
    bucket.run(_Carrying(opened, [bad, odd, good]).carry())
    assert isinstance(odd.error, bucketmq.Invalid) and "Parquet" in str(odd.error)
    assert isinstance(bad.error, bucketmq.Invalid) and "column 'text'" in str(bad.error)
    assert good.committed is not None and good.committed.version == 2
    assert set(content(table)) == {"a", "b"}


def test_columns_can_be_added_and_never_change_their_type(world: World) -> None:
    table = world.connect().table("t", key="id")
    table.upsert([{"id": 1, "n": 1}])
    table.upsert([{"id": 2, "n": 2, "vector": [0.5, 1.5]}])
    table.upsert([{"id": 3}])
    assert [row["vector"] for row in sorted(table.read().to_pylist(), key=lambda row: row["id"])] == [
        None,
        [0.5, 1.5],
        None,
    ]
    with pytest.raises(bucketmq.Invalid, match=r"column 'n' of the rows is string, but in the table it is int64"):
        table.upsert([{"id": 4, "n": "four"}])
    small = pa.table({"id": pa.array([5], pa.int32()), "n": pa.array([5], pa.int16())})
    table.upsert(small)
    with pytest.raises(bucketmq.Invalid, match="not values of a column of type int64"):
        table.upsert(pa.table({"id": pa.array([2**64 - 1], pa.uint64())}))
    assert table.read().schema.field("n").type == pa.int64()


def test_rows_come_as_arrow_pandas_or_dicts(blocking: World) -> None:
    table = blocking.connect().table("t", key="id")
    table.upsert(pd.DataFrame({"id": ["a"], "kind": pd.Categorical(["x"])}))
    table.upsert(pa.RecordBatch.from_pylist([{"id": "b", "kind": "y"}]))
    table.upsert([{"id": "c", "kind": "z"}])
    views = pa.table({"id": pa.array(["d"], pa.string_view()), "kind": pa.array(["w"], pa.string_view())})
    table.upsert(views)
    assert table.read().to_pylist() == [{"id": k, "kind": v} for k, v in zip("abcd", "xyzw", strict=True)]
    assert table.read(columns=["kind"], keys=["b"]).to_pylist() == [{"kind": "y"}]


def test_a_group_can_be_replaced_by_nothing(blocking: World) -> None:
    table = blocking.connect().table("t", **SHAPE)
    assert table.replace("a", []).version == 0, "there is no table yet"
    table.commit(Replace(chunks("a", rev=1), "a"), Replace(chunks("b"), "b"))
    assert table.replace("a", [], newer=0).stale == ("a",)
    table.replace("a", pd.DataFrame(columns=["id", "doc", "rev"]), newer=3)
    assert set(content(table)) == {"b"}
    assert table.replace("a", chunks("a", rev=2)).stale == ("a",)
    assert table.upsert([]).version == 2, "nothing to put, nothing done"


def test_keys_of_one_group_are_for_tables_with_groups(blocking: World) -> None:
    table = blocking.connect().table("t", key="id")
    table.upsert([{"id": "a"}, {"id": "b"}])
    with pytest.raises(bucketmq.Invalid, match="has no groups"):
        table.delete("a", keys=["b"])
    assert table.read().num_rows == 2


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (lambda table: table.upsert([{"id": 1}]), "have no column 'doc'"),
        (lambda table: table.upsert([{"id": None, "doc": "a", "rev": 1}]), "'id' is null"),
        (lambda table: table.upsert([{"id": 1.5, "doc": "a", "rev": 1}]), "'id' is double"),
        (lambda table: table.upsert([{"id": 1, "doc": "a", "rev": "1"}]), "'rev' is string"),
        (lambda table: table.upsert(7), "cannot be made an Arrow table"),
        (lambda table: table.replace("a", chunks("b")), "a row of group 'b'"),
        (lambda table: table.delete(), "names of the groups"),
        (lambda table: table.delete("a", newer="now"), "newer must be"),
        (lambda table: table.delete("a", newer=datetime(2026, 11, 1, tzinfo=UTC)), "newer is a time, but column 'rev'"),
        (lambda table: table.replace("a", [], newer=datetime(2026, 11, 1, tzinfo=UTC)), "newer is a time, but column"),
        (lambda table: table.delete(1.5), "text or a whole number"),
        (lambda table: table.delete(7), "not values of a column of type string"),
        (lambda table: table.commit(Delete(["a", "b"], keys=[1])), "one group"),
        (lambda table: table.commit(Upsert(chunks("a")), id="no/slash"), "commit id"),
        (lambda table: table.read(columns=["nothing"]), "no column 'nothing'"),
        (lambda table: table.read(at=other(table)), "a snapshot of table 'other'"),
        (lambda table: table.read(columns="text"), "columns are a list"),
        (lambda table: table.read(groups="a"), "groups are a list"),
        (lambda table: table.read(keys=["\ud800", None]), "text or a whole number"),
        (lambda table: table.read(groups=["\ud800"]), "not values of a column of type string"),
        (lambda table: table.delete("\ud800"), "not values of a column of type string"),
        (lambda table: table.delete("a", keys="01"), "keys are a list"),
        (lambda table: table.delete("a", keys=[[0]]), "text or a whole number"),
        (lambda table: table.commit("a"), "a change is an Upsert, Replace or Delete"),
        (lambda table: table.commit(Replace([])), "name the group that is to have none"),
        (lambda table: table.upsert([{"id": 1, "doc": "a", "rev": 1, "more": {}}]), "which Parquet cannot hold"),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(blocking: World, act: Any, says: str) -> None:
    table = blocking.connect().table("t", **SHAPE)
    table.replace("a", chunks("a"))
    before = blocking.everything()
    with pytest.raises(bucketmq.Invalid, match=says):
        act(table)
    assert blocking.everything() == before


def test_a_table_is_opened_as_it_was_made(blocking: World) -> None:
    bucket = blocking.connect()
    with pytest.raises(bucketmq.NotFound, match="there is no table 't'"):
        bucket.table("t").upsert([{"id": 1}])
    with pytest.raises(bucketmq.NotFound, match="its first commit makes it"):
        bucket.table("t", key="id").read()
    with pytest.raises(bucketmq.Invalid, match="go with key"):
        bucket.table("t", group="doc")
    with pytest.raises(bucketmq.Invalid, match="another column than group"):
        bucket.table("t", key="doc", group="doc")
    with pytest.raises(bucketmq.Invalid, match="table name"):
        bucket.table("../t", key="doc")
    assert bucket.table("t", key="id").delete(7).version == 0
    bucket.table("t", key="id").upsert([{"id": 1}])
    with pytest.raises(bucketmq.Invalid, match="was made with key='id'"):
        bucket.table("t", key="name").upsert([{"name": 1}])
    assert bucket.table("t").upsert([{"id": 2}]).version == 2


def test_a_table_makes_no_events_and_users_cannot_write_into_it(blocking: World) -> None:
    bucket = blocking.connect()
    bucket.table("t", key="id").upsert([{"id": 1}])
    assert "app/queues/events/queue.json" not in blocking.everything()
    with pytest.raises(bucketmq.Invalid):
        bucket.put("tables/t/head.json", b"")
    assert len(files(blocking)) == 1
