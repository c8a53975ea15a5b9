"""send, receive, ack, retry, peek, tail."""

from __future__ import annotations

import base64
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from bucketmq.client import Bucket
from cli.ran import Cli


def test_send_prints_the_id_and_receive_prints_the_message(cli: Cli) -> None:
    sent = cli("send", "jobs", '{"n": 1}', "--key", "user-7", "--header", "trace=abc")
    assert sent.code == 0
    got = cli("receive", "jobs", "--json").row
    assert got["id"] == sent.out.strip()
    assert got["body"] == {"n": 1}
    assert got["key"] == "user-7"
    assert got["headers"] == {"trace": "abc"}
    assert got["attempt"] == 1


def test_send_as_json_tells_where_the_message_lies(cli: Cli) -> None:
    assert cli("send", "jobs", "1", "--json").row | {"id": ""} == {
        "id": "",
        "shard": 0,
        "offset": 0,
        "duplicate": False,
    }


def test_bodies_are_json_text_or_bytes(cli: Cli) -> None:
    cli("send", "jobs", "plain text", "--text")
    cli("send", "jobs", "-", "--bytes", stdin=b"\x00\xff")
    text, raw = cli("receive", "jobs", "-n", 2, "--json").rows
    assert text["body"] == "plain text"
    assert base64.b64decode(raw["body_base64"]) == b"\x00\xff"


def test_a_body_that_is_not_json_is_a_usage_error_that_says_how_to_send_text(cli: Cli) -> None:
    ran = cli("send", "jobs", "plain text")
    assert ran.code == 2
    assert "--text" in ran.err
    assert ran.err.count("\n") == 1


def test_a_body_comes_from_a_file_or_standard_input(cli: Cli, folder: Path) -> None:
    (folder / "body.json").write_text('{"from": "file"}')
    assert cli("send", "jobs", "--file", folder / "body.json").code == 0
    assert cli("send", "jobs", "-", stdin=b'{"from": "stdin"}').code == 0
    assert [row["body"]["from"] for row in cli("peek", "jobs", "--json").rows] == ["file", "stdin"]


def test_a_file_that_is_missing_is_a_usage_error(cli: Cli) -> None:
    ran = cli("send", "jobs", "--file", "/no/such/file")
    assert (ran.code, "No such file" in ran.err) == (2, True)


def test_lines_are_sent_in_batches(cli: Cli, bucket: Bucket) -> None:
    ran = cli("send", "jobs", "--lines", "--json", stdin=b"".join(b'{"n":%d}\n' % n for n in range(2500)))
    assert len(ran.rows) == 2500
    assert "sent 2,500 messages" in ran.err
    assert bucket.queue("jobs").stats().depth == 2500


def test_a_bad_line_is_named_and_what_was_sent_before_is_counted(cli: Cli) -> None:
    ran = cli("send", "jobs", "--lines", stdin=b"1\n2\nthree\n")
    assert ran.code == 2
    assert "line 3" in ran.err
    assert "sent 0 messages" in ran.err


def test_a_dedup_key_sends_once(cli: Cli) -> None:
    first = cli("send", "jobs", "7", "--dedup-key", "order-7", "--json").row
    second = cli("send", "jobs", "7", "--dedup-key", "order-7", "--json").row
    assert second["id"] == first["id"]
    assert (first["duplicate"], second["duplicate"]) == (False, True)


def test_delayed_messages_are_not_received_yet(cli: Cli) -> None:
    cli("send", "jobs", "1", "--delay", 60)
    cli("send", "jobs", "2", "--at", (datetime.now(UTC) + timedelta(hours=1)).isoformat())
    assert cli("receive", "jobs").code == 3
    assert cli("stats", "jobs", "--json").row["delayed"] == 2


