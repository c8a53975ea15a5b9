"""A copy that is taken in the documented order, while the queue is in use, is one that can be used."""

from __future__ import annotations

import re
import shutil
import threading
from pathlib import Path

import bucketmq
from bucketmq.procedures.upkeep.inspect import inspect

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "back-up-a-queue.md"
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


def test_the_page_names_everything_a_queue_consists_of() -> None:
    known = {"queue.json", "heads", "readers", "archive.json", "dedup", "later.json", "later", "spark", "log"}
    assert set(documented_order()) == known | {"bodies", "parts", "failures", "trim", "hint"}


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
                copied = tmp_path / f"copy-{number}"
                copy(inbox / "queues" / "jobs", copied / "queues" / "jobs", documented_order())
                assert findings(copied) == []
                with bucketmq.connect(str(copied)) as restored:
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
