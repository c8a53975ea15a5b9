"""What was made of an object goes with it, whatever dies, and in whatever order runs end."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import word_stages as stages
from procedures.objects.world import DEATHS, FAULTS, Killed, World, summary

import bucketmq
from bucketmq.events.event import time_text
from bucketmq.log import documents
from bucketmq.pipeline import FromEvents, Pipeline, ToObjects, ToQueue, stage
from bucketmq.pipeline.lineage import GONE_SECONDS, Lineage, Of, Tidied, follow, is_current, tidy_lineage
from bucketmq.pipeline.states import STATE, State
from bucketmq.pipeline.states import as_column as states_column
from bucketmq.pipeline.things import Thing
from bucketmq.pipeline.things import as_column as things_column
from bucketmq.pipeline.writing import writings_of

TARGET = ToObjects(template="out/{id}", follows="key")
STORES = ["copying", "hashing", "renaming"]

START = 1_700_000_000.0


def at(seconds: float) -> str:
    return time_text(START + seconds)


def state(number: int, *, gone: bool = False, seconds: float | None = None) -> State:
    """The state of the source after so many changes, ten seconds apart."""
    when = number * 10 if seconds is None else seconds
    return State("in/a", None if gone else f"v{number}", at(when), gone=gone)


def things(*made: str) -> list[tuple[ToObjects, Thing]]:
    """`a=x`: at out/a the content x."""
    return [(TARGET, Thing(f"out/{key}", body.encode())) for key, _, body in (each.partition("=") for each in made)]


def run(bucket: Any, of: State, *made: str, current: bool = True) -> list[str]:
    opened = bucket.run(bucket.api.open())
    became: list[str] = bucket.run(follow(opened, "p", [Of(of, things(*made))], lambda _: current))
    return became


def out(world: World) -> dict[str, str]:
    return {key.removeprefix("out/"): body.decode() for key, body in world.objects("out/").items()}


def register(world: World) -> Any:
    (found,) = [body for key, body in world.everything().items() if key.startswith("inventory/lineage/p/")]
    return documents.decode(Lineage, found, "the register")


@pytest.fixture(params=STORES)
def world(request: pytest.FixtureRequest) -> Any:
    made = World(request.param)
    yield made
    made.close()


def test_what_a_new_version_does_not_make_any_more_goes_after_the_new_is_written(world: World) -> None:
    bucket = world.connect()
    assert run(bucket, state(1), "a=1", "b=1") == ["written", "written"]
    assert run(bucket, state(2), "b=2", "c=2") == ["written", "written", "removed"]
    assert out(world) == {"b": "2", "c": "2"}
    assert summary(bucket) == [
        ("created", "out/a"),
        ("created", "out/b"),
        ("changed", "out/b"),
        ("created", "out/c"),
        ("deleted", "out/a"),
    ]
    assert run(bucket, state(3, gone=True)) == ["removed", "removed"]
    assert out(world) == {}
    assert run(bucket, state(4), "a=4") == ["written"]
    assert out(world) == {"a": "4"}


def test_objects_tell_what_they_were_made_of(world: World) -> None:
    bucket = world.connect()
    run(bucket, state(1), "a=1")
    metadata = bucket.get("out/a").metadata
    assert (metadata["source-key"], metadata["source-version"]) == ("in/a", "v1")
    assert metadata["source-order"] == str(register(world).order)
    assert register(world).made == ("out/a",)


def test_a_register_is_written_as_the_format_says() -> None:
    golden = Path(__file__).parent / "golden" / "lineage.json"
    kept = documents.decode(Lineage, golden.read_bytes(), golden.name)
    assert (kept.source, kept.order, len(kept.made), kept.version) == ("docs/a.txt", 1763294400123, 2, "v7")
    assert documents.encode(kept) == golden.read_bytes()


@pytest.mark.parametrize("late", [("a=1", "b=1"), ("b=1",), ("c=1",), ()])
def test_a_late_run_changes_nothing(world: World, late: tuple[str, ...]) -> None:
    bucket = world.connect()
    run(bucket, state(2), "b=2", "c=2")
    assert run(bucket, state(1), *late) == ["late"] * len(late)
    assert out(world) == {"b": "2", "c": "2"}
    run(bucket, state(3, gone=True))
    assert run(bucket, state(2), "b=2") == ["late"]
    assert out(world) == {}


def test_states_that_clocks_cannot_tell_apart_are_decided_by_the_source_itself(world: World) -> None:
    bucket = world.connect()
    run(bucket, state(2, seconds=10), "a=2")
    assert run(bucket, state(1, seconds=10.5), "a=1", current=False) == ["late"]
    assert run(bucket, state(3, seconds=9), "a=3", current=True) == ["written"]
    assert out(world) == {"a": "3"}
    assert run(bucket, state(3, seconds=8), "a=3", current=False) == ["same"]  # told again by another source


def test_the_source_is_asked_which_state_it_is_in(world: World) -> None:
    bucket = world.connect()
    opened = bucket.run(bucket.api.open())
    bucket.put("in/a", "x")
    version = bucket.look("in/a").version.strip('"')

    def is_now(of: State) -> bool:
        return bool(bucket.run(is_current(opened, of)))

    assert is_now(State("in/a", version, at(1)))
    assert not is_now(State("in/a", "other", at(1)))
    assert not is_now(State("in/a", None, at(1), gone=True))
    bucket.delete("in/a")
    assert is_now(State("in/a", None, at(1), gone=True))
    assert not is_now(State("in/a", version, at(1)))


def test_the_register_of_a_source_that_is_long_gone_goes_and_a_late_run_brings_nothing_back(world: World) -> None:
    bucket = world.connect()
    opened = bucket.run(bucket.api.open())
    now = opened_at = world.time.now() - START
    run(bucket, state(1, seconds=now), "a=1")
    bucket.run(follow(opened, "other", [Of(state(1, seconds=now), [])], lambda _: True))
    run(bucket, state(2, gone=True, seconds=now + 10))
    assert bucket.run(tidy_lineage(opened)) == Tidied(2, 0)
    world.advance(GONE_SECONDS + 60)
    assert bucket.run(tidy_lineage(opened, "other")) == Tidied(1, 0)  # its source is there
    assert bucket.run(tidy_lineage(opened, dry_run=True)) == Tidied(2, 1)
    assert bucket.run(tidy_lineage(opened)) == Tidied(2, 1)
    with pytest.raises(bucketmq.Invalid, match="late runs"):
        bucket.run(tidy_lineage(opened, older_seconds=60))
    assert run(bucket, state(1, seconds=opened_at), "a=1", current=False) == ["late"]
    assert out(world) == {}
    assert run(bucket, state(3, seconds=opened_at + GONE_SECONDS + 50), "a=3", current=False) == ["written"]
    assert run(bucket, state(4, seconds=opened_at - 8 * 86400), "a=4", current=False) == ["late"]
    assert out(world) == {"a": "3"}


def test_an_old_state_without_a_register_removes_nothing(world: World) -> None:
    bucket = world.connect()
    run(bucket, state(2), "a=2")
    (key,) = [key for key in world.everything() if key.startswith("inventory/lineage/")]
    world.store.delete(f"{world.prefix}/{key}")
    assert run(bucket, state(1), "a=1", "b=1", current=False) == ["late", "late"]
    assert out(world) == {"a": "2"}


def test_pipelines_of_the_same_name_in_two_buckets_do_not_meet_in_a_third(tmp_path: Path) -> None:
    results = tmp_path / "results"
    homes = [bucketmq.connect(str(tmp_path / name)) for name in ("one", "two")]
    for number, home in enumerate(homes):
        target = ToObjects(template=f"out/{number}/{{+key}}/{{line}}", body="text", follows="key", bucket=str(results))
        chunks = Pipeline(name="chunks", source=FROM_DOCS, stages=(stages.split_lines,), target=target)
        home.watch(FROM_DOCS.filter, name="chunks", start="beginning")(chunks.watcher(home))
        home.put("docs/a", f"of {number}")
        home.run_watchers(stop_when_empty=True, signals=False)
    assert found_in(results) == {"0/docs/a/0": "of 0", "1/docs/a/0": "of 1"}
    homes[1].delete("docs/a")
    homes[1].run_watchers(stop_when_empty=True, signals=False)
    assert found_in(results) == {"0/docs/a/0": "of 0"}
    homes[0].put("docs/a", "of 0, again")
    homes[0].run_watchers(stop_when_empty=True, signals=False)
    assert found_in(results) == {"0/docs/a/0": "of 0, again"}
    names = [(tmp_path / name / "inventory/home.json").read_bytes() for name in ("one", "two")]
    assert names[0] != names[1]
    for home in homes:
        home.close()


def test_objects_of_others_are_left_alone(world: World) -> None:
    """Somebody wrote over a result, and another source makes the same key now."""
    bucket = world.connect()
    run(bucket, state(1), "a=1", "b=1")
    bucket.put("out/a", "mine")
    opened = bucket.run(bucket.api.open())
    other = State("in/other", "v9", at(50))
    bucket.run(follow(opened, "p", [Of(other, things("b=9"))], lambda _: True))
    run(bucket, state(2, gone=True))
    assert out(world) == {"a": "mine", "b": "9"}


def test_what_it_costs() -> None:
    world = World("copying")
    bucket = world.connect()
    run(bucket, state(1), "warm=1")
    for of, made, cost in (
        (state(2), ["warm=1"], None),
        (state(3), ["a=3", "b=3", "c=3"], None),
        (state(3), ["a=3", "b=3", "c=3"], 2 + 3),  # again: the register twice, and a look at each
        (state(2), ["a=2"], 1),  # late: the register alone
        (state(4, gone=True), [], 2 + 2 + 3 * 6),  # the register four times; six requests for each that goes
    ):
        before = bucket.hands.count
        run(bucket, of, *made)
        if cost is not None:
            assert bucket.hands.count - before == cost, of
    fresh = State("in/fresh", "v1", at(1))
    opened = bucket.run(bucket.api.open())
    before = bucket.hands.count
    bucket.run(follow(opened, "p", [Of(fresh, things("x=1"))], lambda _: True))
    plain = 1 + 4  # what an object costs that follows nothing
    assert bucket.hands.count - before == plain + 3
    world.close()


STORY: Sequence[tuple[State, tuple[str, ...]]] = (
    (state(1), ("a=1", "b=1")),
    (state(2), ("b=2", "c=2")),
    (state(3, gone=True), ()),
)
AFTER = ({"a": "1", "b": "1"}, {"b": "2", "c": "2"}, {})


def complete(found: dict[str, str], step: int) -> bool:
    """Whether readers see all of the old, or all of the new: never a part of each alone."""
    before = AFTER[step - 1] if step else {}
    old = all(key in found for key in before)
    new = all(found.get(key) == body for key, body in AFTER[step].items())
    return old or new


@pytest.mark.parametrize("step", range(len(STORY)))
@pytest.mark.parametrize("kind", STORES)
def test_a_run_that_dies_anywhere_leaves_old_or_new_or_both_and_the_next_one_cleans_up(kind: str, step: int) -> None:
    for number in itertools.count():
        hit = False
        for death in DEATHS:
            world = World(kind)
            for of, made in STORY[:step]:
                run(world.connect(), of, *made)
            try:
                run(world.connect(at=number, fault=death), STORY[step][0], *STORY[step][1])
            except Killed:
                hit = True
            found, where = out(world), f"{death} request {number}"
            assert complete(found, step), (where, found)
            run(world.connect(), STORY[step][0], *STORY[step][1])
            assert out(world) == AFTER[step], where
            assert set(register(world).made) == {f"out/{key}" for key in AFTER[step]}, where
            world.close()
        if not hit:
            assert number > 5
            return


@pytest.mark.parametrize("step", range(len(STORY)))
@pytest.mark.parametrize("kind", STORES)
def test_one_bad_answer_anywhere_changes_nothing_in_the_end(kind: str, step: int) -> None:
    for number in itertools.count():
        hit = False
        for fault in FAULTS:
            world = World(kind)
            for of, made in STORY[:step]:
                run(world.connect(), of, *made)
            bucket = world.connect(at=number, fault=fault)
            try:
                run(bucket, STORY[step][0], *STORY[step][1])
            except bucketmq.Unavailable:
                run(world.connect(), STORY[step][0], *STORY[step][1])
            hit = hit or bucket.hands.hit
            assert out(world) == AFTER[step], f"{fault} at {number}"
            world.close()
        if not hit:
            assert number > 5
            return


@pytest.mark.parametrize("kind", STORES)
def test_a_run_that_a_newer_one_overtakes_at_any_request_leaves_nothing_behind(kind: str) -> None:
    """The older run stops at a request, the newer one runs as a whole, the older one goes on."""
    for older, newer in ((1, 2), (1, 3)):
        for number in itertools.count():
            world = World(kind)
            slow, quick, started = world.connect(), world.connect(), []
            of, made = STORY[newer - 1]

            def meddle(count: int, _request: Any) -> None:
                if count == number and not started:  # noqa: B023
                    started.append(count)  # noqa: B023
                    run(quick, of, *made)  # noqa: B023

            slow.hands.meddle = meddle
            run(slow, state(older), "a=1", "b=1", "z=1")
            if not started:
                run(quick, of, *made)
            assert out(world) == AFTER[newer - 1], (older, newer, number)
            world.close()
            if not started:
                assert number > 5
                break


@pytest.mark.parametrize("kind", STORES)
def test_a_run_that_is_overtaken_and_dies_is_cleaned_up_behind_when_it_is_run_again(kind: str) -> None:
    """Between any two requests of the older run the newer one runs; right after, or some requests later, it dies."""
    for number in range(0, 24):
        for later in range(0, 12, 3):
            world = World(kind)
            slow, started = world.connect(at=number + later, fault="dies before"), []

            def meddle(count: int, _request: Any) -> None:
                if count == number and not started:  # noqa: B023
                    started.append(count)  # noqa: B023
                    run(world.connect(), *_second())  # noqa: B023

            slow.hands.meddle = meddle
            try:
                run(slow, state(1), "a=1", "b=1", "z=1")
            except Killed:
                pass
            if not started:
                run(world.connect(), *_second())
            run(world.connect(), state(1), "a=1", "b=1", "z=1")
            assert out(world) == {"b": "2", "c": "2"}, (number, later)
            world.close()


def _second() -> tuple[Any, ...]:
    return state(2), "b=2", "c=2"


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_redelivery_in_any_order_ends_with_the_newest(order: tuple[int, ...]) -> None:
    world = World("hashing")
    bucket = world.connect()
    told = [(state(1), ("a=1",)), (state(2), ("b=2", "c=2")), (state(3), ("c=3",))]
    for number in (*order, *reversed(order)):
        run(bucket, told[number][0], *told[number][1])
    assert out(world) == {"c": "3"}
    world.close()


FROM_DOCS = FromEvents(filter="key LIKE 'docs/%' OR from_key LIKE 'docs/%'", content="text")
CHUNKS = Pipeline(
    name="chunks",
    source=FROM_DOCS,
    stages=(stages.split_lines,),
    targets=(
        ToObjects(template="out/{+key}/{line}", body="text", follows="key"),
        ToObjects(template="out/long/{+key}", body="text", follows="key", where="text LIKE '%long%'"),
        ToQueue(queue="lines", body="text", text=True),
    ),
)


def pipelined(bucket: Any) -> None:
    """Let a pipeline see what happened since."""
    if not bucket.rules.list():
        bucket.watch(FROM_DOCS.filter, name="chunks", start="beginning")(CHUNKS.watcher(bucket))
    bucket.run_watchers(stop_when_empty=True, signals=False)


def found_in(folder: Path) -> dict[str, str]:
    root = folder / "out"
    return (
        {str(path.relative_to(root)): path.read_text() for path in root.rglob("*") if path.is_file()}
        if root.exists()
        else {}
    )


def test_a_pipeline_follows_its_objects(tmp_path: Path) -> None:
    bucket = bucketmq.connect(str(tmp_path / "bucket"))
    bucket.put("docs/a", "one\ntwo long\nthree")
    bucket.put("docs/b", "bee")
    pipelined(bucket)
    first = {"docs/a/0": "one", "docs/a/1": "two long", "docs/a/2": "three", "long/docs/a": "two long"}
    assert found_in(tmp_path / "bucket") == {**first, "docs/b/0": "bee"}
    bucket.put("docs/a", "uno\ndue")  # shorter, and nothing long any more
    pipelined(bucket)
    assert found_in(tmp_path / "bucket") == {"docs/a/0": "uno", "docs/a/1": "due", "docs/b/0": "bee"}
    bucket.put("docs/a", "")  # the stage makes nothing of it
    bucket.move("docs/b", "docs/c")
    pipelined(bucket)
    assert found_in(tmp_path / "bucket") == {"docs/c/0": "bee"}
    bucket.move("docs/c", "elsewhere/c")
    pipelined(bucket)
    assert found_in(tmp_path / "bucket") == {"elsewhere/c/0": "bee"}
    bucket.delete("docs/a")
    assert [each.body for each in bucket.queue("lines").receive(100)].count("bee") == 3
    assert bucket.queue("events").dead_letters.peek() == []
    bucket.close()


def test_of_states_in_one_batch_only_what_certainly_is_older_is_left_out() -> None:
    """Two sources tell of two writes, by clocks that differ by a second: the register and the object decide."""
    told = [state(1, seconds=0), state(3, seconds=10.9), state(2, seconds=10), state(4, seconds=5)]
    rows = [[TARGET_THING] for _ in told]
    batch = pa.RecordBatch.from_pydict({"_0": things_column(rows), STATE: states_column(told)})
    found = [each.state for each in writings_of((TARGET,), batch, ())]
    assert found == [told[1], told[2]]


TARGET_THING = Thing("out/a", b"x")


def test_a_row_that_fails_keeps_what_was_made_before(tmp_path: Path) -> None:
    bucket = bucketmq.connect(str(tmp_path / "bucket"))
    bucket.put("docs/a", "one")
    pipelined(bucket)
    bucket.put("docs/a", b"\xff not text")
    pipelined(bucket)
    assert found_in(tmp_path / "bucket") == {"docs/a/0": "one"}
    assert len(bucket.queue("events").dead_letters.peek()) == 1
    bucket.close()


def test_the_event_must_come_through_the_stages() -> None:
    @stage(takes="key string", gives="key string")
    def forget(batch: Any) -> Any:
        return batch

    target = ToObjects(template="{+key}", follows="key")
    pipeline = Pipeline(name="p", source=FROM_DOCS, stages=(forget,), target=target)
    with pytest.raises(bucketmq.Invalid, match=r"follows needs the event's column 'version'.*let the stages pass"):
        pipeline.chain()
    other = ToObjects(template="{+key}", follows="from_key")
    with pytest.raises(bucketmq.Invalid, match="follow different columns, from_key and key"):
        Pipeline(name="p", source=FROM_DOCS, targets=(target, other)).chain()
