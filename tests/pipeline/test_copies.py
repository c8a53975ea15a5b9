"""Targets that copy and move objects inside the bucket: of the row's state, once, whatever dies in between."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from procedures.objects.world import DEATHS, FAULTS, STORES, Killed, World, told

import bucketmq
from bucketmq.bucket import port
from bucketmq.client import Bucket
from bucketmq.pipeline import FromEvents, FromQueue, Pipeline, ToObjects, ToQueue
from bucketmq.pipeline.copies import copy_objects
from bucketmq.pipeline.objects import Wanted
from bucketmq.pipeline.things import Thing
from bucketmq.procedures.requests import Copy, Create, Remove, Rename, Replace, StoreRequest

ROW = "key string, version string, name string, kind string, owner string"
COPY = ToObjects(template="out/{name}", copy_of="key")
MOVE = ToObjects(template="out/{name}", copy_of="key", move=True)


@pytest.fixture(params=STORES)
def bucket(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Any]:
    world = World(request.param, tmp_path / "store")
    yield world.connect()
    world.close()


@pytest.fixture
def copying() -> Iterator[Any]:
    world = World("cloning")
    yield world.connect()
    world.close()


def run(bucket: Bucket, *targets: Any, **row: Any) -> Any:
    queue = bucket.queue("rows")
    queue.send(row)
    (delivery,) = queue.receive(1)
    pipeline = Pipeline(name="p", source=FromQueue("rows", ROW), targets=targets)
    return pipeline.watcher(bucket)(delivery)


def did(bucket: Bucket, target: ToObjects, *things: Thing) -> list[str]:
    return [*bucket.run(copy_objects(bucket.run(bucket.api.open()), [Wanted(target, each) for each in things]))]


def thing(name: str, source: str, version: str | None = None) -> Thing:
    return Thing(f"out/{name}", b"", copy_of=source, copy_version=version)


def events(bucket: Bucket) -> list[tuple[str, str, str | None]]:
    found = [each.body for each in bucket.queue("events").receive(100)]
    return [(each["kind"], each["key"], each.get("from_key")) for each in found]


def test_a_copy_has_bytes_type_and_metadata_of_its_source_and_is_reported(bucket: Bucket) -> None:
    version = bucket.put("a", b"abc", content_type="image/webp", metadata={"owner": "rosa"}).version
    events(bucket)
    assert run(bucket, COPY, key="a", version=version, name="x") == bucketmq.Done()
    found = bucket.get("out/x")
    assert (found.body, found.content_type, found.metadata["owner"]) == (b"abc", "image/webp", "rosa")
    assert bucket.get("a").body == b"abc"
    run(bucket, COPY, key="a", version=version, name="x")
    assert bucket.get("out/x").version == found.version
    assert events(bucket) == [("created", "out/x", None)]


def test_type_metadata_and_tags_of_a_copy_come_from_columns_that_the_target_names(bucket: Bucket) -> None:
    bucket.put("a", b"abc", content_type="image/webp", metadata={"old": "1"})
    target = ToObjects(
        template="out/{name}",
        copy_of="key",
        content_type="kind",
        metadata=("owner",),
        tags=("name",),
        where="owner != ''",
    )
    for owner, there in (("rosa", ["rosa"]), ("ada", ["ada"]), ("", ["ada"])):
        run(bucket, target, key="a", name="x", kind="text/plain", owner=owner)
        found = bucket.get("out/x")
        assert [found.metadata["owner"]] == there
        assert (found.body, found.content_type, found.metadata["tag-name"]) == (b"abc", "text/plain", "x")
        assert "old" not in found.metadata


def test_a_move_takes_the_source_away_and_is_one_event(bucket: Bucket) -> None:
    version = bucket.put("a", b"abc", content_type="image/webp", metadata={"owner": "rosa"}).version
    events(bucket)
    for _ in range(2):
        assert run(bucket, MOVE, key="a", version=version, name="x") == bucketmq.Done()
        found = bucket.get("out/x")
        assert (found.body, found.content_type, found.metadata["owner"]) == (b"abc", "image/webp", "rosa")
        assert bucket.look("a") is None
    assert events(bucket) == [("moved", "out/x", "a")]


@pytest.mark.parametrize("target", [COPY, MOVE], ids=["copy", "move"])
def test_a_source_that_was_overwritten_or_is_gone_is_left_to_its_own_event(
    bucket: Bucket, target: ToObjects, caplog: pytest.LogCaptureFixture
) -> None:
    old = bucket.put("a", b"old").version
    new = bucket.put("a", b"new").version
    assert did(bucket, target, thing("x", "a", old), thing("y", "none")) == ["gone", "gone"]
    assert bucket.look("out/x") is None and bucket.get("a").body == b"new"
    assert "action=copy_source_gone key=a" in caplog.text
    assert did(bucket, target, thing("x", "a", new)) == ["written"]
    assert did(bucket, target, thing("x", "a", old)) == ["gone"]  # late: what is newer stays
    assert bucket.get("out/x").body == b"new"
    bucket.delete("a")
    again = did(bucket, target, thing("x", "a", new))
    assert again == ["gone" if target.move and bucket.run(bucket.api.open()).renames else "same"]


@pytest.mark.parametrize("target", [COPY, MOVE], ids=["copy", "move"])
def test_an_object_at_the_target_is_replaced_or_kept(bucket: Bucket, target: ToObjects) -> None:
    keep = ToObjects(template="out/{name}", copy_of="key", move=target.move, if_exists="keep")
    bucket.put("out/x", b"other")
    version = bucket.put("a", b"abc").version
    assert did(bucket, keep, thing("x", "a", version)) == ["kept"]
    assert (bucket.get("out/x").body, bucket.get("a").body) == (b"other", b"abc")
    assert did(bucket, target, thing("x", "a", version)) == ["written"]
    assert bucket.get("out/x").body == b"abc"
    assert (bucket.look("a") is None) == target.move
    assert did(bucket, target, thing("x", "a", version)) == ["same"]


def test_of_copies_the_newest_stays_by_a_column(copying: Bucket) -> None:
    target = ToObjects(template="{id}", copy_of="from", if_exists="newer", newer_by="revision")
    for name in "ab":
        copying.put(name, name)
    for source, revision, became in (("a", "2", "written"), ("b", "1", "kept"), ("b", "10", "written")):
        wanted = Thing("x", b"", revision, copy_of=source)
        assert did(copying, target, wanted) == [became]
    assert copying.get("x").body == b"b"


def test_rows_of_one_batch_that_share_objects_are_carried_out_in_their_order(bucket: Bucket) -> None:
    version = bucket.put("a", b"abc").version
    bucket.put("b", b"bcd")
    chain = [thing("x", "a", version), Thing("y", b"", copy_of="out/x"), thing("x", "b")]
    assert did(bucket, COPY, *chain) == ["written"] * 3
    assert (bucket.get("y").body, bucket.get("out/x").body) == (b"abc", b"bcd")


def test_moves_come_after_whatever_else_is_made_of_the_row(bucket: Bucket) -> None:
    bucket.put("a", b"abc")
    targets = (MOVE, ToObjects(template="kept/{name}", copy_of="key"), ToQueue(queue="told", body="name", text=True))
    run(bucket, *targets, key="a", name="x")
    assert bucket.get("kept/x").body == bucket.get("out/x").body == b"abc"
    assert [each.body for each in bucket.queue("told").receive(9)] == ["x"]


@pytest.mark.parametrize("target", [COPY, MOVE], ids=["copy", "move"])
@pytest.mark.parametrize("over", [False, True], ids=["free", "over another"])
@pytest.mark.parametrize("kind", STORES)
def test_one_bad_answer_or_a_death_anywhere_and_the_row_again_end_in_one_copy_and_one_event(
    kind: str, target: ToObjects, over: bool, tmp_path: Path
) -> None:
    counting, row = _prepared(World(kind, tmp_path / "plain"), over=over)
    did(counting, target, row)
    for at in range(0, counting.hands.count, 4 if kind == "folder" else 1):
        for fault in (*FAULTS, *DEATHS):
            world = World(kind, tmp_path / f"{at}{fault}")
            bucket, row = _prepared(world, over=over)
            with contextlib.suppress(Killed, bucketmq.Unavailable):
                did(world.connect(at=at, fault=fault), target, row)
            assert b"abc" in world.objects().values(), (fault, at)  # never neither
            did(bucket, target, row)
            after = {"out/x": b"abc"} if target.move else {"a": b"abc", "out/x": b"abc"}
            assert world.objects() == after, (fault, at)
            for seconds in (60, 3600):
                world.advance(seconds)
                bucket.recover()
            assert (world.objects(), world.notes()) == (after, []), (fault, at)
            (event,) = told(bucket)[1 + over :]
            assert (event.key, event.kind == "moved") == ("out/x", target.move), (fault, at)
            world.close()


def _prepared(world: World, *, over: bool) -> tuple[Any, Thing]:
    bucket = world.connect()
    if over:
        bucket.put("out/x", b"other")
    version = bucket.put("a", b"abc").version
    return world.connect(), thing("x", "a", version)


KINDS = ("get", "look", "create", "replace", "delete", "remove", "rename", "copy", "list")


def cost(bucket: Bucket, target: ToObjects, *things: Thing) -> dict[str, int]:
    before = bucket.requests
    did(bucket, target, *things)
    spent = bucket.requests - before
    return {kind: count for kind in KINDS if (count := getattr(spent, kind))}


def test_what_a_copy_and_a_move_inside_the_store_cost(copying: Bucket) -> None:
    """No GET: the bytes do not come through this process."""
    versions = [copying.put(f"a{n}", "x").version for n in range(11)]
    things = [thing(str(n), f"a{n}", version) for n, version in enumerate(versions)]
    did(copying, COPY, things[0])
    assert cost(copying, COPY, things[1]) == {"look": 2, "copy": 1, "create": 2, "delete": 1}
    assert cost(copying, COPY, *things[2:]) == {"look": 18, "copy": 9, "create": 2, "delete": 1}
    assert cost(copying, COPY, *things) == {"look": 11}
    moved = [Thing(f"moved/{each.key}", b"", copy_of=each.copy_of, copy_version=each.copy_version) for each in things]
    assert cost(copying, MOVE, moved[0]) == {"look": 2, "copy": 1, "remove": 1, "create": 2, "delete": 1}
    assert cost(copying, MOVE, *moved[1:]) == {"look": 20, "copy": 10, "remove": 10, "create": 2, "delete": 1}
    assert cost(copying, MOVE, *moved) == {"look": 22}


@pytest.mark.parametrize("target", [COPY, MOVE], ids=["copy", "move"])
@pytest.mark.parametrize("over", [False, True], ids=["free", "over another"])
def test_a_row_that_is_overtaken_while_it_copies_writes_nothing_over_what_is_newer(
    bucket: Any, target: ToObjects, over: bool
) -> None:
    if over:
        bucket.put("out/x", b"other")
    old = bucket.put("a", b"old").version
    _before_the_target_is_written(bucket, lambda: did(bucket, target, thing("x", "a", bucket.put("a", b"new").version)))
    assert did(bucket, target, thing("x", "a", old)) == ["gone"]
    assert bucket.get("out/x").body == b"new"
    assert (bucket.look("a") is None) == target.move


@pytest.mark.parametrize("move", [False, True], ids=["copy", "move"])
def test_an_object_that_appears_at_the_target_meanwhile_is_kept(bucket: Any, move: bool) -> None:
    keep = ToObjects(template="{id}", copy_of="from", if_exists="keep", move=move)
    bucket.put("a", b"abc")
    _before_the_target_is_written(bucket, lambda: bucket.put("out/x", b"theirs"))
    assert did(bucket, keep, thing("x", "a")) == ["kept"]
    assert (bucket.get("out/x").body, bucket.get("a").body) == (b"theirs", b"abc")


def test_a_move_that_cannot_be_finished_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It died between the copy and the removal, and the target, which has to be written again, cannot be read."""
    world = World("folder", tmp_path)
    bucket = world.connect()
    row = thing("x", "a", bucket.put("a", b"x" * 100).version)
    dying = world.connect(fault="dies before")

    def meddle(number: int, request: StoreRequest) -> None:
        if isinstance(request, Remove):
            dying.hands.dead = True
            raise Killed

    dying.hands.meddle = meddle
    with pytest.raises(Killed):
        did(dying, MOVE, row)
    with monkeypatch.context() as patch, pytest.raises(bucketmq.Invalid, match="100 bytes"):
        patch.setattr(port, "OBJECT_BYTES_MAX", 50)
        did(bucket, MOVE, row)
    assert sorted(world.objects()) == ["a", "out/x"]
    world.close()


