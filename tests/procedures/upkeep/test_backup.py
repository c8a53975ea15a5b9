"""A copy that is taken in the documented order, while the queue is in use, is one that can be used."""

from __future__ import annotations

import inspect as inspect_module
import re
import shutil
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from server.running import sync_on

import bucketmq
from bucketmq.bucket.memory import MemoryStore
from bucketmq.bucket.port import Object
from bucketmq.log.layout import QueueKeys
from bucketmq.procedures.upkeep.inspect import inspect

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "back-up-a-queue.md"
QUEUES = "jobs", "jobs.dead"
ROUNDS = 6


def documented_order() -> list[str]:
    (loop,) = re.findall(r"for part in (.*); do", PAGE.read_text())
    return str(loop).split()


def copy(source: Path, target: Path, order: list[str]) -> None:
    target.mkdir(parents=True)
    for part in order:
        if (source / part).is_dir():
            shutil.copytree(source / part, target / part)
        elif (source / part).exists():
            shutil.copy(source / part, target / part)


def findings(folder: Path) -> list[str]:
    with bucketmq.connect(str(folder)) as bucket:
        return [each.kind for each in bucket.run(inspect("", "jobs")).findings]


def parts_of_a_queue() -> set[str]:
    """The first name below a queue's folder of every key that is made for it."""
    keys = QueueKeys("", "jobs")
    made = [value for name, value in inspect_module.getmembers(keys) if isinstance(value, str) and value != keys.root]
    made += [keys.log(0), keys.trim(0), keys.hint(0), keys.dedup(0), keys.damaged("x", keys.root + "/y")]
    return {name.removeprefix(keys.root + "/").split("/")[0] for name in made if name.startswith(keys.root + "/")}


def test_the_page_names_everything_a_queue_consists_of() -> None:
    assert set(documented_order()) == parts_of_a_queue() - {"losses.json", "orphans.json", "damaged"}


def test_a_copy_of_a_queue_in_use_has_no_damage_and_loses_nothing_that_was_sent_before(tmp_path: Path) -> None:
    inbox = tmp_path / "inbox"
    stop = threading.Event()
    sent = [0]
    with bucketmq.connect(str(inbox)) as bucket:
        queue = bucket.queue("jobs")
        queue.send("first")

        def busy() -> None:
            while not stop.is_set():
                queue.send_many(range(sent[0], sent[0] + 5))
                sent[0] += 5
                for delivery in queue.receive(5):
                    delivery.ack()
                queue.flush()

        worker = threading.Thread(target=busy)
        worker.start()
        try:
            for number in range(ROUNDS):
                before = sent[0]
                folder = tmp_path / f"copy-{number}"
                copy(inbox / "queues" / "jobs", folder / "queues" / "jobs", documented_order())
                assert findings(folder) == []
                with bucketmq.connect(str(folder)) as restored:
                    there = restored.queue("jobs").tails()[0]
                    assert there >= before
                    restored.queue("jobs").send("after the restore")
                    bodies = []
                    while batch := restored.queue("jobs").receive(100):
                        bodies += [delivery.body for delivery in batch]
                        for delivery in batch:
                            delivery.ack()
                    assert bodies[-1] == "after the restore"
        finally:
            stop.set()
            worker.join()


def test_a_copy_of_the_log_before_the_heads_is_found_to_be_damaged(tmp_path: Path) -> None:
    inbox = tmp_path / "inbox" / "queues" / "jobs"
    with bucketmq.connect(str(tmp_path / "inbox")) as bucket:
        queue = bucket.queue("jobs")
        queue.send("one")
        copy(inbox, tmp_path / "copy" / "queues" / "jobs", ["queue.json", "log"])
        queue.send("two")
        for delivery in queue.receive(2):
            delivery.ack()
        queue.flush()
    shutil.copytree(inbox / "heads", tmp_path / "copy" / "queues" / "jobs" / "heads")
    assert findings(tmp_path / "copy") == ["head-ahead"]


OLDER_SECONDS = 300.0
"""How long before the copy everything was sent: trimming leaves alone what is younger than two minutes."""

