"""init, shards, stats, purge, dead, redrive."""

from __future__ import annotations

import io
import sys

import msgspec
import pytest

from bucketmq.cli import output
from bucketmq.cli.queues import advice
from bucketmq.client import Bucket, Queue

from .ran import Cli, bury


@pytest.fixture
def letters(bucket: Bucket) -> Queue:
    queue = bucket.queue("jobs")
    bury(queue, "no such user: 1", "no network", "no such user: 2")
    return queue


def test_init_makes_a_queue_with_settings(cli: Cli) -> None:
    row = cli("init", "jobs", "--shards", 4, "--lease", 30, "--attempts", 10, "--ordered", "--json").row
    assert (row["shards"], row["lease_seconds"], row["attempts_max"], row["ordered"]) == (4, 30, 10, True)


def test_init_again_changes_only_what_is_given(cli: Cli) -> None:
    cli("init", "jobs", "--lease", 30)
    assert cli("init", "jobs", "--attempts", 9, "--json").row["lease_seconds"] == 30


@pytest.mark.parametrize("args", [("init", "jobs", "--shards", 0), ("init", ".hidden"), ("init", "jobs.dead")])
def test_bad_settings_and_names_are_usage_errors(cli: Cli, args: tuple[object, ...]) -> None:
    assert cli(*args).code == 2


def test_shards_can_be_raised_but_not_lowered(cli: Cli) -> None:
    cli("init", "jobs")
    assert cli("shards", "jobs", 4, "--json").row == {"queue": "jobs", "shards": 4, "shards_before": 1}
    assert cli("shards", "jobs", 2).code == 2
    assert cli("shards", "nope", 2).code == 1


def test_stats_of_one_queue_with_price_and_advice(cli: Cli, letters: Queue) -> None:
    letters.send_many([1, 2])
    row = cli("stats", "jobs", "--json", "--provider", "r2").row
    assert (row["depth"], row["dead"], row["shards"]) == (2, 3, 1)
    assert row["subscriptions"][0]["shards"][0]["depth"] == 2
    assert row["requests"]["get"] > 0
    assert row["price"]["provider"] == "r2"
    assert row["price"]["usd"] > 0
    assert any("bucketmq dead jobs" in line for line in row["advice"])


def test_stats_of_all_queues(cli: Cli, bucket: Bucket) -> None:
    assert cli("stats").code == 3
    bucket.queue("a").send(1)
    bucket.queue("b").send(1)
    assert [row["queue"] for row in cli("stats", "--json").rows] == ["a", "b"]
    ran = cli("stats")
    assert "oldest" in ran.out
    assert "$" in ran.err


def test_stats_with_an_unknown_provider_lists_those_there_are(cli: Cli) -> None:
    ran = cli("stats", "--provider", "floppy")
    assert (ran.code, "tigris" in ran.err) == (2, True)


def test_the_librarys_advice_comes_with_the_command_that_follows_it(bucket: Bucket) -> None:
    bucket.queue("jobs").send(1)
    calm = bucket.queue("jobs").stats()
    assert advice(calm) == []
    crowded = msgspec.structs.replace(calm.subscriptions[0], holders=6, conflict_rate=0.5, advice="50% refused")
    (line,) = advice(msgspec.structs.replace(calm, subscriptions=(crowded,)))
    assert line == "main: 50% refused; add shards: bucketmq shards jobs 6"


def test_purge_says_how_many_and_wants_a_yes(cli: Cli, bucket: Bucket) -> None:
    bucket.queue("jobs").send_many([1, 2])
    assert cli("purge", "jobs", "--dry-run", "--json").row == {"queue": "jobs", "matched": 2, "purged": 0}
    refused = cli("purge", "jobs")
    assert (refused.code, "Purge 2 messages of jobs?" in refused.err) == (2, True)
    assert cli("purge", "jobs", "--yes", "--json").row == {"queue": "jobs", "matched": 2, "purged": 2}
    assert cli("purge", "jobs", "--yes").code == 3


def test_purging_dead_letters(cli: Cli, letters: Queue) -> None:
    assert cli("purge", "jobs", "--dead", "--yes", "--json").row["purged"] == 3
    assert cli("dead", "jobs").code == 3


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "goes_ahead"), [("y\n", True), ("yes\n", True), ("n\n", False), ("", False)])
def test_a_terminal_is_asked(monkeypatch: pytest.MonkeyPatch, answer: str, goes_ahead: bool) -> None:
    asked = Terminal()
    monkeypatch.setattr(sys, "stdin", Terminal(answer))
    monkeypatch.setattr(sys, "stderr", asked)
    assert output.ask("Purge 2 messages of jobs?", yes=False) is goes_ahead
    assert asked.getvalue() == "Purge 2 messages of jobs? [y/N] "


def test_dead_lists_reasons_and_full_shows_every_attempt(cli: Cli, letters: Queue) -> None:
    assert "no network" in cli("dead", "jobs").out
    assert "attempt 1" in cli("dead", "jobs", "--full").out
    assert [row["reason"] for row in cli("dead", "jobs", "--json").rows] == [
        "no such user: 1",
        "no network",
        "no such user: 2",
    ]


def test_redrive_counts_first_and_then_sends_again(cli: Cli, letters: Queue) -> None:
    assert cli("redrive", "jobs", "--dry-run", "--json").row == {"queue": "jobs", "matched": 3, "redriven": 0}
    refused = cli("redrive", "jobs")
    assert (refused.code, "Send 3 dead letters of jobs again?" in refused.err) == (2, True)
    assert cli("redrive", "jobs", "--yes", "--json").row == {"queue": "jobs", "matched": 3, "redriven": 3}
    assert cli("redrive", "jobs", "--yes").code == 3
    assert len(cli("receive", "jobs", "-n", 9, "--json").rows) == 3


def test_redrive_by_text_id_and_limit(cli: Cli, letters: Queue) -> None:
    assert cli("redrive", "jobs", "--where", "no such user", "--dry-run", "--json").row["matched"] == 2
    assert cli("redrive", "jobs", "--where", "nothing like it", "--yes").code == 3
    # The one that matches is not the first: the limit counts letters that match, not letters looked at.
    assert cli("redrive", "jobs", "--where", "no network", "--limit", 1, "--yes", "--json").row["redriven"] == 1
    last = cli("dead", "jobs", "--json").rows[-1]["id"]
    assert cli("redrive", "jobs", "--id", last, "--yes", "--json").row["redriven"] == 1
    assert [row["reason"] for row in cli("dead", "jobs", "--json").rows] == ["no such user: 1"]
