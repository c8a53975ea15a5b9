"""What the tests of sweeps share, whoever sweeps: objects, changes to them, and what must be found out of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

import bucketmq
from bucketmq.events.inventory import Manifest
from bucketmq.procedures.objects.sweep import sweep as sweep_with
from procedures.objects.world import World, told

Sweep = Callable[..., Any]
"""Sweeps a bucket: alone, or in shares."""


def sweep(bucket: Any, **options: Any) -> Any:
    """Small ranges, which the facade has no word for."""
    return bucket.run(sweep_with(bucket.run(bucket.api.open()), **{"range_keys": 3, **options}))


def told_by_sweep(bucket: Any) -> list[tuple[str, str]]:
    """What sweeps told, each once, in the order of keys."""
    return sorted((event.key, event.kind) for event in told(bucket) if event.source == "sweep")


def fill(world: World, keys: int = 10) -> None:
    for n in range(keys):
        world.write(f"k/{n:02}", b"old")


def all_new(keys: int = 10) -> list[tuple[str, str]]:
    """What a sweep should tell of `fill`."""
    return [(f"k/{n:02}", "created") for n in range(keys)]


def change(world: World) -> list[tuple[str, str]]:
    """One of each; what a sweep should tell of it."""
    world.advance(5)
    world.write("k/01", b"newer")
    world.write("k/05", b"old")  # the same bytes again are a change too
    world.delete("k/03")
    world.delete("k/09")
    world.write("k/035", b"x")
    world.write("z", b"x")
    return sorted(
        [
            ("k/01", "changed"),
            ("k/05", "changed"),
            ("k/03", "deleted"),
            ("k/09", "deleted"),
            ("k/035", "created"),
            ("z", "created"),
        ]
    )


def check_inventory(world: World, name: str = "all") -> None:
    """The manifest names what is there, without gaps or overlaps, and after a while nothing else is left."""
    world.advance(4000)
    sweep(world.connect())
    everything = world.everything()
    folder = f"inventory/sweeps/{name}/"
    manifest = msgspec.json.decode(everything[f"{folder}manifest.json"], type=Manifest)
    chunks = [key for key in everything if key.startswith(f"{folder}chunks/")]
    assert sorted(chunks) == sorted(f"{folder}chunks/{chunk.name}.ndjson" for chunk in manifest.chunks)
    listed = []
    for chunk in manifest.chunks:
        lines = everything[f"{folder}chunks/{chunk.name}.ndjson"].split()
        listed += [msgspec.json.decode(line)[0] for line in lines]
    assert listed == sorted(world.objects())
    assert manifest.position == ""


def chunk_of(world: World) -> str:
    """A part of the inventory."""
    return next(key for key in world.everything() if "/chunks/" in key)


def has_begun(world: World) -> bool:
    """Whether a first sweep came as far as to say how it began, which counts for whoever goes on."""
    return any(key.endswith("manifest.json") for key in world.everything())


def check_bad_answer(world: World, run: Sweep, *, at: int, fault: str) -> bool:
    """One request of a sweep is answered badly, and nothing comes of it. Whether there was such a request."""
    fill(world, 7)
    run(world.connect(), baseline=True)
    expected = [each for each in change(world) if each[0] != "k/09"]
    bucket = world.connect(at=at, fault=fault)
    try:
        run(bucket)
    except bucketmq.Unavailable:
        pass
    hit: bool = bucket.hands.hit
    calm = world.connect()
    run(calm)
    assert told_by_sweep(calm) == expected, (at, fault)
    check_inventory(world)
    return hit


def check_rival(world: World, run: Sweep, rival: Sweep, *, at: int) -> bool:
    """Another sweeps from beginning to end within one request of a sweep, and everything is told once. Whether there
    was such a request."""
    fill(world)
    sweep(world.connect(), baseline=True)
    expected = change(world)
    first, second = world.connect(), world.connect()
    done: list[int] = []

    def meddle(number: int, request: Any) -> None:
        if number == at and not done:
            done.append(number)
            world.write("k/00", b"while they sweep")
            rival(second, range_keys=2)

    first.hands.meddle = meddle
    run(first)
    if not done:
        return False
    sweep(second)
    assert told_by_sweep(second) == sorted([("k/00", "changed"), *expected]), at
    check_inventory(world)
    return True
