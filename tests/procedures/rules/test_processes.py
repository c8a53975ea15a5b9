"""Real processes on a real folder, killed between two requests: everything is told and handled all the same."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from procedures.objects.world import World, told
from procedures.rules.actor import ROUTE

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("processes")]

ACTOR = Path(__file__).with_name("actor.py")
SECONDS_MAX = 30


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[World]:
    """The bucket as a process sees it that lives on; its clock can be moved on past notes and leases."""
    world = World("folder", tmp_path / "bucket", prefix="")
    world.url = f"file://{tmp_path}/bucket"  # type: ignore[attr-defined]
    yield world
    world.close()


def start(world: World, *arguments: object) -> subprocess.Popen[str]:
    url: str = world.url  # type: ignore[attr-defined]
    return subprocess.Popen(
        [sys.executable, str(ACTOR), url, *map(str, arguments)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def kill(process: subprocess.Popen[str]) -> bool:
    """Kill an actor where it stops; False if it got through before that."""
    try:
        assert process.stdout is not None
        line = process.stdout.readline().strip()
    finally:
        process.kill()
        _, errors = process.communicate(timeout=SECONDS_MAX)
    assert line in ("stopped", "done"), errors
    return line == "stopped"


def killed(world: World, *actors: tuple[object, ...]) -> list[bool]:
    """Have actors run at the same time, and kill each where it stops."""
    return [kill(process) for process in [start(world, *each) for each in actors]]


def settle(world: World) -> Any:
    """Long after: whoever lives on does the chores and the work."""
    world.advance(200)
    bucket = world.connect()
    bucket.recover()
    bucket.watch(ROUTE, name="route", start="beginning", concurrency=1)(
        lambda change: change.move("out/" + change.name)
    )
    for _ in range(3):
        bucket.run_watchers(stop_when_empty=True, signals=False)
        world.advance(200)
    world.advance(4000)
    bucket.recover()
    assert world.notes() == []
    return bucket


def test_a_writer_killed_between_its_write_and_its_report_is_reported(folder: World) -> None:
    folder.connect().put("in/warm", "x")
    stopped = killed(folder, *(("put", f"in/{at}", at) for at in range(0, 12, 2)))
    assert stopped[:3] == [True] * 3
    written = {key.removeprefix("in/") for key in folder.objects("in/")} - {"warm"}
    assert written
    assert len(written) < len(stopped)
    bucket = settle(folder)
    assert set(folder.objects()) == {"out/warm", *(f"out/{name}" for name in written)}
    created = [event.key for event in told(bucket) if event.kind in ("created", "changed")]
    assert sorted(created) == sorted({"in/warm", *(f"in/{name}" for name in written)})


def test_a_mover_killed_anywhere_leaves_each_object_in_one_place(folder: World) -> None:
    setup = folder.connect()
    places = range(1, 10, 2)
    for at in places:
        setup.put(f"a/{at}", "x")
    assert any(killed(folder, *(("move", f"a/{at}", f"b/{at}", at) for at in places)))
    bucket = settle(folder)
    for at in places:
        assert (f"a/{at}" in folder.objects()) != (f"b/{at}" in folder.objects())
    moved = sorted(event.key for event in told(bucket) if event.kind == "moved")
    assert moved == sorted(folder.objects("b/"))


def test_a_deleter_killed_anywhere_has_its_deletion_told(folder: World) -> None:
    setup = folder.connect()
    places = range(1, 7, 2)
    for at in places:
        setup.put(f"a/{at}", "x")
    assert any(killed(folder, *(("delete", f"a/{at}", at) for at in places)))
    bucket = settle(folder)
    deleted = {event.key for event in told(bucket) if event.kind == "deleted"}
    assert deleted == {f"a/{at}" for at in places} - set(folder.objects())


def test_a_watcher_killed_in_the_middle_of_its_handler_is_followed_by_another(folder: World) -> None:
    setup = folder.connect()
    for n in range(3):
        setup.put(f"in/{n}", "x")
    assert killed(folder, ("handle",)) == [True]
    settle(folder)
    assert set(folder.objects()) == {f"out/{n}" for n in range(3)}


def test_a_router_killed_at_any_request_of_its_move_leaves_each_object_in_one_place(folder: World) -> None:
    setup = folder.connect()
    names = []
    for at in (1, 4, 5, 7):
        names.append(f"{at}")
        setup.put(f"in/{at}", "x")
        killed(folder, ("watch", at))
        folder.advance(200)
    bucket = settle(folder)
    assert set(folder.objects()) == {f"out/{name}" for name in names}
    moved = [event.key for event in told(bucket) if event.kind == "moved"]
    assert sorted(set(moved)) == sorted(f"out/{name}" for name in names)
    assert bucket.queue("events").dead_letters.peek() == []
