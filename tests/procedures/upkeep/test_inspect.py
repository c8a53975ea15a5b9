"""Damage done by hand, one kind at a time: each is found, named by queue, shard and offset, and mended where it can be.

What mending promises: it deletes no message, and afterwards every message that can still be read and was not settled is
delivered.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import bucketmq
from bucketmq.log.layout import QueueKeys
from bucketmq.procedures.requests import List, StoreRequest
from bucketmq.procedures.segments.losses import read_losses
from bucketmq.procedures.sending.dedup import ENTRIES_MAX
from bucketmq.procedures.upkeep.inspect import Inspection, inspect
from bucketmq.procedures.upkeep.mend import Mended, mend
from bucketmq.queue.routing import digits_of

QUEUE = "jobs"
SEGMENTS = 5
PER_SEGMENT = 4
RECEIVED = 9
RETRIED = 6
"""Of the first nine messages all are settled but this one: it is to be delivered again."""


class Damaged:
    """A queue in a folder: five segments of four messages, eight of them settled, one in a retry, one delayed."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "queues" / QUEUE
        self.folder = folder
        with bucketmq.connect(str(folder)) as bucket:
            for name in (QUEUE, "other"):
                queue = bucket.queue(name)
                for segment in range(SEGMENTS if name == QUEUE else 2):
                    queue.send_many({"n": segment * PER_SEGMENT + place} for place in range(PER_SEGMENT))
                for delivery in queue.receive(RECEIVED):
                    delivery.retry("later", delay_seconds=0) if delivery.body["n"] == RETRIED else delivery.ack()
                queue.send({"n": "delayed"}, delay_seconds=3600)
                queue.send({"n": "once"}, dedup_key="k")
                queue.send({"n": "x" * 80_000})
                queue.flush()

    def segment(self, number: int) -> Path:
        return self.root / "log" / "0" / f"{number * PER_SEGMENT:020}.ndjson"

    @property
    def head(self) -> Path:
        return self.root / "heads" / "main" / "0.json"

    def change(self, path: Path, **fields: Any) -> None:
        path.write_text(json.dumps({**json.loads(path.read_text()), **fields}, separators=(",", ":")) + "\n")

    def inspect(self) -> Inspection:
        with bucketmq.connect(str(self.folder)) as bucket:
            return bucket.run(inspect("", QUEUE))

    def mend(self) -> Mended:
        with bucketmq.connect(str(self.folder)) as bucket:
            return bucket.run(mend("", QUEUE))

    def left(self) -> set[Any]:
        """What a fresh worker is given."""
        with bucketmq.connect(str(self.folder)) as bucket:
            seen = set()
            while batch := bucket.queue(QUEUE).receive(100):
                for delivery in batch:
                    seen.add(delivery.body["n"])
                    delivery.ack()
            return seen


@pytest.fixture
def queue(tmp_path: Path) -> Damaged:
    return Damaged(tmp_path / "inbox")


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-10])


def cut_a_line(path: Path) -> None:
    path.write_bytes(path.read_bytes().rsplit(b"\n", 2)[0] + b"\n")


def last(queue: Damaged) -> Path:
    return max((queue.root / "log" / "0").iterdir())


def swap_heads(queue: Damaged) -> None:
    """With the head of a queue that has come further than this one is long."""
    other = queue.folder / "queues" / "other" / "heads" / "main" / "0.json"
    queue.change(other, next=40, segment=40, waiting=[], leases=[])
    mine, theirs = queue.head.read_bytes(), other.read_bytes()
    queue.head.write_bytes(theirs)
    other.write_bytes(mine)


def raise_head(queue: Damaged, by: int) -> None:
    tail = SEGMENTS * PER_SEGMENT + 2
    queue.change(queue.head, next=tail + by, segment=tail + by, waiting=[], leases=[])


def lose_trim(queue: Damaged) -> Path:
    path = queue.root / "trim" / "0.json"
    path.parent.mkdir(exist_ok=True)
    return path


LATER = "later.json"

