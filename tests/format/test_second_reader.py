"""Promise: everything in the bucket is readable without this library. A reader that was written from docs/format
alone agrees with the library on golden files, on simulated buckets in the middle of chaos, and on real folders."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest

import bucketmq
from bucketmq.log import documents, segment
from bucketmq.log.layout import QueueKeys, join
from bucketmq.queue.head import Head
from bucketmq.queue.message import Message
from bucketmq.queue.routing import shard_of
from bucketmq.testing.simulation.plan import LEVEL, draw
from bucketmq.testing.simulation.run import Run, quiet
from bucketmq.testing.simulation.store import SimStore
from format import second_reader as second

GOLDEN = Path(__file__).parents[1] / "log" / "golden"
LOOK_EVERY = 40
"""A bucket of the simulator is compared after so many changes."""


def states_of(head: Head) -> dict[int, tuple[str, int]]:
    """The listed offsets, as the library reads them."""
    listed = [(held.span, "held", held.attempt) for lease in head.leases for held in lease.held]
    listed += [(each.span, "waiting", each.attempts) for each in head.waiting]
    listed += [(each.span, "moving", each.attempts) for each in head.moving]
    return {offset: (state, attempts) for span, state, attempts in listed for offset in range(span.start, span.stop)}


def messages_of(objects: second.Objects, keys: QueueKeys, key: str, base: int) -> list[Message]:
    """The messages of a segment, of lines or of parts, as the library reads them."""
    read = segment.Segment(base, objects[key])
    if not read.parts:
        return list(read.check())
    names = [join(keys.root, part.key) for part in read.parts]
    return [message for name in names for message in segment.decode_lines(objects[name], name)]


def agree(objects: second.Objects, prefix: str = "") -> int:
    """Compare both readers on every queue; how many messages they agreed on."""
    compared = 0
    for name in second.queues(objects, prefix):
        queue, keys = second.read(objects, name, prefix), QueueKeys(prefix, name)
        for shard, made in queue.shards.items():
            assert not made.holes
            theirs = {}
            for key in sorted(key for key in objects if key.startswith(keys.log(shard))):
                base = int(key.rsplit("/", 1)[1].removesuffix(".ndjson"))
                if base >= made.low:
                    theirs |= dict(enumerate(messages_of(objects, keys, key, base), start=base))
            assert {offset: message["id"] for offset, message in made.messages.items()} == {
                offset: message.id for offset, message in theirs.items()
            }
            for offset, message in theirs.items():
                assert made.messages[offset].get("key") == message.key
                assert made.messages[offset].get("to") == message.to
            compared += len(theirs)
        for (subscription, shard), standing in queue.heads.items():
            key = keys.head(subscription, shard)
            head = documents.decode_head(objects[key], key)
            assert (standing.next, standing.segment, standing.version) == (head.next, head.segment, head.version)
            assert standing.states == states_of(head)
    return compared


class Both:
    """Tells the simulator's auditor of every change, and compares the readers now and then."""

    def __init__(self, store: SimStore) -> None:
        self._store, self._auditor = store, store.witness
        self.changes = self.compared = 0
        self.problems: list[BaseException] = []
        """Kept, because the simulator takes an exception for a process that dies."""

    def landed(self, who: str, key: str, body: bytes | None) -> None:
        assert self._auditor is not None
        self._auditor.landed(who, key, body)
        self.changes += 1
        if self.changes % LOOK_EVERY == 0:
            self.look()

    def look(self) -> None:
        try:
            self.compared += agree({key: found.body for key, found in self._store.objects.items()})
        except (AssertionError, second.Damaged, bucketmq.BucketMQError) as error:
            self.problems.append(error)


@pytest.mark.parametrize("seed", range(25))
def test_both_readers_agree_on_a_simulated_bucket_at_any_moment(seed: int) -> None:
    with quiet():
        run = Run(draw(seed, None, LEVEL))
        both = Both(run.store)
        run.store.witness = both
        run.report()
    both.look()
    assert not both.problems
    assert both.compared


def test_the_second_reader_imports_nothing_of_the_library() -> None:
    tree = ast.parse(Path(second.__file__).read_text())
    names = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
    names |= {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not any(name.startswith("bucketmq") for name in names)


def test_golden_files_read_the_same() -> None:
    objects = {
        "queues/q/queue.json": (GOLDEN / "queue.json").read_bytes(),
        "queues/q/heads/main/0.json": (GOLDEN / "head.json").read_bytes(),
        "queues/q/heads/new/0.json": (GOLDEN / "head-new.json").read_bytes(),
        "queues/q/log/0/00000000000000000000.ndjson": (GOLDEN / "segment.ndjson").read_bytes(),
        "queues/q/hint/0.json": (GOLDEN / "hint.json").read_bytes(),
    }
    assert agree(objects) >= 3


def test_shards_of_keys_are_the_same() -> None:
    for count in (1, 2, 3, 7, 64, 1024):
        for number in range(200):
            assert second.shard_of(count, f"key-{number}") == shard_of(count, f"key-{number}", 0)


def test_bodies_of_every_kind_are_read_from_a_folder(tmp_path: Path) -> None:
    sent: list[Any] = [{"n": 1}, "text", b"\x00\xff", None, [1, {"deep": [2.5]}], "x" * 100_000, b"y" * 100_000]
    with bucketmq.connect(str(tmp_path / "inbox")) as bucket:
        queue = bucket.queue("jobs")
        queue.send_many(sent)
        queue.send("later", delay_seconds=3600)
        (first,) = queue.receive(1)
        first.retry("no", delay_seconds=60)
        queue.flush()
    objects = {
        path.relative_to(tmp_path / "inbox").as_posix(): path.read_bytes()
        for path in (tmp_path / "inbox").rglob("*")
        if path.is_file() and "/." not in path.as_posix()
    }
    read = second.read(objects, "jobs")
    messages = read.shards[0].messages
    assert [second.body_of(objects, "queues/jobs", messages[offset]) for offset in sorted(messages)] == sent
    assert [message["body"] for message in read.delayed] == ["later"]
    assert read.heads["main", 0].state(0) == "waiting"
    assert read.heads["main", 0].state(1) == "fresh"


@pytest.mark.parametrize(
    ("key", "body"),
    [
        ("log/0/00000000000000000000.ndjson", b'{"id":"a","at":"2026-11-15T12:00:00.000Z","body":1}'),
        ("log/0/00000000000000000000.ndjson", b"not JSON\n"),
        ("heads/main/0.json", b'{"next":2,"segment":0,"waiting":[{"span":[0,1,3]}],"format":1}\n'),
        ("heads/main/0.json", b'{"next":0,"segment":0,"format":2}\n'),
    ],
)
def test_both_readers_refuse_the_same_damage(key: str, body: bytes) -> None:
    objects = {f"queues/q/{key}": body}
    with pytest.raises(second.Damaged):
        second.read(objects, "q")
    with pytest.raises(bucketmq.BucketMQError):
        if key.startswith("log"):
            segment.Segment(0, body).check()
        else:
            documents.decode_head(body, key)


def test_both_readers_say_alike_what_is_paused() -> None:
    for name in ("queue.json", "queue-paused.json"):
        body = (GOLDEN / name).read_bytes()
        settings = documents.decode_settings(body, name)
        theirs = second.read({"queues/jobs/queue.json": body}, "jobs")
        for subscription in ("main", "audit"):
            assert second.paused(theirs, subscription) == settings.pause_of(subscription)
