"""listen: forwards to a program on this machine and shows what it answers."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

from bucketmq.client import Bucket
from bucketmq.events.signing import Verified, new_secret, verify
from bucketmq.testing.endpoints import HangUp, Reply, endpoint
from cli.ran import Cli
from cli.running import running


def test_each_event_is_forwarded_signed_and_shown_with_its_answer(
    bucket: Bucket, environment: dict[str, str], folder: Path
) -> None:
    bucket.put("before", b"is no news")
    with (
        endpoint([Reply(200), Reply(500), Reply(204)]) as there,
        running(["listen", "--forward-to", there.url, "--sweep-every", "0"], environment, folder) as process,
    ):
        secret = process.said("signing secret: ").rpartition(" ")[2].strip()
        process.said("forwarding to ")
        bucket.put("pending/[a]", b"1")
        assert "created pending/[a] → HTTP 200 in " in process.line()
        bucket.put("pending/b", b"1")
        failed, again = process.line(), process.line()
        assert "created pending/b → HTTP 500 in " in failed
        assert failed.endswith(", again in 1 s\n")
        assert "created pending/b → HTTP 204 in " in again
        requests = there.wait_for(3)
        code, _, err = process.stop(signal.SIGINT)
    assert code == 0, err
    assert "2 delivered, 1 failed attempts" in err
    assert all(isinstance(verify([secret], each.headers, each.body, time.time()), Verified) for each in requests)
    assert requests[1].headers["webhook-id"] == requests[2].headers["webhook-id"]
    assert [each.headers["bucketmq-attempt"] for each in requests] == ["1", "1", "2"]
    assert bucket.rules.list() == []


def test_a_filter_a_format_a_secret_and_json_lines(
    bucket: Bucket, environment: dict[str, str], folder: Path, url: str
) -> None:
    secret = new_secret(bytes(range(32)))
    options = ["--filter", 'key LIKE "a/%"', "--format", "s3", "--secret", "env:HOOK_SECRET", "--json"]
    with (
        endpoint([HangUp(), Reply(200)]) as there,
        running(["listen", "--forward-to", there.url, *options], {**environment, "HOOK_SECRET": secret}, folder) as ran,
    ):
        first = ran.row()
        assert (first["forward_to"], "signing_secret" in first) == (there.url, False)
        bucket.put("b/1", b"1")
        bucket.put("a/1", b"1")
        failed, done = ran.row(), ran.row()
        code, _, err = ran.stop(signal.SIGTERM)
    assert (code, secret in err) == (0, False)
    assert (failed["key"], failed["status"], failed["outcome"], failed["attempt"]) == ("a/1", None, "retry", 1)
    assert failed["reason"]
    assert (done["status"], done["outcome"], done["attempt"]) == (200, "done", 2)
    assert json.loads(there.requests[0].body)["Records"][0]["s3"]["object"]["key"] == "a/1"


def test_in_a_folder_other_programs_changes_are_found(
    bucket: Bucket, environment: dict[str, str], folder: Path
) -> None:
    outside = folder / "bucket" / "inbox"
    outside.mkdir(parents=True)
    (outside / "before").write_text("is no news")
    options = ["--sweep-every", "0.1", "--json"]
    with endpoint() as there, running(["listen", "--forward-to", there.url, *options], environment, folder) as process:
        process.row()
        (outside / "new").write_text("1")
        row = process.row()
        process.stop()
    assert (row["key"], row["status"]) == ("inbox/new", 200)
    assert len(there.requests) == 1


def test_what_triggers_makes_up_is_forwarded(
    cli: Cli, bucket: Bucket, environment: dict[str, str], folder: Path
) -> None:
    with endpoint() as there, running(["listen", "--forward-to", there.url, "--json"], environment, folder) as process:
        process.row()
        assert cli("trigger", "gone/1", "--kind", "deleted").code == 0
        row = process.row()
        process.stop()
    assert (row["key"], row["kind"], row["status"]) == ("gone/1", "deleted", 200)


def test_what_cannot_be_forwarded_to_is_a_usage_error(cli: Cli, bucket: Bucket) -> None:
    assert cli("listen", "--forward-to", "localhost:8000").code == 2
    assert cli("listen", "--forward-to", "http://localhost:1/", "--secret", "short").code == 2
    assert cli("listen", "--forward-to", "http://localhost:1/", "--filter", "nonsense").code == 2
    assert bucket.rules.list() == []


def test_a_rule_that_a_killed_one_left_is_removed_a_day_later(
    bucket: Bucket, environment: dict[str, str], folder: Path
) -> None:
    for name in ("listen-00000001", "listen-00000002"):
        bucket.watch("", name=name)(print)
    bucket.run_watchers(stop_when_empty=True)
    old = folder / "bucket" / "rules" / "listen-00000001.json"
    old.write_text(json.dumps({**json.loads(old.read_text()), "created_at": "2026-01-01T00:00:00.000000Z"}))
    with running(["listen", "--forward-to", "http://127.0.0.1:9/", "--json"], environment, folder) as process:
        process.row()
        process.stop()
    assert [rule.name for rule in bucket.rules.list()] == ["listen-00000002"]
