"""Whatever dies or is refused between any two requests: in the end thumbnails, facts and the row are those of the image
that is there."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest

pytest.importorskip("PIL")
pytest.importorskip("pyarrow")

from procedures.objects.world import DEATHS, FAULTS, Killed, World

from apps.images.drawn import drawing, jpeg, photo
from apps.images.running import STAGES, Images
from bucketmq.apps.images.places import TABLE, facts_key, pipeline_of
from bucketmq.apps.images.table import keep_rows
from bucketmq.errors import Contended, Unavailable
from bucketmq.outcomes import Done

KEY = "raw/a.jpg"
IMAGES = [jpeg(photo((64, 48))), jpeg(drawing((48, 64)))]
FACTS: dict[str, dict[str, Any]] = {
    "thumbnails": {
        "width": 6,
        "height": 4,
        "format": "png",
        "frames": 1,
        "animated": False,
        "profile": "none",
        "thumbs": [],
    },
    "policy": {"verdict": "fine", "score": 0.1, "reason": "", "model": "m"},
    "text": {"text": "Rye", "lines": 1, "unsure": False, "model": "m"},
    "alt": {
        "alt": "A photo.",
        "alt_source": "embedded",
        "confidence": 0.9,
        "kind": "photo",
        "colours": [],
        "digest": "",
        "model": "m",
    },
}


@contextlib.contextmanager
def worlds(kind: str = "copying") -> Iterator[World]:
    made = World(kind)
    try:
        yield made
    finally:
        made.close()


def say(world: World, stage: str, **changes: Any) -> None:
    """A stage writes its facts."""
    facts = {"key": KEY, "version": "1", "stage_version": 1, **FACTS[stage], **changes}
    world.write(facts_key(KEY, stage), msgspec.json.encode(facts))


def keep(bucket: Any) -> None:
    bucket.run(keep_rows(bucket.run(bucket.api.open()), [KEY]))


def rows(world: World) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = world.connect().table(TABLE).read().to_pylist()
    return found


def prepared(world: World) -> None:
    """A table with the row of another image, and facts of ours."""
    world.write(KEY, b"x")
    for stage in STAGES:
        say(world, stage)
    keep(world.connect())
    say(world, "text", text="Rye bread")


def requests_of(world: World) -> int:
    bucket = world.connect()
    keep(bucket)
    count: int = bucket.hands.count
    return count


with worlds() as tried:
    prepared(tried)
    REQUESTS = requests_of(tried)


@pytest.mark.parametrize("fault", [*FAULTS, *DEATHS])
def test_the_row_is_what_the_facts_say_whatever_request_fails(fault: str) -> None:
    for at in range(REQUESTS):
        with worlds() as world:
            prepared(world)
            with contextlib.suppress(Killed, Unavailable, Contended):
                keep(world.connect(at=at, fault=fault))
            (row,) = rows(world)
            assert row["text"] in ("Rye", "Rye bread"), "either the old row or the new one"
            keep(world.connect())  # the event was not settled, and comes again
            (row,) = rows(world)
            assert (row["text"], row["alt"]) == ("Rye bread", "A photo. Text in it: Rye bread"), (at, fault)


@pytest.mark.parametrize("changed", ["text", "policy"])
def test_two_keepers_at_one_row_leave_the_newest_facts(changed: str) -> None:
    """Between any two requests of one keeper, facts change and another keeper does all of its work."""
    for at in range(REQUESTS):
        with worlds() as world:
            prepared(world)
            slow = world.connect()

            def meddle(number: int, _: Any, at: int = at, world: World = world) -> None:
                if number == at:
                    say(world, changed, **{"text": {"text": "Plum cake"}, "policy": {"verdict": "flagged"}}[changed])
                    keep(world.connect())

            slow.hands.meddle = meddle
            keep(slow)
            (row,) = rows(world)
            assert (row["text"], row["verdict"]) == (
                ("Plum cake", "fine") if changed == "text" else ("Rye bread", "flagged")
            ), at


def test_facts_that_go_while_the_row_is_made_leave_none() -> None:
    for at in range(REQUESTS):
        with worlds() as world:
            prepared(world)
            slow = world.connect()

            def meddle(number: int, _: Any, at: int = at, world: World = world) -> None:
                if number == at:
                    for stage in STAGES:
                        world.delete(facts_key(KEY, stage))
                    keep(world.connect())

            slow.hands.meddle = meddle
            keep(slow)
            assert rows(world) == [], at


def handled(world: World, bucket: Any, seconds: float) -> Any:
    images = Images(bucket)
    event = Images(world.connect()).event(KEY, 1_700_000_000 + seconds)
    return images.pipelines()[pipeline_of("thumbnails")].watcher(bucket)(event)


def put(world: World, version: int) -> None:
    world.write(KEY, IMAGES[version])


def made(world: World) -> dict[str, bytes]:
    return {**world.objects("thumbs/"), **world.objects("facts/")}


@pytest.fixture(scope="module")
def expected() -> tuple[dict[str, bytes], dict[str, bytes], int]:
    """What comes of the first version and of the second, and how many requests the second takes."""
    with worlds() as world:
        put(world, 0)
        handled(world, world.connect(), 0)
        old = made(world)
        put(world, 1)
        bucket = world.connect()
        handled(world, bucket, 100)
        return old, made(world), bucket.hands.count


@pytest.mark.parametrize("fault", [*FAULTS, *DEATHS])
def test_thumbnails_are_those_of_the_new_version_whatever_request_fails(
    fault: str, expected: tuple[dict[str, bytes], dict[str, bytes], int]
) -> None:
    old, new, count = expected
    assert set(old) == set(new) and old != new and len(new) == 4
    for at in range(count):
        with worlds() as world:
            put(world, 0)
            handled(world, world.connect(), 0)
            put(world, 1)
            with contextlib.suppress(Killed, Unavailable, Contended):
                handled(world, world.connect(at=at, fault=fault), 100)
            assert all(body in (old[key], new[key]) for key, body in made(world).items()), (
                "each is old or new, and whole"
            )
            assert set(made(world)) == set(new), "readers never find neither"
            world.advance(3600)
            assert handled(world, world.connect(), 100) == Done()
            found = made(world)
            assert {key: _plain(found[key]) for key in found} == {key: _plain(new[key]) for key in new}, (at, fault)


def _plain(body: bytes) -> Any:
    """Facts without the version, which every store numbers in its own way."""
    if not body.startswith(b"{"):
        return body
    return {**msgspec.json.decode(body), "version": ""}