DAMAGES: dict[str, tuple[Callable[[Damaged], object], str]] = {
    "a segment is truncated": (lambda q: cut(q.segment(3)), "segment-unreadable"),
    "a segment is cut at a line end": (lambda q: cut_a_line(q.segment(2)), "segment-missing"),
    "a segment has a line of garbage": (lambda q: q.segment(3).write_bytes(b"garbage\n" * 4), "segment-unreadable"),
    "a segment is empty": (lambda q: q.segment(3).write_bytes(b""), "segment-unreadable"),
    "the first segment, settled, is deleted": (lambda q: q.segment(0).unlink(), "segment-missing"),
    "a segment in the middle is deleted": (lambda q: q.segment(3).unlink(), "segment-missing"),
    "the last segments are deleted": (
        lambda q: [raise_head(q, 0)] + [p.unlink() for p in sorted((q.root / "log/0").iterdir())[-2:]],
        "head-ahead",
    ),
    "all segments are deleted": (lambda q: shutil.rmtree(q.root / "log"), "head-ahead"),
    "a segment is copied into the middle of another": (
        lambda q: shutil.copy(q.segment(2), q.root / "log" / "0" / f"{9:020}.ndjson"),
        "segments-overlap",
    ),
    "something else lies among the segments": (
        lambda q: (q.root / "log" / "0" / "notes.txt").write_text("hello"),
        "not-a-segment",
    ),
    "a segment lies in the log of no shard": (
        lambda q: shutil.copytree(q.root / "log" / "0", q.root / "log" / "00"),
        "not-a-segment",
    ),
    "the settings know of fewer shards than there are": (
        lambda q: shutil.copytree(q.root / "log" / "0", q.root / "log" / "1"),
        "shard-hidden",
    ),
    "a head is garbage": (lambda q: q.head.write_bytes(b"\x00garbage"), "head-unreadable"),
    "a head is empty": (lambda q: q.head.write_bytes(b""), "head-unreadable"),
    "a head is of a newer format": (lambda q: q.change(q.head, format=2), "head-unreadable"),
    "a head is ahead of its log": (lambda q: raise_head(q, 7), "head-ahead"),
    "a head reads off a segment's boundary": (
        lambda q: q.change(q.head, segment=9),
        "head-off-boundary",
    ),
    "heads of two queues are swapped": (
        swap_heads,
        "head-ahead",
    ),
    "a segment that a head lists is deleted": (lambda q: q.segment(1).unlink(), "listed-missing"),
    "the segment that a head reads from is deleted": (lambda q: q.segment(2).unlink(), "head-in-gap"),
    "a hint is garbage": (
        lambda q: [(q.root / "hint").mkdir(exist_ok=True), (q.root / "hint" / "0.json").write_bytes(b"?")],
        "hint-unreadable",
    ),
    "a hint points beyond the log": (
        lambda q: [
            (q.root / "hint").mkdir(exist_ok=True),
            (q.root / "hint" / "0.json").write_text('{"base":999,"format":1}\n'),
        ],
        "hint-wrong",
    ),
    "a hint points into a segment": (
        lambda q: [
            (q.root / "hint").mkdir(exist_ok=True),
            (q.root / "hint" / "0.json").write_text('{"base":9,"format":1}\n'),
        ],
        "hint-wrong",
    ),
    "the settings are deleted": (lambda q: (q.root / "queue.json").unlink(), "settings-missing"),
    "the settings are garbage": (lambda q: (q.root / "queue.json").write_bytes(b"{"), "settings-unreadable"),
    "a trim mark is garbage": (lambda q: lose_trim(q).write_bytes(b"{"), "trim-mark-unreadable"),
    "a trim mark is beyond the log": (
        lambda q: lose_trim(q).write_text('{"low":5000,"format":1}\n'),
        "trim-mark-ahead",
    ),
    "a deduplication register is garbage": (
        lambda q: next(p for p in (q.root / "dedup").rglob("*") if p.is_file()).write_bytes(b"["),
        "dedup-unreadable",
    ),
    "the register of delayed messages is garbage": (
        lambda q: (q.root / LATER).write_bytes(b"["),
        "delayed-register-unreadable",
    ),
    "a delayed message is garbage": (
        lambda q: next(p for p in (q.root / "later").rglob("*.ndjson")).write_bytes(b"["),
        "delayed-unreadable",
    ),
    "a large body is deleted": (lambda q: next((q.root / "bodies").iterdir()).unlink(), "body-missing"),
}

