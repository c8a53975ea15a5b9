"""Damage that used to be silent: a deleted segment hid what lay behind it, a head beyond its log swallowed sends."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bucketmq
from bucketmq.log.layout import QueueKeys
from bucketmq.procedures.segments.losses import read_losses
from bucketmq.procedures.segments.tail import HEADS_SECONDS
from bucketmq.procedures.upkeep.mend import mend
from procedures.world import PREFIX, World, drain

PER_SEGMENT = 3


class Inbox:
    """A queue of four segments in a folder. Every call is a fresh process, as far as a bucket knows."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = folder / "queues" / "jobs"
        with self.connect() as bucket:
            for number in range(4):
                bucket.queue("jobs").send_many(range(number * PER_SEGMENT, (number + 1) * PER_SEGMENT))

    def connect(self) -> bucketmq.Bucket:
        return bucketmq.connect(str(self.folder))

    def send(self, body: Any) -> int:
        with self.connect() as bucket:
            return bucket.queue("jobs").send(body).offset

    def receive(self, limit: int = 100) -> list[Any]:
        """Received and settled by a process of its own."""
        with self.connect() as bucket:
            found = []
            while len(found) < limit and (batch := bucket.queue("jobs").receive(limit - len(found))):
                for delivery in batch:
                    found.append(delivery.body)
                    delivery.ack()
            return found

    def segment(self, number: int) -> Path:
        return self.root / "log" / "0" / f"{number * PER_SEGMENT:020}.ndjson"

    @property
    def head(self) -> Path:
        return self.root / "heads" / "main" / "0.json"

    def set_head(self, **fields: int) -> None:
        self.head.write_text(json.dumps({**json.loads(self.head.read_text()), **fields}, separators=(",", ":")) + "\n")

    def losses(self) -> list[tuple[int, int]]:
        with self.connect() as bucket:
            found = bucket.run(read_losses(QueueKeys("", "jobs")))
        return [(each.start, each.stop) for each in found.lost.get(0, ())]


@pytest.fixture
def inbox(tmp_path: Path) -> Iterator[Inbox]:
    yield Inbox(tmp_path / "inbox")


