"""Instant events of a folder: each change once, with the sweep's ids and our writers', and none of our own files."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from bucketmq.bucket.folder import FolderStore
from bucketmq.client import Bucket, connect
from bucketmq.events.event import ObjectEvent
from bucketmq.server import files
from server.running import Running, aio_on, delivered, logged, serving, settings_with, until


@pytest.fixture
def bucket(folder: Path) -> Iterator[Bucket]:
    with connect(f"file://{folder}", probe=False) as opened:
        yield opened


def watching(folder: Path, **options: object) -> object:
    return serving(lambda: aio_on(FolderStore(folder)), settings_with(files=True, **options))


@pytest.fixture
def watched(folder: Path) -> Iterator[Running]:
    with watching(folder) as running:  # type: ignore[attr-defined]
        yield running


def told(bucket: Bucket, count: int) -> list[ObjectEvent]:
    """So many events, as soon as they are there."""
    until(lambda: len(logged(bucket)) >= count)
    return delivered(bucket)


def kinds(events: list[ObjectEvent]) -> list[tuple[str, str]]:
    return [(event.kind, event.key) for event in events]


def test_a_file_that_comes_changes_and_goes_makes_three_events(folder: Path, bucket: Bucket, watched: Running) -> None:
    (folder / "in").mkdir()
    (folder / "in" / "a.txt").write_text("one")
    (created,) = told(bucket, 1)
    (folder / "in" / "a.txt").write_text("two!")
    (changed,) = told(bucket, 2)
    (folder / "in" / "a.txt").unlink()
    (deleted,) = told(bucket, 3)
    assert kinds([created, changed, deleted]) == [
        ("created", "in/a.txt"),
        ("changed", "in/a.txt"),
        ("deleted", "in/a.txt"),
    ]
    assert {event.source for event in (created, changed, deleted)} == {"files"}
    assert (created.size_bytes, changed.size_bytes) == (3, 4)
    assert deleted.seen_at == changed.at and deleted.at >= changed.at


def test_the_sweep_tells_the_same_under_the_same_ids(folder: Path, bucket: Bucket, watched: Running) -> None:
    (folder / "a.txt").write_text("one")
    (created,) = told(bucket, 1)
    assert bucket.sweep().created == 1
    assert [body["id"] for body in logged(bucket)] == [created.id] * 2
    assert not delivered(bucket)
    (folder / "a.txt").unlink()
    (deleted,) = told(bucket, 3)
    assert bucket.sweep().deleted == 1
    assert [body["id"] for body in logged(bucket)][2:] == [deleted.id] * 2
    assert not delivered(bucket)


def test_what_our_own_writers_do_is_told_once(folder: Path, bucket: Bucket, watched: Running) -> None:
    bucket.put("pending/1.json", {"n": 1})
    bucket.put("pending/1.json", {"n": 2})
    bucket.put("pending/2.json", {"n": 1})
    bucket.delete("pending/2.json")
    (folder / "last.txt").write_text("a foreign file, so that the watch is known to have caught up")
    until(lambda: any(body["key"] == "last.txt" for body in logged(bucket)))
    events = [event for event in delivered(bucket) if event.key != "last.txt"]
    assert sorted(kinds(events)) == [
        ("changed", "pending/1.json"),
        ("created", "pending/1.json"),
        ("created", "pending/2.json"),
        ("deleted", "pending/2.json"),
    ]
    assert len(logged(bucket)) > 5  # both told, and the log has both


def test_our_own_files_and_what_was_there_before_are_no_news(folder: Path, bucket: Bucket) -> None:
    (folder / "old.txt").write_text("here before")
    with watching(folder):  # type: ignore[attr-defined]
        bucket.queue("jobs").send({"n": 1})
        (folder / ".bucketmq" / "tmp" / "x").parent.mkdir(parents=True, exist_ok=True)
        (folder / ".bucketmq" / "tmp" / "x").write_text("")
        os.utime(folder / "old.txt", ns=((folder / "old.txt").stat().st_mtime_ns,) * 2)  # touched, not changed
        (folder / "link").symlink_to(folder / "old.txt")
        os.mkfifo(folder / "pipe")
        (folder / "new.txt").write_text("x")
        assert kinds(told(bucket, 1)) == [("created", "new.txt")]
    assert len(logged(bucket)) == 1


def test_folders_that_come_and_go_stand_for_their_files(folder: Path, bucket: Bucket, watched: Running) -> None:
    outside = folder.parent / f"{folder.name}-outside"
    try:
        (outside / "deep" / "er").mkdir(parents=True)
        for number in range(3):
            (outside / "deep" / "er" / f"{number}.txt").write_text("x")
        (outside / "deep").rename(folder / "deep")
        assert sorted(kinds(told(bucket, 3))) == [("created", f"deep/er/{number}.txt") for number in range(3)]
        (folder / "deep").rename(outside / "gone")
        assert sorted(kinds(told(bucket, 6))) == [("deleted", f"deep/er/{number}.txt") for number in range(3)]
    finally:
        shutil.rmtree(outside, ignore_errors=True)


def test_a_new_tree_that_is_filled_at_once_is_not_missed(folder: Path, bucket: Bucket, watched: Running) -> None:
    for number in range(20):
        place = folder / f"tree-{number}" / "a" / "b"
        place.mkdir(parents=True)
        (place / "file.txt").write_text("x")
    assert sorted(kinds(told(bucket, 20))) == sorted(("created", f"tree-{number}/a/b/file.txt") for number in range(20))


def test_more_changes_than_are_looked_at_one_by_one_are_found_by_listing(
    folder: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(files.FolderWatch.__init__, "__kwdefaults__", {"keys_max": 1_000, "changes_max": 5})
    (folder / "goes.txt").write_text("x")
    with watching(folder) as running:  # type: ignore[attr-defined]
        for number in range(50):
            (folder / f"{number}.txt").write_text("x")
        (folder / "goes.txt").unlink()
        expected = {("created", f"{number}.txt") for number in range(50)} | {("deleted", "goes.txt")}
        found: set[tuple[str, str]] = set()

        def all_there() -> bool:
            found.update(kinds(delivered(bucket)))
            return found >= expected

        until(all_there)
        assert found == expected
        assert running.parts.counters.read("file_overflows_total") >= 1


def test_what_happened_while_nobody_watched_is_found_where_a_sweep_was_made(folder: Path, bucket: Bucket) -> None:
    (folder / "old.txt").write_text("x")
    bucket.sweep(baseline=True)
    (folder / "meanwhile.txt").write_text("x")
    with watching(folder):  # type: ignore[attr-defined]
        assert kinds(told(bucket, 1)) == [("created", "meanwhile.txt")]


def test_more_files_than_are_remembered_are_watched_all_the_same(
    folder: Path, bucket: Bucket, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(files.FolderWatch.__init__, "__kwdefaults__", {"keys_max": 3, "changes_max": 100})
    for number in range(5):
        (folder / f"{number}.txt").write_text("x")
    with watching(folder):  # type: ignore[attr-defined]
        (folder / "0.txt").unlink()
        (event,) = told(bucket, 1)
        assert (event.kind, event.key, event.seen_at) == ("deleted", "0.txt", None)
        (folder / "new.txt").write_text("x")
        assert kinds(told(bucket, 2)) == [("created", "new.txt")]
    assert "bucketmq sweep --first baseline" in caplog.text


def test_changes_up_to_the_stop_are_told(folder: Path, bucket: Bucket) -> None:
    whole = folder.with_name(f"{folder.name}-whole")
    whole.write_text("x")
    with watching(folder):  # type: ignore[attr-defined]
        whole.rename(folder / "last.txt")  # at once: a file that is being written may be seen before and after
    assert kinds(delivered(bucket)) == [("created", "last.txt")]


def test_a_watcher_handles_a_file_that_another_program_wrote(folder: Path, bucket: Bucket, watched: Running) -> None:
    handled = []

    @bucket.watch('WHERE `key` REGEXP "^pending/"', start="beginning")
    def route(change: object) -> None:
        handled.append((change.kind, change.json()))  # type: ignore[attr-defined]
        change.move(f"approved/{change.name}")  # type: ignore[attr-defined]

    (folder / "pending").mkdir()
    (folder / "pending" / ".tmp").write_text('{"ok": true}')
    (folder / "pending" / ".tmp").rename(folder / "pending" / "1.json")
    until(lambda: any(body["key"] == "pending/1.json" for body in logged(bucket)))
    bucket.run_watchers(stop_when_empty=True)
    assert ("created", {"ok": True}) in handled
    assert (folder / "approved" / "1.json").read_text() == '{"ok": true}'