ALL = {RETRIED, *range(RECEIVED, SEGMENTS * PER_SEGMENT), "once", "x" * 80_000}
"""What was not settled and is not delayed."""

UNMENDABLE = {
    "segment-unreadable",
    "segments-overlap",
    "not-a-segment",
    "delayed-unreadable",
    "body-missing",
}


def test_a_healthy_queue_has_no_findings(queue: Damaged) -> None:
    found = queue.inspect()
    assert found.findings == ()
    assert (found.segments, found.messages, found.heads) == (SEGMENTS + 2, SEGMENTS * PER_SEGMENT + 2, 1)


@pytest.mark.parametrize("name", DAMAGES)
def test_damage_is_found_and_names_its_place(name: str, queue: Damaged) -> None:
    damage, kind = DAMAGES[name]
    damage(queue)
    findings = {finding.kind: finding for finding in queue.inspect().findings}
    assert kind in findings, findings
    finding = findings[kind]
    assert finding.queue == QUEUE
    assert finding.key.startswith(f"queues/{QUEUE}/")
    assert finding.what
    assert finding.cure
    if kind.startswith(("segment-", "head-ahead", "hint-wrong", "listed", "shard-")):
        assert finding.shard == (1 if kind == "shard-hidden" else 0)
        assert finding.offset is not None


@pytest.mark.parametrize("name", DAMAGES)
def test_what_can_be_mended_is_and_everything_readable_is_delivered(name: str, queue: Damaged) -> None:
    damage, kind = DAMAGES[name]
    damage(queue)
    before = {path: path.read_bytes() for path in (queue.root / "log").rglob("*") if path.is_file()}
    mended = queue.mend()
    assert {path: path.read_bytes() for path in before} == before, "mending changes no segment"
    left = {finding.kind for finding in mended.left}
    if kind in UNMENDABLE or name == "a head is of a newer format":
        assert kind in left
        return
    assert left == set()
    assert kind in {finding.kind for finding in mended.mended}
    assert queue.inspect().findings == ()
    there = {
        json.loads(line)["body"]["n"] if "body" in json.loads(line) else "x" * 80_000
        for path in (queue.root / "log").rglob("*.ndjson")
        for line in path.read_text().splitlines()
    }
    assert queue.left() >= ALL & there


def test_a_replaced_object_is_kept_beside(queue: Damaged) -> None:
    queue.head.write_bytes(b"garbage")
    queue.mend()
    (kept,) = (path for path in (queue.root / "damaged").rglob("*.json"))
    assert kept.read_bytes() == b"garbage"
    assert kept.relative_to(queue.root / "damaged").parts[1:] == ("heads", "main", "0.json")


def test_hidden_shards_are_told_by_stats_and_handed_out_when_mended(tmp_path: Path) -> None:
    """An older `queue.json` was put back: nobody looks at the shards that were added since."""
    damaged = Damaged(tmp_path / "inbox")
    older = (damaged.root / "queue.json").read_bytes()
    with bucketmq.connect(str(damaged.folder)) as bucket:
        queue = bucket.queue(QUEUE, shards=3)
        for n in range(30):
            queue.send({"n": f"in the other shards {n}"}, key=str(n))
        for delivery in queue.receive(100):
            delivery.retry("later", delay_seconds=0)
        queue.flush()
    (damaged.root / "queue.json").write_bytes(older)
    with bucketmq.connect(str(damaged.folder)) as bucket:
        (told,) = (line for line in bucket.queue(QUEUE).stats().advice if "heads of" in line)
    assert "queue.json says 1 shards, but there are heads of" in told
    assert {finding.kind for finding in damaged.mend().mended} == {"shard-hidden"}
    assert {f"in the other shards {n}" for n in range(30)} - damaged.left() == set()


def test_settings_that_are_changed_during_an_inspection_are_not_changed_back(tmp_path: Path) -> None:
    damaged = Damaged(tmp_path / "inbox")
    shutil.copytree(damaged.root / "log" / "0", damaged.root / "log" / "1")

    class Meddling:
        """Changes a setting when the first inspection has read all of them and goes on."""

        done = False

        def on_request(self, request: StoreRequest, reply: object, seconds: float) -> None:
            if isinstance(request, List) and not self.done:
                self.done = True
                damaged.change(damaged.root / "queue.json", lease_seconds=7.0)

    with bucketmq.connect(str(damaged.folder)) as bucket:
        bucket.observe(Meddling())
        mended = bucket.run(mend("", QUEUE))
    assert mended.left == ()
    with bucketmq.connect(str(damaged.folder)) as bucket:
        settings = bucket.queue(QUEUE).settings()
    assert (settings.shards, settings.lease_seconds) == (2, 7.0)