def test_what_lies_behind_a_deleted_segment_is_delivered_and_the_loss_is_recorded(
    inbox: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    inbox.segment(1).unlink()

    with caplog.at_level(logging.ERROR, "bucketmq"):
        assert inbox.receive() == [0, 1, 2, 6, 7, 8, 9, 10, 11]

    assert inbox.losses() == [(3, 6)]
    assert "action=messages_lost queue=jobs shard=0 start=3 stop=6" in caplog.text


def test_a_fresh_sender_appends_behind_a_hole_and_not_into_it(inbox: Inbox) -> None:
    inbox.segment(2).unlink()

    assert inbox.send("new") == 4 * PER_SEGMENT

    assert inbox.receive() == [0, 1, 2, 3, 4, 5, 9, 10, 11, "new"]


def test_a_fresh_sender_does_not_begin_at_0_when_the_first_segment_is_gone(inbox: Inbox) -> None:
    assert inbox.receive(PER_SEGMENT) == [0, 1, 2]
    inbox.segment(0).unlink()

    assert inbox.send("new") == 4 * PER_SEGMENT
    assert inbox.receive()[-1] == "new"
    assert inbox.losses() == [], "it was settled"


def test_what_is_in_a_retry_before_a_gap_survives_it(inbox: Inbox) -> None:
    with inbox.connect() as bucket:
        for delivery in bucket.queue("jobs").receive(PER_SEGMENT):
            delivery.retry("no", delay_seconds=0) if delivery.body == 1 else delivery.ack()
    inbox.segment(1).unlink()

    assert sorted(inbox.receive()) == [1, 6, 7, 8, 9, 10, 11]


def retry_all(inbox: Inbox) -> None:
    """Hand everything out once: all of it is listed in the head as waiting then."""
    with inbox.connect() as bucket:
        queue = bucket.queue("jobs", attempts_max=3)
        for delivery in queue.receive(100):
            delivery.retry("no", delay_seconds=0)
        queue.flush()


def test_what_is_claimed_together_with_something_lost_is_handed_out(
    inbox: Inbox, caplog: pytest.LogCaptureFixture
) -> None:
    retry_all(inbox)
    inbox.segment(1).unlink()

    with caplog.at_level(logging.ERROR, "bucketmq"):
        assert inbox.receive() == [0, 1, 2, 6, 7, 8, 9, 10, 11]

    assert inbox.losses() == [(3, 6)]
    assert "action=messages_lost queue=jobs shard=0 start=3 stop=6" in caplog.text
    with inbox.connect() as bucket:
        assert bucket.queue("jobs").stats().depth == 0, "the head forgets what is recorded as lost"


def test_a_claim_of_nothing_but_lost_messages_goes_on_behind_them(inbox: Inbox) -> None:
    retry_all(inbox)
    inbox.segment(0).unlink()

    assert inbox.receive(PER_SEGMENT) == [3, 4, 5]
    assert inbox.losses() == [(0, 3)]


def test_what_is_claimed_together_with_something_unreadable_is_handed_out_and_keeps_its_attempts(inbox: Inbox) -> None:
    retry_all(inbox)
    whole = inbox.segment(1).read_bytes()
    inbox.segment(1).write_bytes(b"garbage\n")

    assert inbox.receive() == [0, 1, 2, 6, 7, 8, 9, 10, 11]
    assert inbox.losses() == [], "it may be restored"

    inbox.segment(1).write_bytes(whole)
    with inbox.connect() as bucket:
        assert bucket.queue("jobs").stats().depth == PER_SEGMENT


def test_what_cannot_be_read_does_not_keep_others_from_the_dead_letters(inbox: Inbox) -> None:
    with inbox.connect() as bucket:
        receipts = [delivery.receipt for delivery in bucket.queue("jobs").receive(2 * PER_SEGMENT)]
        inbox.segment(0).write_bytes(b"garbage\n")
        with inbox.connect() as other:
            for receipt in receipts:
                other.queue("jobs").delivery(receipt).bury("no")
            other.queue("jobs").flush()

            assert [letter.body for letter in other.queue("jobs").dead_letters.peek(10)] == [3, 4, 5]


@pytest.mark.parametrize("damage", ["restored", "deleted", "raised"])
def test_a_head_beyond_its_log_is_refused_by_senders_and_receivers(inbox: Inbox, damage: str) -> None:
    copy = inbox.folder.parent / "older"
    shutil.copytree(inbox.root / "log", copy)
    inbox.send("x")
    assert len(inbox.receive()) == 13
    match damage:
        case "restored":  # the log from a backup, the heads as they are
            shutil.rmtree(inbox.root / "log")
            shutil.copytree(copy, inbox.root / "log")
        case "deleted":  # a lifecycle rule
            shutil.rmtree(inbox.root / "log")
        case "raised":
            inbox.set_head(next=50, segment=50)
    end = {"restored": 12, "deleted": 0, "raised": 13}[damage]

    with pytest.raises(bucketmq.Corrupt, match=rf"heads/main/0.json is at offset \d+, but its log ends at {end}"):
        inbox.send("never delivered")
    with pytest.raises(bucketmq.Corrupt, match="doctor --deep"):
        inbox.receive()


def test_a_head_inside_a_segment_is_refused_and_not_an_empty_queue(inbox: Inbox) -> None:
    inbox.receive(1)
    inbox.set_head(segment=1)

    with pytest.raises(bucketmq.Corrupt, match="lies inside the segment at 0"):
        inbox.receive()


@pytest.mark.parametrize("hint", [b"garbage", b'{"base":7,"format":1}\n', b'{"base":999,"format":1}\n'])
def test_a_wrong_hint_decides_nothing(inbox: Inbox, hint: bytes) -> None:
    (inbox.root / "hint").mkdir(exist_ok=True)
    (inbox.root / "hint" / "0.json").write_bytes(hint)

    assert inbox.send("new") == 12
    assert inbox.receive() == [*range(12), "new"]


def test_settings_that_were_lost_are_not_made_up(inbox: Inbox) -> None:
    (inbox.root / "queue.json").unlink()

    with pytest.raises(bucketmq.Corrupt, match=r"queue\.json is missing though queue 'jobs' holds messages"):
        inbox.send("into one shard of perhaps many")


def test_a_head_that_cannot_be_read_stops_its_subscription_and_no_sender(inbox: Inbox) -> None:
    inbox.receive(1)
    inbox.head.write_bytes(b"garbage")

    assert inbox.send("new") == 12
    with pytest.raises(bucketmq.Corrupt, match=r"heads/main/0\.json"):
        inbox.receive()


def test_errors_of_a_segment_name_its_queue_and_shard(inbox: Inbox) -> None:
    inbox.segment(0).write_bytes(inbox.segment(0).read_bytes()[:-5])

    with pytest.raises(bucketmq.Corrupt, match=r"queues/jobs/log/0/0{20}\.ndjson does not end"):
        inbox.receive()


def roll_back(world: World) -> Any:
    """A sender knows the log up to 1. Another sends three more, everything is settled, and then these three are gone.
    Returns the sender's queue."""
    sender, other = world.connect().queue("jobs"), world.connect().queue("jobs")
    sender.send(0)
    for number in range(1, 4):
        other.send(number)
    assert drain(other) == [0, 1, 2, 3]
    for base in range(1, 4):
        world.store.delete(world.segment(base))
    return sender


def test_a_sender_that_lives_through_the_damage_is_refused_until_it_is_mended(blocking: World) -> None:
    sender = roll_back(blocking)
    blocking.advance(HEADS_SECONDS + 1)

    for _ in range(2):
        with pytest.raises(bucketmq.Corrupt, match=r"main/0.json is at offset 4, but its log ends at 1"):
            sender.send("below the head")

    blocking.connect().run(mend(PREFIX, "jobs"))
    sender.send("mended")
    assert drain(blocking.connect().queue("jobs")) == [0, "mended"]


def test_what_was_accepted_before_a_sender_looked_again_is_found_and_delivered_by_mending(blocking: World) -> None:
    sender = roll_back(blocking)
    sender.send("below the head")
    assert [each.offset for each in blocking.connect().queue("jobs").stats().damaged] == [4], "stats tell"

    blocking.connect().run(mend(PREFIX, "jobs"))
    assert drain(blocking.connect().queue("jobs")) == [0, "below the head"]


def test_a_sender_that_others_overtook_finds_the_end_and_is_not_refused(blocking: World) -> None:
    sender, other = blocking.connect().queue("jobs"), blocking.connect().queue("jobs")
    sender.send(0)
    for number in range(1, 9):
        other.send(number)
    assert len(drain(other)) == 9
    blocking.advance(HEADS_SECONDS + 1)

    assert sender.send("on").offset == 9