@pytest.mark.parametrize(
    "options",
    [
        ("--at", "tomorrow"),
        ("--at", "2030-01-31T12:00:00"),
        ("--header", "novalue"),
        ("--delay", "-1"),
        ("--delay", "5", "--dedup-key", "x"),
        ("--text", "--bytes"),
    ],
)
def test_options_that_cannot_work_are_usage_errors(cli: Cli, options: tuple[str, ...]) -> None:
    ran = cli("send", "jobs", "1", *options)
    assert ran.code == 2
    assert ran.err.startswith("error (invalid): ")
    assert ran.err.count("\n") == 1


def test_receiving_from_an_empty_queue_exits_with_3(cli: Cli, bucket: Bucket) -> None:
    bucket.queue("jobs").settings()
    ran = cli("receive", "jobs", "--json")
    assert (ran.code, ran.out) == (3, "")


def test_receiving_from_an_unknown_queue_is_an_error(cli: Cli) -> None:
    ran = cli("receive", "nope", "--json")
    assert ran.code == 1
    assert ran.error["kind"] == "not_found"


def test_receive_takes_from_all_shards(cli: Cli, bucket: Bucket) -> None:
    queue = bucket.queue("jobs", shards=4)
    for n in range(12):
        queue.send(n)
    assert sorted(row["body"] for row in cli("receive", "jobs", "-n", 12, "--json").rows) == list(range(12))


def test_a_full_queue_is_not_an_empty_one(cli: Cli, bucket: Bucket) -> None:
    bucket.queue("jobs", in_flight_max=1).send_many([1, 2])
    assert cli("receive", "jobs").code == 0
    ran = cli("receive", "jobs")
    assert ran.code == 4
    assert "error (full)" in ran.err


def test_receive_with_ack_settles_what_it_printed(cli: Cli, bucket: Bucket) -> None:
    bucket.queue("jobs").send_many([1, 2, 3])
    assert len(cli("receive", "jobs", "-n", 3, "--ack", "--json").rows) == 3
    assert bucket.queue("jobs").stats().depth == 0


def test_what_receive_prints_for_people_holds_the_receipt(cli: Cli) -> None:
    cli("send", "jobs", '{"n": 1}')
    lines = dict(line.split(maxsplit=1) for line in cli("receive", "jobs").out.splitlines())
    assert lines["body"] == '{"n":1}'
    assert cli("ack", lines["receipt"]).code == 0
    assert cli("stats", "jobs", "--json").row["depth"] == 0


def test_ack_reads_what_receive_printed_from_standard_input(cli: Cli) -> None:
    cli("send", "jobs", "--lines", stdin=b"1\n2\n3\n")
    got = cli("receive", "jobs", "-n", 3, "--json")
    ran = cli("ack", "-", "--json", stdin=got.out.encode())
    assert [row["outcome"] for row in ran.rows] == ["ack"] * 3
    assert cli("stats", "jobs", "--json").row["depth"] == 0


def test_a_receipt_settles_once(cli: Cli) -> None:
    cli("send", "jobs", "1")
    receipt = cli("receive", "jobs", "--json").row["receipt"]
    assert cli("ack", receipt).code == 0
    ran = cli("ack", receipt, "--json")
    assert ran.code == 4
    assert ran.row["outcome"] == "lease_lost"
    assert ran.error["kind"] == "lease_lost"


def test_a_late_receipt_does_not_hinder_the_others(cli: Cli) -> None:
    cli("send", "jobs", "--lines", stdin=b"1\n2\n")
    first, second = (row["receipt"] for row in cli("receive", "jobs", "-n", 2, "--json").rows)
    cli("ack", first)
    ran = cli("ack", first, second, "--json")
    assert ran.code == 4
    assert [row["outcome"] for row in ran.rows] == ["lease_lost", "ack"]
    assert cli("stats", "jobs", "--json").row["depth"] == 0


def test_an_expired_lease_is_lost(cli: Cli) -> None:
    cli("send", "jobs", "1")
    receipt = cli("receive", "jobs", "--lease", 0.2, "--json").row["receipt"]
    again = cli("receive", "jobs", "--wait", 10, "--json").row
    assert again["attempt"] == 2
    assert cli("ack", receipt).code == 4
    assert cli("ack", again["receipt"]).code == 0