def _before_the_target_is_written(bucket: Any, disturb: Callable[[], Any]) -> None:
    """Somebody does something after everything was looked at and decided."""

    def meddle(number: int, request: StoreRequest) -> None:
        is_write = isinstance(request, Create | Replace | Copy | Rename)
        if is_write and getattr(request, "target", request.key).endswith("out/x"):
            bucket.hands.meddle = lambda *_: None
            disturb()

    bucket.hands.meddle = meddle


def test_an_event_moves_its_object_in_the_state_that_was_read(copying: Bucket) -> None:
    copying.put("inbox/a", b"abc")
    source = FromEvents(filter="key LIKE 'inbox/%'", content="bytes")
    pipeline = Pipeline(name="p", source=source, target=ToObjects(template="done/{key}", copy_of="key", move=True))
    copying.watch(source.filter, name="p", start="beginning")(pipeline.watcher(copying))
    copying.run_watchers(stop_when_empty=True, signals=False)
    assert copying.get("done/inbox%2Fa").body == b"abc" and copying.look("inbox/a") is None


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"key": None}, "column 'key' is empty here; a copy needs the key of its source"),
        ({"key": "out/x"}, "cannot be copied to itself"),
        ({"key": "queues/rows"}, "among BucketMQ's own keys"),
        ({"key": "a/../b"}, "a/../b"),
    ],
)
def test_a_row_whose_source_cannot_be_is_buried(copying: Bucket, row: dict[str, Any], complaint: str) -> None:
    ended = run(copying, COPY, name="x", **row)
    assert isinstance(ended, bucketmq.Bury) and complaint in ended.reason


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"body": "b"}, "leave one out"),
        ({"bucket": "memory://"}, "within the pipeline's bucket"),
        ({"follows": "key"}, "copies do not follow their source"),
        ({"move": True, "metadata": ("owner",)}, "a move keeps content type and metadata"),
        ({"copy_of": None, "move": True}, "go with copy_of"),
    ],
)
def test_copies_that_make_no_sense_are_told(options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(bucketmq.Invalid, match=complaint):
        ToObjects(template="{id}", **{"copy_of": "key", **options})


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"copy_of": "other"}, "need a column 'other'"),
        ({"copy_of": "n"}, "column 'n' is int64; key and version"),
        ({"copy_of": "key", "copy_version": "n"}, "column 'n' is int64; key and version"),
    ],
)
def test_columns_that_do_not_fit_a_copy_are_told_before_anything_runs(options: dict[str, Any], complaint: str) -> None:
    source = FromQueue("rows", "id string, key string, n bigint")
    with pytest.raises(bucketmq.Invalid, match=complaint):
        Pipeline(name="p", source=source, target=ToObjects(template="{id}", **options)).chain()
