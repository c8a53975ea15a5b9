"""What reading and writing ask of the store, counted: what `make bench-spark` reports for a million rows."""

from __future__ import annotations

import pytest

pytest.importorskip("pyspark")

from bench.spark.requests import TASKS, read, written
from bench.spark.rows import write_log
from spark.conftest import Inbox

ROWS = 50_003  # not the same for all tasks, and no whole batches


def test_writing_costs_a_part_for_each_task_and_a_publication_that_does_not_grow(plain_inbox: Inbox) -> None:
    few, many = written(plain_inbox.url, "few", TASKS * 10), written(plain_inbox.url, "many", ROWS)
    assert few == many
    # The parts, the register twice, the segment, the hint.
    assert many.writes <= TASKS + 4
    assert many.reads <= 5
    assert many.lists == 2  # of heads and of the log, by a process that first sends to the queue


def test_reading_costs_a_get_for_each_part_and_for_each_partition_that_begins_inside_one(plain_inbox: Inbox) -> None:
    written(plain_inbox.url, "jobs", ROWS)
    asked = read(plain_inbox.url, "jobs", ROWS)
    assert asked.lists == 1
    # Each partition reads the segment and its parts; a part between two of them is read by both.
    assert asked.reads <= 2 * TASKS + 2 * TASKS + 6
    assert asked.writes <= 1


def test_reading_segments_of_lines_costs_a_get_for_each_and_a_list_for_each_thousand(plain_inbox: Inbox) -> None:
    write_log(plain_inbox.file(""), "jobs", 2500, 2)
    asked = read(plain_inbox.url, "jobs", 5000)
    assert asked.lists == 3 + 2  # and, once in a process, of heads and of the log near the hint, to find the end
    # A segment between two partitions is read by both; and one look whether messages are delayed.
    assert 2500 <= asked.reads <= 2513
    assert asked.writes <= 2
