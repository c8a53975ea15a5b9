"""A folder after the machine's clock was wrong: stamps from the future decide nothing."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

import bucketmq
from bucketmq.bucket.folder import FolderStore
from bucketmq.bucket.port import Written
from bucketmq.log.layout import due_of
from bucketmq.testing.contract import created, names, read

DAY = 86_400


class Machine:
    """This machine's clock, `ahead` of the true one by so many seconds."""

    ahead = 0.0
    right_after = 0
    """It is set right when it has been read so often; 0 for never."""

    def __init__(self) -> None:
        self._time, self._time_ns = time.time, time.time_ns

    def time(self) -> float:
        if self.right_after:
            self.right_after -= 1
            self.ahead = self.ahead if self.right_after else 0.0
        return self._time() + self.ahead

    def time_ns(self) -> int:
        return self._time_ns() + int(self.ahead * 1e9)


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(time, "time", machine.time)
    monkeypatch.setattr(time, "time_ns", machine.time_ns)
    return machine


def opened(root: Path) -> bucketmq.Bucket:
    return bucketmq.connect(str(root), probe=False)


def test_a_replace_is_stamped_with_the_clock_and_not_behind_the_state_before(tmp_path: Path, machine: Machine) -> None:
    store = FolderStore(tmp_path / "store")
    machine.ahead = DAY
    version = created(store, "key", b"0")
    machine.ahead = 0
    for n in range(1, 30):
        written = store.replace("key", b"%d" % n, version)
        assert isinstance(written, Written)
        assert written.stored_at == read(store, "key").stored_at == pytest.approx(time.time(), abs=60)
        version = written.version


@pytest.mark.parametrize("step_ns", [0, 1_000, -1_000, 500_000, -5_000_000, -DAY * 10**9])
def test_no_version_comes_back_when_the_clock_passes_a_time_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step_ns: int
) -> None:
    """The same microseconds over and over, as after a clock was set back; one size, reused inodes."""
    store = FolderStore(tmp_path / "store")
    begin = time.time_ns() // 1000 * 1000
    version = created(store, "key", b"0000")
    seen = {version}
    for lap in range(8):
        for n in range(20):
            monkeypatch.setattr(time, "time_ns", lambda n=n: begin + n * step_ns)
            written = store.replace("key", b"%04d" % (lap * 20 + n), version)
            assert isinstance(written, Written)
            version = written.version
            assert version not in seen
            seen.add(version)


def test_after_the_clock_was_a_day_ahead_a_lease_lasts_as_long_as_it_should(tmp_path: Path, machine: Machine) -> None:
    machine.ahead = DAY
    with opened(tmp_path) as bucket:
        queue = bucket.queue("jobs")
        queue.send_many(["one", "two"])
        for delivery in queue.receive(2):
            delivery.ack()
    machine.ahead = 0

    with opened(tmp_path) as one, opened(tmp_path) as other:
        one.queue("jobs").send("three")
        (delivery,) = one.queue("jobs").receive(1, lease_seconds=2)
        assert delivery.body == "three"
        # Not taken over, by neither of them ...
        assert list(one.queue("jobs").receive(1)) == []
        assert list(other.queue("jobs").receive(1)) == []
        machine.ahead = 2.5
        # ... and over when it is over, for both.
        (again,) = other.queue("jobs").receive(1, lease_seconds=2)
        assert (again.body, again.attempt) == ("three", 2)
        again.ack()


def test_after_the_clock_was_a_day_ahead_a_delay_ends(tmp_path: Path, machine: Machine) -> None:
    machine.ahead = DAY
    with opened(tmp_path) as bucket:
        queue = bucket.queue("jobs")
        queue.send("early", delay_seconds=1)
        machine.ahead = DAY + 3
        (delivery,) = queue.receive(1)
        delivery.ack()
    machine.ahead = 0

    with opened(tmp_path) as one, opened(tmp_path) as other:
        one.queue("jobs").send("warm")
        for delivery in one.queue("jobs").receive(1):
            delivery.ack()
        one.queue("jobs").flush()
        one.queue("jobs").send("late", delay_seconds=2)
        (key,) = names(FolderStore(tmp_path), "queues/jobs/later/")
        assert due_of(key) < time.time() + 10
        machine.ahead = 4
        (delivery,) = other.queue("jobs").receive(1)
        assert delivery.body == "late"
        delivery.ack()


def test_a_process_that_lives_through_the_correction_follows_it(tmp_path: Path, machine: Machine) -> None:
    """It takes over no lease that others hold, and finds what others delayed, without a write of its own."""
    machine.ahead = DAY
    with opened(tmp_path) as old:
        queue = old.queue("jobs")
        queue.send("one", delay_seconds=1)
        machine.ahead = DAY + 3
        for delivery in queue.receive(1):
            delivery.ack()
        queue.flush()
        assert list(queue.receive(1)) == []

        machine.ahead = 0
        with opened(tmp_path) as new:
            new.queue("jobs").send("two")
            (held,) = new.queue("jobs").receive(1, lease_seconds=60)
            assert list(queue.receive(1)) == []
            held.ack()
            new.queue("jobs").send("late", delay_seconds=1)
            machine.ahead = 3
            (delivery,) = queue.receive(1)
            assert delivery.body == "late"
            delivery.ack()


@pytest.mark.timeout(20)
def test_a_wait_ends_also_if_the_clock_is_set_back_meanwhile(tmp_path: Path, machine: Machine) -> None:
    with opened(tmp_path) as bucket:
        queue = bucket.queue("jobs")
        queue.send("one")
        for delivery in queue.receive(1):
            delivery.ack()
        queue.flush()
        machine.ahead, machine.right_after = DAY, 10
        assert list(queue.receive(1, wait_seconds=0.3)) == []
        assert machine.ahead == 0


def test_files_stamped_in_the_future_by_others_do_not_move_the_clock(tmp_path: Path) -> None:
    with opened(tmp_path) as bucket:
        queue = bucket.queue("jobs")
        queue.send("one")
        for delivery in queue.receive(1):
            delivery.ack()
    for path in tmp_path.rglob("*.json"):
        os.utime(path, (time.time() + DAY,) * 2)
    with opened(tmp_path) as bucket:
        bucket.queue("jobs").send("two")
        (delivery,) = bucket.queue("jobs").receive(1, lease_seconds=60)
        delivery.ack()
        bucket.queue("jobs").flush()
        assert abs(bucket.clock_skew_seconds) < 60
