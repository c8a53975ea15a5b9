"""rules run, replay, dead and redrive, against a local endpoint that answers as told."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path

import pytest

from bucketmq.cli.rules_run import moment
from bucketmq.client import Bucket
from bucketmq.errors import Invalid
from bucketmq.events.signing import Rejected, Verified, verify
from bucketmq.testing.endpoints import Received, Reply, endpoint
from cli.ran import Cli
from cli.running import running


def verified(request: Received, *secrets: str) -> Verified | Rejected:
    return verify(list(secrets), request.headers, request.body, time.time())


def test_an_endpoint_receives_signed_requests(cli: Cli, bucket: Bucket) -> None:
    with endpoint() as there:
        secret = cli("rules", "add", "hook", "--to", there.url, "--private", "--sign").out.strip()
        bucket.put("pending/a", b"1")
        ran = cli("rules", "run", "hook", "--once", "--json")
        assert ran.row == {"rules": {"hook": {"done": 1, "failed": 0, "buried": 0, "dropped": 0}}}
        (request,) = there.requests
    assert isinstance(verified(request, secret), Verified)
    assert b"pending/a" in request.body


def test_a_rotated_secret_and_the_one_before_both_verify(cli: Cli, bucket: Bucket) -> None:
    with endpoint() as there:
        old = cli("rules", "add", "hook", "--to", there.url, "--private", "--sign").out.strip()
        new = cli("rules", "rotate", "hook").out.strip()
        bucket.put("a", b"1")
        cli("rules", "run", "--once")
        (request,) = there.requests
        assert isinstance(verified(request, old), Verified)
        assert isinstance(verified(request, new), Verified)
        cli("rules", "rotate", "hook", "--drop-old")
        bucket.put("b", b"1")
        cli("rules", "run", "--once")
        after = there.requests[-1]
    assert isinstance(verified(after, new), Verified)
    assert isinstance(verified(after, old), Rejected)


def test_a_bearer_token_is_read_where_the_rule_runs(cli: Cli, bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOOK_TOKEN", "a-token-from-the-environment")
    with endpoint() as there:
        cli("rules", "add", "hook", "--to", there.url, "--private", "--bearer", "env:HOOK_TOKEN")
        bucket.put("a", b"1")
        cli("rules", "run", "--once")
        (request,) = there.requests
    assert request.headers["authorization"] == "Bearer a-token-from-the-environment"


def test_dead_letters_of_one_rule_are_sent_again_after_a_fix(cli: Cli, bucket: Bucket) -> None:
    with endpoint([Reply(400, body=b"broken"), Reply(400, body=b"broken"), Reply(200)]) as there:
        cli("rules", "add", "hook", "--to", there.url, "--private", "--on", "400=bury", "--concurrency", "1")
        cli("rules", "add", "other", "--to", "queue:out", "--gone", "bury")
        bucket.put("a", b"1")
        bucket.put("b", b"1")
        bucket.trigger("never-there")
        cli("rules", "run", "--once")
        assert cli("rules", "dead", "other", "--json").row["event"]["key"] == "never-there"
        mine = cli("rules", "dead", "hook", "--json").rows
        assert [row["event"]["key"] for row in mine] == ["a", "b"]
        assert "HTTP 400" in cli("rules", "dead", "hook").out
        assert "    broken" in cli("rules", "dead", "hook", "--full").out.splitlines()
        dry = cli("rules", "redrive", "hook", "--dry-run", "--json").row
        assert dry == {"rule": "hook", "matched": 2, "redriven": 0}
        assert cli("rules", "redrive", "hook").code == 2  # nobody is there to ask
        one = cli("rules", "redrive", "hook", "--id", mine[0]["id"], "--yes", "--json").row
        assert one == {"rule": "hook", "matched": 1, "redriven": 1}
        assert cli("rules", "redrive", "hook", "--yes", "--json").row["redriven"] == 1
        cli("rules", "run", "--once")
        told = [json.loads(each.body)["events"][0]["object"]["key"] for each in there.requests]
        assert told == ["a", "b", "never-there", "a", "b"]
    assert cli("rules", "dead", "hook").code == 3
    assert cli("rules", "redrive", "hook", "--yes").code == 3
    assert len(cli("rules", "dead", "other", "--json").rows) == 1


def test_ls_counts_the_dead_of_each_rule(cli: Cli, bucket: Bucket) -> None:
    for name in ("one", "two"):
        cli("rules", "add", name, "--to", "queue:out", "--gone", "bury", "--filter", f'key LIKE "{name}/%"')
    for key in ("one/a", "one/b", "two/a"):
        bucket.trigger(key)
    cli("rules", "run", "--once")
    assert {row["name"]: row["dead"] for row in cli("rules", "ls", "--json").rows} == {"one": 2, "two": 1}


def test_replay_gives_one_rule_the_same_events_again(cli: Cli, bucket: Bucket) -> None:
    cli("rules", "add", "one", "--to", "queue:one", "--filter", 'key LIKE "a/%"')
    cli("rules", "add", "two", "--to", "queue:two")
    for key in ("a/1", "a/2", "b/1"):
        bucket.put(key, b"1")
    cli("rules", "run", "--once")
    dry = cli("rules", "replay", "one", "--since", "1h", "--dry-run", "--json").row
    assert (dry["events"], dry["dry_run"]) == (2, True)
    assert cli("rules", "replay", "one", "--since", "1h", "--rate", 100_000).code == 0
    assert cli("rules", "replay", "one", "--prefix", "a/", "--json", "--rate", 100_000).row["events"] == 2
    cli("rules", "run", "--once")
    ids = [delivery.headers["event-id"] for delivery in bucket.queue("one").receive(20)]
    assert len(ids) == 6
    assert ids[:2] == ids[2:4]
    assert len(bucket.queue("two").receive(20)) == 3


def test_replay_gives_one_object_again_by_its_key(cli: Cli, bucket: Bucket) -> None:
    cli("rules", "add", "one", "--to", "queue:one")
    bucket.put("a/1", b"1")
    bucket.put("a/2", b"1")
    assert cli("rules", "replay", "one", "--key", "a/2", "--json").row["events"] == 1
    gone = cli("rules", "replay", "one", "--key", "a/3")
    assert (gone.code, "there is no object 'a/3' now; say since when" in gone.err) == (1, True)
    assert cli("rules", "replay", "one", "--key", "a/2", "--since", "1h", "--dry-run", "--json").row["events"] == 1


def test_replay_takes_any_prefix_and_does_not_speak_of_sweeps(cli: Cli, bucket: Bucket) -> None:
    cli("rules", "add", "one", "--to", "queue:one")
    bucket.put("report-1", b"1")
    bucket.put("report-2", b"1")
    bucket.put("other", b"1")
    ran = cli("rules", "replay", "one", "--prefix", "rep", "--json")
    assert (ran.code, ran.row["events"]) == (0, 2)
    refused = cli("rules", "replay", "one", "--prefix", "/rep")
    assert (refused.code, "sweep" in refused.err) == (2, False)


def test_replay_wants_a_key_a_prefix_or_a_time(cli: Cli) -> None:
    cli("rules", "add", "one", "--to", "queue:one")
    assert cli("rules", "replay", "one").code == 2
    assert cli("rules", "replay", "one", "--prefix", "", "--key", "a").code == 2
    assert cli("rules", "replay", "one", "--since", "yesterday").code == 2
    assert cli("rules", "replay", "one", "--since", "2h", "--until", "1h").code == 3


def test_times_are_moments_or_so_long_ago() -> None:
    assert moment("2030-01-31T12:00:00Z") == 1896091200.0
    assert moment(None) is None
    ago = moment("2h")
    assert ago is not None
    assert 7200 <= time.time() - ago < 7260
    for wrong in ("now", "beginning", "2 parsecs", ""):
        with pytest.raises(Invalid, match="is not a time"):
            moment(wrong)


def test_run_goes_on_until_sigterm_and_notices_new_rules(
    cli: Cli, bucket: Bucket, environment: dict[str, str], folder: Path
) -> None:
    with endpoint() as there, running(["rules", "run"], environment, folder) as process:
        assert "nothing yet" in process.said("delivering")
        cli("rules", "add", "hook", "--to", there.url, "--private")
        bucket.put("a", b"1")
        there.wait_for(1)
        code, _, err = process.stop(signal.SIGTERM)
    assert code == 0, err
    assert "hook: 1 delivered" in err


def test_a_handlers_rule_is_not_run_here(cli: Cli, bucket: Bucket) -> None:
    bucket.watch("", name="handler")(lambda change: None)
    bucket.run_watchers(stop_when_empty=True)
    ran = cli("rules", "run", "handler", "--once")
    assert (ran.code, "bucketmq watch" in ran.err) == (2, True)
