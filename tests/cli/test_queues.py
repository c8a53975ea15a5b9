"""init, shards, stats, subscriptions, purge, dead, redrive."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bucketmq.cli import output, stats_watch
from bucketmq.cli.stats_show import Rate
from bucketmq.client import Bucket, Queue
from bucketmq.errors import Unavailable
from bucketmq.procedures.upkeep.stats import QueueStats
from cli.ran import Cli, bury
from cli.running import running


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
    assert (row["ready"], row["dead"], row["shards"]) == (2, 3, 1)
    assert row["subscriptions"][0]["shards"][0]["ready"] == 2
    assert row["requests"]["get"] > 0
    assert row["price"]["provider"] == "r2"
    assert row["price"]["usd"] > 0
    assert any("bucketmq dead jobs" in line for line in row["advice"])


def test_a_folder_costs_nothing_unless_a_provider_is_asked_for(cli: Cli, letters: Queue) -> None:
    letters.send(1)
    assert cli("stats", "jobs", "--json").row["price"] == {"provider": "folder", "usd": 0.0}
    told = cli("stats", "jobs").err
    assert "= $0 on a folder" in told and "S3" not in told
    assert "on S3 Standard" in cli("stats", "jobs", "--provider", "s3").err


def test_stats_of_all_queues(cli: Cli, bucket: Bucket) -> None:
    assert cli("stats").code == 3
    bucket.queue("a").send(1)
    bucket.queue("b").send(1)
    assert [row["queue"] for row in cli("stats", "--json").rows] == ["a", "b"]
    ran = cli("stats")
    assert "oldest ready" in ran.out
    assert "$" in ran.err


def test_stats_with_an_unknown_provider_lists_those_there_are(cli: Cli) -> None:
    ran = cli("stats", "--provider", "floppy")
    assert (ran.code, "tigris" in ran.err) == (2, True)


def test_a_mistyped_queue_is_answered_with_the_right_one(cli: Cli, bucket: Bucket, folder: Path) -> None:
    (folder / "tasks.py").write_text("def handle(delivery): pass\n")
    bucket.queue("jobs").send(1)
    bucket.queue("mail").send(1)
    worker = ("worker", "os:getpid", "--queue", "jbos", "--stop-when-empty")
    verbs = [(verb, "jbos") for verb in ("receive", "peek", "tail", "stats", "dead", "redrive", "purge")]
    verbs += [("shards", "jbos", "2"), ("subscriptions", "ls", "jbos"), ("subscriptions", "rm", "jbos", "x"), worker]
    for verb in verbs:
        ran = cli(*verb, "--json")
        assert (ran.code, ran.error["kind"]) == (1, "not_found"), verb
        assert "there is no queue 'jbos'; did you mean jobs?" in ran.error["message"], verb
        assert "bucketmq init jbos" in ran.error["message"], verb
    assert bucket.queues() == ["jobs", "mail"]
    assert "there are: jobs, mail." in cli("stats", "quite-another").err


def test_looking_for_dead_letters_makes_no_queue_for_them(cli: Cli, bucket: Bucket, folder: Path) -> None:
    bucket.queue("jobs").send(1)
    for verb in (("dead", "jobs"), ("redrive", "jobs", "--yes"), ("purge", "jobs", "--dead", "--yes")):
        assert cli(*verb).code == 3
    assert not (folder / "bucket" / "queues" / "jobs.dead").exists()


def test_a_queue_without_settings_is_damaged_not_absent(cli: Cli, bucket: Bucket, folder: Path) -> None:
    bucket.queue("jobs").send(1)
    (folder / "bucket" / "queues" / "jobs" / "queue.json").unlink()
    ran = cli("stats", "--json")
    assert (ran.code, ran.error["kind"]) == (1, "corrupt")
    assert "queue.json" in ran.error["message"]


def test_a_mistyped_subscription_is_neither_made_nor_settled(cli: Cli, bucket: Bucket) -> None:
    queue = bucket.queue("jobs")
    queue.subscription("audit")
    queue.send(1)
    for verb in ("receive", "peek", "purge"):
        ran = cli(verb, "jobs", "--subscription", "audti", "--json")
        assert (ran.code, ran.error["kind"]) == (1, "not_found"), verb
        assert "has no subscription 'audti'; did you mean audit?" in ran.error["message"]
    assert "--start" in cli("receive", "jobs", "-s", "audti").err
    assert [each["name"] for each in cli("stats", "jobs", "--json").row["subscriptions"]] == ["audit"]
    assert cli("receive", "jobs", "-s", "audti", "--start", "earliest", "--json").row["body"] == 1


def test_a_head_ahead_of_its_log_is_shown_and_exits_with_1(cli: Cli, bucket: Bucket, folder: Path) -> None:
    queue = bucket.queue("jobs")
    queue.send(1)
    queue.receive(1)[0].ack(wait=True)
    for segment in (folder / "bucket").glob("queues/jobs/log/0/*"):
        segment.unlink()
    ran = cli("stats", "jobs", "--json")
    assert (ran.code, ran.error["kind"]) == (1, "corrupt")
    assert "queue jobs, subscription main, shard 0: the head is at offset 1" in ran.error["message"]
    assert [damage["offset"] for damage in ran.row["damaged"]] == [1]
    assert cli("stats").code == 1


def test_stats_are_watched_on_a_pipe(bucket: Bucket, environment: dict[str, str], folder: Path) -> None:
    queue = bucket.queue("jobs")
    queue.send(1)
    with running(["stats", "jobs", "--watch", "--every", "0.1", "--json"], environment, folder) as watching:
        assert watching.row()["ready"] == 1
        queue.send(2)
        while (row := watching.row())["ready"] != 2:
            assert row["ready"] == 1
        code, _, err = watching.stop(signal.SIGINT)
    assert (code, err) == (130, "")


def test_watched_stats_for_people_are_one_table_after_the_other(
    bucket: Bucket, environment: dict[str, str], folder: Path
) -> None:
    bucket.queue("jobs").send(1)
    with running(["stats", "--watch", "--every", "0.1"], environment, folder) as watching:
        seen = [watching.line() for _ in range(15)]
    assert sum("oldest ready" in line for line in seen) >= 2


def test_subscriptions_are_listed_and_removed(cli: Cli, bucket: Bucket) -> None:
    queue = bucket.queue("jobs")
    queue.subscription("audit")
    queue.subscription("typo")
    queue.send_many([1, 2])
    assert [(row["name"], row["ready"]) for row in cli("subscriptions", "ls", "jobs", "--json").rows] == [
        ("audit", 2),
        ("typo", 2),
    ]
    assert "ago" in cli("subscriptions", "ls", "jobs").out
    refused = cli("subscriptions", "rm", "jobs", "typo")
    assert (refused.code, "with 2 messages it has not settled?" in refused.err) == (2, True)
    removed = cli("subscriptions", "rm", "jobs", "typo", "--yes", "--json").row
    assert removed == {"queue": "jobs", "subscription": "typo", "unsettled": 2}
    assert cli("subscriptions", "rm", "jobs", "typo", "--yes").code == 1
    assert [row["name"] for row in cli("subscriptions", "ls", "jobs", "--json").rows] == ["audit"]


def test_a_subscription_with_messages_in_flight_is_removed_by_force_only(cli: Cli, bucket: Bucket) -> None:
    bucket.queue("jobs").send(1)
    assert cli("receive", "jobs", "-s", "audit", "--start", "earliest").code == 0
    refused = cli("subscriptions", "rm", "jobs", "audit", "--yes")
    assert (refused.code, "1 message" in refused.err, "force" in refused.err) == (2, True, True)
    assert cli("subscriptions", "rm", "jobs", "audit", "--yes", "--force").code == 0
    assert cli("subscriptions", "rm", "jobs", "main", "--yes").code == 2


def test_a_queue_without_main_is_made_and_stays_so(cli: Cli) -> None:
    assert cli("init", "jobs", "--no-main", "--json").row["main"] is False
    assert cli("init", "jobs", "--lease", 30, "--json").row["main"] is False
    assert cli("init", "jobs", "--main", "--json").row["main"] is True
    cli("init", "jobs", "--no-main")
    assert cli("subscriptions", "ls", "jobs").code == 3
    assert cli("purge", "jobs", "--yes").code == 1


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


class Interrupted:
    """In place of sleeping: does something, then somebody presses Ctrl-C."""

    def __init__(self, *steps: Callable[[], object]) -> None:
        self.steps = list(steps)
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        if not self.steps:
            raise KeyboardInterrupt
        self.steps.pop(0)()


def test_watching_shows_what_goes_in_and_out(cli: Cli, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = bucket.queue("jobs")
    jobs.send_many(range(3))

    def work() -> None:
        jobs.send_many(range(5))
        jobs.run(lambda delivery: None, stop_when_empty=True, signals=False)

    monkeypatch.setattr(stats_watch, "sleep", Interrupted(work).sleep)
    ran = cli("stats", "jobs", "--watch", "--every", 7, "--json")
    assert ran.code == 130
    first, second = ran.rows
    assert first["per_second"] is None
    assert second["per_second"]["sent"] > 0 and second["per_second"]["settled"]["main"] > 0
    assert (second["sent"], second["subscriptions"][0]["settled"]) == (8, 8)


def test_rates_are_what_came_between_two_looks(bucket: Bucket) -> None:
    jobs, rates = bucket.queue("jobs"), stats_watch.Rates()
    jobs.send_many(range(3))
    assert rates.of([jobs.stats()], 100.0) == {}
    jobs.send_many(range(5))
    jobs.run(lambda delivery: None, stop_when_empty=True, signals=False)
    assert rates.of([jobs.stats()], 102.0) == {"jobs": Rate(2.5, {"main": 4.0})}


def test_watching_goes_on_when_the_bucket_is_away(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    jobs = bucket.queue("jobs")
    jobs.send(1)
    fails = [Unavailable("no route to host")]

    def look() -> list[QueueStats]:
        if fails:
            raise fails.pop()
        return [jobs.stats()]

    pause = Interrupted(lambda: None)
    monkeypatch.setattr(stats_watch, "sleep", pause.sleep)
    with pytest.raises(KeyboardInterrupt):
        stats_watch.watch(bucket, look, one=True, every=7.0, provider="s3", as_json=False)
    out = capfd.readouterr().out
    assert "the bucket cannot be reached, trying again: no route to host" in out
    assert "oldest ready" in out and "in/s" in out and "since this began" in out
    assert pause.slept == [7.0, 7.0]


def test_the_subscription_of_a_rule_is_called_by_the_rules_name(cli: Cli, bucket: Bucket) -> None:
    bucket.rules.add("thumbnails", to="queue:images")
    bucket.put("raw/1.png", b"1")
    out = cli("stats", "events").out
    assert "rule thumbnails" in out and "rule-thumbnails-" not in out