LARGE = "x" * 80_000
SENT = {"plain", "large", "delayed", "once", "retried", "failing", "dead"}


def furnish(store: MemoryStore) -> None:
    """A message of every kind: with a large body, delayed, with a deduplication key, retried, dead."""
    with sync_on(store) as bucket:
        queue = bucket.queue("jobs", keep_seconds=0)
        queue.send_many(["retried", "failing", "dead"])
        for delivery in queue.receive(3):
            delivery.bury("no") if delivery.body == "dead" else delivery.retry("no", delay_seconds=0)
        queue.flush()
        queue.send("plain")
        queue.send("once", dedup_key="once")
        queue.send("delayed", delay_seconds=10)
        queue.send(LARGE, key="large")


def redrive(queue: bucketmq.Queue) -> None:
    queue.dead_letters.redrive()


def bury(queue: bucketmq.Queue) -> None:
    for delivery in queue.receive(100):
        delivery.bury("no")
    queue.flush()


def bury_and_redrive(queue: bucketmq.Queue) -> None:
    bury(queue)
    redrive(queue)


def settle_and_trim(queue: bucketmq.Queue) -> None:
    """Nothing of it need be in the copy. The copy must be a good one all the same."""
    for delivery in queue.receive(100):
        delivery.ack()
    queue.flush()
    queue.trim()


def copied(source: MemoryStore, during: Callable[[], None], at: int, order: list[tuple[str, str]]) -> MemoryStore:
    """In this order of parts and queues; `during` is called before the step with the number `at`."""
    target = MemoryStore()
    for number, (part, queue) in enumerate(order):
        if number == at:
            during()
        for entry in source.list(f"queues/{queue}/", after="", limit=1_000).entries:
            found = source.get(entry.key)
            if entry.key.split("/")[2] == part and isinstance(found, Object):
                target.create(entry.key, found.body)
    return target


def drained(queue: bucketmq.Queue) -> set[str]:
    bodies = set()
    while batch := queue.receive(100):
        for delivery in batch:
            bodies.add("large" if delivery.body == LARGE else delivery.body)
            delivery.ack()
    return bodies


STEPS = [(part, queue) for part in documented_order() for queue in QUEUES]


def after_a_restore(change: Callable[[bucketmq.Queue], None], at: int, order: list[tuple[str, str]]) -> set[str]:
    """What a copy holds that was taken while `change` was made; it has no damage, and takes and gives messages."""
    late = [-OLDER_SECONDS]
    source = MemoryStore(lambda: time.time() + late[0])
    furnish(source)
    late[0] = 0.0
    with sync_on(source) as bucket:
        target = copied(source, lambda: change(bucket.queue("jobs")), at, order)
    with sync_on(target) as restored:
        assert [each for name in QUEUES for each in restored.run(inspect("", name)).findings] == []
        queue = restored.queue("jobs")
        queue.send("after the restore")
        dead = {"large" if letter.body is None else str(letter.body) for letter in queue.dead_letters.peek(100)}
        there = drained(queue)
    assert "after the restore" in there
    return there | dead


@pytest.mark.parametrize("change", [redrive, bury, bury_and_redrive])
def test_whatever_is_moved_between_two_steps_of_a_copy_is_in_the_copy(change: Callable[..., None]) -> None:
    lost = {step: SENT - after_a_restore(change, at, STEPS) for at, step in enumerate(STEPS)}
    assert [each for each in lost.items() if each[1]] == []


def test_what_is_settled_and_trimmed_between_two_steps_of_a_copy_does_not_damage_it() -> None:
    for at in range(len(STEPS)):
        after_a_restore(settle_and_trim, at, STEPS)


def test_a_copy_of_one_queue_after_the_other_loses_what_is_redriven_in_between() -> None:
    """So that the page says something that matters."""
    order = sorted(STEPS, key=lambda step: step[1])
    assert after_a_restore(redrive, len(order) // 2, order) == {*SENT, "after the restore"} - {"dead"}