def test_hidden_shards_of_an_ordered_queue_are_left_to_a_person(tmp_path: Path) -> None:
    """Their keys have been sent to other shards since: raising the count needs fences."""
    damaged = Damaged(tmp_path / "inbox")
    damaged.change(damaged.root / "queue.json", ordered=True)
    shutil.copytree(damaged.root / "log" / "0", damaged.root / "log" / "1")
    (finding,) = (each for each in damaged.inspect().findings if each.kind == "shard-hidden")
    assert not finding.mendable
    assert finding.cure == "raise the shard count to 2, or restore the settings"


def test_a_loss_is_recorded_once(queue: Damaged) -> None:
    queue.segment(3).unlink()
    queue.mend()
    queue.mend()
    with bucketmq.connect(str(queue.folder)) as bucket:
        losses = bucket.run(read_losses(QueueKeys("", QUEUE)))
    assert [(each.start, each.stop) for each in losses.lost[0]] == [(12, 16)]
    assert queue.inspect().lost == PER_SEGMENT


def test_stats_tell_of_losses(queue: Damaged) -> None:
    queue.segment(3).unlink()
    queue.mend()
    with bucketmq.connect(str(queue.folder)) as bucket:
        found = bucket.queue(QUEUE).stats()
    assert found.lost == PER_SEGMENT
    assert any("4 messages are lost; which, says bucketmq doctor --deep jobs" in line for line in found.advice)


def test_stats_of_a_queue_whose_losses_cannot_be_read_say_so(queue: Damaged) -> None:
    (queue.root / "losses.json").write_bytes(b"garbage")
    with bucketmq.connect(str(queue.folder)) as bucket:
        found = bucket.queue(QUEUE).stats()
    assert found.lost == 0
    assert any("whether messages were lost is not known" in line for line in found.advice)


def test_before_a_head_is_moved_back_the_dry_run_says_how_much_is_delivered_again(queue: Damaged) -> None:
    raise_head(queue, 7)
    (finding,) = queue.inspect().findings
    kept = sum(len(path.read_bytes().splitlines()) for path in (queue.root / "log").rglob("*.ndjson"))
    assert finding.cure == f"begin again at 0; what is kept, {kept} in all, is delivered again, settled or not"
    queue.mend()
    assert len(queue.left()) >= kept


def test_what_changed_since_the_inspection_is_left_alone(queue: Damaged) -> None:
    """Two who mend at a time, or a worker that is alive."""
    raise_head(queue, 7)
    first = queue.inspect().findings[0]
    queue.mend()
    mended = queue.head.read_bytes()
    assert first.rewrite is not None
    from bucketmq.procedures.upkeep.mend import _rewrite

    with bucketmq.connect(str(queue.folder)) as bucket:
        assert bucket.run(_rewrite(QueueKeys("", QUEUE), first.rewrite)) is True, "it is as it should be already"
    assert queue.head.read_bytes() == mended


def test_a_split_register_of_deduplication_keys_that_is_mended_is_still_split(queue: Damaged) -> None:
    """Or keys in the registers below it would be entered again."""
    slot = next(iter((queue.root / "dedup").iterdir())).stem
    keys = [key for key in map(str, range(1000)) if int(digits_of(key)[:2], 16) % 16 == int(slot)][: ENTRIES_MAX + 5]
    with bucketmq.connect(str(queue.folder)) as bucket:
        for key in keys:
            bucket.queue(QUEUE).send({"n": key}, dedup_key=key)
    (queue.root / "dedup" / f"{slot}.json").write_bytes(b"[")
    assert [finding.kind for finding in queue.inspect().findings] == ["dedup-unreadable"]
    queue.mend()
    with bucketmq.connect(str(queue.folder)) as bucket:
        assert bucket.queue(QUEUE).send({"n": "again"}, dedup_key=keys[-1]).duplicate