@pytest.mark.parametrize("receipt", ["abc", "", "%%%", '{"no": "receipt"}'])
def test_a_bad_receipt_is_a_usage_error(cli: Cli, receipt: str) -> None:
    ran = cli("ack", receipt)
    assert ran.code == 2
    assert "receipt" in ran.err


def test_no_receipts_at_all_exit_with_3(cli: Cli) -> None:
    assert cli("ack", "-").code == 3


def test_retry_counts_the_attempt_and_keeps_the_reason(cli: Cli) -> None:
    cli("send", "jobs", "1")
    receipt = cli("receive", "jobs", "--json").row["receipt"]
    assert cli("retry", receipt, "--delay", 0, "--reason", "no network").code == 0
    again = cli("receive", "jobs", "--wait", 5, "--json").row
    assert again["attempt"] == 2
    cli("retry", again["receipt"], "--bury", "--reason", "no such user")
    letter = cli("dead", "jobs", "--json").row
    assert [failure["error"] for failure in letter["failures"]] == ["no network", "no such user"]


def test_retry_waits_for_the_delay(cli: Cli) -> None:
    cli("send", "jobs", "1")
    cli("retry", cli("receive", "jobs", "--json").row["receipt"], "--delay", 60)
    assert cli("receive", "jobs").code == 3
    assert cli("stats", "jobs", "--json").row["delayed"] == 1


def test_release_does_not_count_the_attempt(cli: Cli) -> None:
    cli("send", "jobs", "1")
    cli("retry", cli("receive", "jobs", "--json").row["receipt"], "--release")
    assert cli("receive", "jobs", "--json").row["attempt"] == 1


@pytest.mark.parametrize(
    "options", [("--bury", "--release"), ("--bury", "--delay", "1"), ("--release", "--reason", "why")]
)
def test_retry_options_that_contradict_one_another(cli: Cli, options: tuple[str, ...]) -> None:
    assert cli("retry", "x", *options).code == 2


def test_a_subscription_has_its_own_progress_and_receipts(cli: Cli, bucket: Bucket) -> None:
    cli("send", "jobs", "1")
    got = cli("receive", "jobs", "--subscription", "audit", "--start", "earliest", "--json").row
    assert cli("ack", got["receipt"]).code == 0
    assert cli("peek", "jobs", "--subscription", "audit").code == 3
    assert len(cli("peek", "jobs", "--json").rows) == 1


def test_peeking_at_an_unknown_subscription_does_not_make_it(cli: Cli, bucket: Bucket) -> None:
    cli("send", "jobs", "1")
    assert cli("peek", "jobs", "--subscription", "adit").code == 1
    assert [each.name for each in bucket.queue("jobs").stats().subscriptions] == ["main"]


def test_peek_claims_nothing(cli: Cli) -> None:
    cli("send", "jobs", '{"n": 1}')
    assert cli("peek", "jobs", "--json").row["state"] == "ready"
    assert '{"n":1}' in cli("peek", "jobs").out
    assert cli("receive", "jobs", "--json").row["attempt"] == 1
    assert cli("peek", "jobs", "--json").row["state"] == "in_flight"


def test_tail_shows_the_last_messages_in_the_order_sent(cli: Cli, bucket: Bucket) -> None:
    queue = bucket.queue("jobs", shards=2)
    for n in range(20):
        queue.send(n)
        time.sleep(0.002)  # the order between shards is that of the time stamps, which are milliseconds
    assert [row["body"] for row in cli("tail", "jobs", "-n", 3, "--json").rows] == [17, 18, 19]
    assert sorted(row["body"] for row in cli("tail", "jobs", "--from", "earliest", "--json").rows) == list(range(20))
    assert cli("tail", "jobs", "--from", "latest").code == 3
    assert cli("tail", "jobs", "--from", "here").code == 2


def test_tail_shows_settled_messages_too(cli: Cli) -> None:
    cli("send", "jobs", "1")
    cli("receive", "jobs", "--ack")
    assert cli("tail", "jobs").out.endswith("0/0 1\n")
