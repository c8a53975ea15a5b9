"""rules add, ls, show, rm, pause, resume, rotate, and what may be seen of secrets."""

from __future__ import annotations

from pathlib import Path

import pytest

from bucketmq.client import Bucket
from bucketmq.events.rule import ToQueue, Webhook
from bucketmq.testing.endpoints import Reply, endpoint
from cli.ran import Cli, Shell

HOOK = "https://example.com/hook"
FILTER = 'WHERE `key` REGEXP "^pending/[a-z]+"'


def test_a_rule_with_everything(cli: Cli, bucket: Bucket) -> None:
    options = "--format s3 --batch 50 --timeout 3 --on 400=bury --on 4xx=retry --retry 5,300 --rate 7 --concurrency 2"
    more = "--ordered --stale drop --gone bury --hops 3 --start beginning --bearer env:TOKEN"
    ran = cli("rules", "add", "hook", "--to", HOOK, "--filter", FILTER, *options.split(), *more.split())
    assert ran.code == 0, ran
    rule = bucket.rules.get("hook")
    assert rule.to == Webhook(
        url=HOOK, format="s3", batch=50, timeout_seconds=3.0, statuses={"400": "bury", "4xx": "retry"}
    )
    policy = rule.policy
    assert (policy.retry_seconds, policy.rate_per_second, policy.concurrency) == ((5.0, 300.0), 7.0, 2)
    assert (policy.ordered, policy.stale, policy.gone, policy.hops_max) == (True, "drop", "bury", 3)
    assert rule.filter == FILTER
    assert bucket.rules.secrets("hook").bearer == "env:TOKEN"


def test_ls_shows_every_rule_with_its_filter_unharmed(cli: Cli, bucket: Bucket) -> None:
    cli("rules", "add", "inbox", "--to", "queue:inbox", "--filter", FILTER)
    cli("rules", "add", "hook", "--to", HOOK)
    cli("rules", "pause", "hook", "--why", "they [bold]move[/bold]")
    bucket.put("pending/a", b"1")
    out = cli("rules", "ls").out
    assert FILTER in out
    assert "paused: they [bold]move[/bold]" in out
    rows = {row["name"]: row for row in cli("rules", "ls", "--json").rows}
    assert (rows["inbox"]["to"], rows["inbox"]["state"], rows["inbox"]["ready"]) == ("queue:inbox", "active", 1)
    assert (rows["hook"]["state"], rows["hook"]["dead"]) == ("paused", 0)


def test_a_rule_is_shown_in_the_four_states_of_a_message(cli: Cli, bucket: Bucket) -> None:
    with endpoint(lambda _: Reply(500)) as there:
        cli("rules", "add", "hook", "--to", there.url, "--private")
        bucket.put("failing", b"1")
        cli("rules", "run", "--once")
    bucket.put("fresh", b"1")
    counts = {"ready": 1, "in_flight": 0, "delayed": 1, "dead": 0}
    for row in (cli("rules", "ls", "--json").row, cli("rules", "show", "hook", "--json").row):
        assert {state: row[state] for state in counts} == counts
        assert not {"waiting", "pending", "retrying"} & set(row)
    for verb in (("ls",), ("show", "hook")):
        out = cli("rules", *verb).out
        assert all(word in out for word in ("ready", "in flight", "delayed", "dead")), out
        assert "waiting" not in out


def test_without_rules_ls_says_so_and_exits_with_3(cli: Cli) -> None:
    ran = cli("rules", "ls")
    assert (ran.code, "rules add" in ran.err) == (3, True)


def test_a_rule_begins_with_what_exists_if_told(cli: Cli, bucket: Bucket) -> None:
    bucket.put("pending/a", b"1")
    bucket.put("other/b", b"1")
    cli("rules", "add", "late", "--to", "queue:late")
    cli("rules", "add", "all", "--to", "queue:all", "--existing", "pending/")
    cli("rules", "run", "--once")
    assert [d.body["key"] for d in bucket.queue("all").receive(10)] == ["pending/a"]
    assert len(bucket.queue("late").receive(10)) == 0


def test_a_rule_is_changed_only_if_told(cli: Cli, bucket: Bucket) -> None:
    assert cli("rules", "add", "a", "--to", "queue:one").code == 0
    ran = cli("rules", "add", "a", "--to", "queue:two")
    assert (ran.code, bucket.rules.get("a").to) == (2, ToQueue(queue="one"))
    assert cli("rules", "add", "a", "--to", "queue:two", "--replace").code == 0
    assert bucket.rules.get("a").to == ToQueue(queue="two")


def test_a_bad_filter_is_shown_with_a_caret_under_the_place(cli: Cli) -> None:
    ran = cli("rules", "add", "a", "--to", "queue:q", "--filter", 'WHERE key REGEX "x"')
    assert ran.code == 2
    lines = ran.err.splitlines()
    assert lines[0].startswith("error (invalid): filter, column 11: ")
    assert lines[1:3] == ['  WHERE key REGEX "x"', "            ^"]
    as_json = cli("rules", "explain", "--filter", "nonsense =", "--json")
    assert (as_json.code, as_json.error["kind"], "column" in as_json.error["message"]) == (2, "invalid", True)


@pytest.mark.parametrize("verb", ["show", "rm", "pause", "resume", "rotate", "dead", "redrive", "explain", "dry-run"])
def test_an_unknown_rule_is_answered_with_the_names_there_are(cli: Cli, verb: str) -> None:
    cli("rules", "add", "inbox", "--to", "queue:inbox")
    cli("rules", "add", "other", "--to", "queue:other")
    ran = cli("rules", verb, "inbx")
    assert ran.code == 1
    assert "did you mean 'inbox'?" in ran.err
    assert "other" in ran.err


def test_other_verbs_know_no_unknown_rule_either(cli: Cli) -> None:
    for args in (["rules", "test", "x", "--key", "k"], ["rules", "replay", "x", "--prefix", ""], ["rules", "run", "x"]):
        assert cli(*args).code == 1
    assert cli("audit", "--rule", "x").code == 1


@pytest.mark.parametrize(
    "wrong",
    [
        "--to nowhere",
        "--to http://example.com/hook",
        "--to https://example.com --on 400=forget",
        "--to https://example.com --on teapot=bury",
        "--to https://example.com --retry soon",
        "--to https://example.com --format xml",
        "--to https://example.com --batch 0",
        "--to queue:q --batch 5",
        "--to queue:q --sign",
        "--to queue:q --start tomorrow",
        "--to https://example.com --bearer abc",
        "--to https://example.com --bearer env:A --basic env:B",
        "--to https://example.com --sign --secret env:S",
        "--to https://example.com --secret-file /nowhere/secret",
    ],
)
def test_what_cannot_work_is_refused_when_written(cli: Cli, bucket: Bucket, wrong: str) -> None:
    ran = cli("rules", "add", "a", *wrong.split())
    assert (ran.code, ran.out) == (2, "")
    assert bucket.rules.list() == []


def test_a_secret_on_the_command_line_is_not_repeated(cli: Cli) -> None:
    ran = cli("rules", "add", "a", "--to", HOOK, "--bearer", "very-secret-token")
    assert (ran.code, "very-secret-token" in ran.err) == (2, False)
    assert "--bearer-file" in ran.err


def test_a_signing_secret_is_printed_once_and_masked_ever_after(cli: Cli, bucket: Bucket) -> None:
    secret = cli("rules", "add", "hook", "--to", HOOK, "--sign").out.strip()
    assert secret.startswith("whsec_")
    assert bucket.rules.secrets("hook").signing == (secret,)
    for args in (["show", "hook"], ["show", "hook", "--json"], ["ls"], ["ls", "--json"]):
        ran = cli("rules", *args)
        assert secret not in ran.out + ran.err
    assert cli("rules", "show", "hook", "--json").row["secrets"] == {"signing": [f"whsec_…{secret[-4:]}"]}


def test_secrets_come_from_files_and_standard_input(cli: Cli, bucket: Bucket, folder: Path) -> None:
    (folder / "basic").write_text("ada:swordfish-and-more\n")
    assert cli("rules", "add", "a", "--to", HOOK, "--basic-file", folder / "basic").code == 0
    assert cli("rules", "add", "b", "--to", HOOK, "--bearer-file", "-", stdin=b"a-token-of-some-length\n").code == 0
    assert bucket.rules.secrets("a").basic == "ada:swordfish-and-more"
    assert bucket.rules.secrets("b").bearer == "a-token-of-some-length"
    assert cli("rules", "show", "a", "--json").row["secrets"] == {"basic": "ada:…"}
    assert cli("rules", "show", "b", "--json").row["secrets"] == {"bearer": "…ngth"}


def test_a_short_secret_is_not_shown_in_part(cli: Cli, folder: Path) -> None:
    (folder / "token").write_text("hunter2")
    cli("rules", "add", "a", "--to", HOOK, "--bearer-file", folder / "token")
    assert cli("rules", "show", "a", "--json").row["secrets"] == {"bearer": "…"}


def test_rotation_signs_with_old_and_new_until_the_old_is_dropped(cli: Cli, bucket: Bucket) -> None:
    old = cli("rules", "add", "hook", "--to", HOOK, "--sign").out.strip()
    new = cli("rules", "rotate", "hook").out.strip()
    assert bucket.rules.secrets("hook").signing == (new, old)
    ran = cli("rules", "rotate", "hook", "--drop-old")
    assert (ran.code, ran.out) == (0, "")
    assert bucket.rules.secrets("hook").signing == (new,)
    row = cli("rules", "rotate", "hook", "--json").row
    assert (row["signs_with"], row["signing_secret"]) == (2, bucket.rules.secrets("hook").signing[0])


def test_only_what_is_signed_can_be_rotated(cli: Cli) -> None:
    cli("rules", "add", "a", "--to", "queue:a")
    cli("rules", "add", "b", "--to", HOOK)
    assert cli("rules", "rotate", "a").code == 2
    assert cli("rules", "rotate", "b", "--drop-old").code == 2


def test_private_targets_are_allowed_with_a_loud_warning(cli: Cli) -> None:
    ran = cli("rules", "add", "a", "--to", "http://localhost:1/hook", "--private")
    assert (ran.code, "WARNING" in ran.err) == (0, True)
    assert "WARNING" not in cli("rules", "add", "b", "--to", HOOK).err


def test_pause_resume_and_rm(cli: Cli, bucket: Bucket) -> None:
    cli("rules", "add", "a", "--to", "queue:out")
    assert cli("rules", "pause", "a", "--why", "later", "--json").row == {"rule": "a", "paused": "later"}
    bucket.put("k", b"1")
    cli("rules", "run", "--once")
    assert len(bucket.queue("out").receive(10)) == 0
    assert cli("rules", "resume", "a", "--json").row == {"rule": "a", "paused": None}
    cli("rules", "run", "--once")
    assert [d.body["key"] for d in bucket.queue("out").receive(10)] == ["k"]
    assert cli("rules", "rm", "a", "--json").row == {"rule": "a", "removed": True}
    assert bucket.rules.list() == []
    assert cli("rules", "rm", "a").code == 1


def test_show_tells_dead_letters_and_attempts(cli: Cli, bucket: Bucket) -> None:
    with endpoint([Reply(200), Reply(422, body=b"no [such] user")]) as there:
        cli("rules", "add", "hook", "--to", there.url, "--private", "--on", "422=bury", "--concurrency", "1")
        bucket.put("good", b"1")
        bucket.put("bad", b"1")
        cli("rules", "run", "--once")
    row = cli("rules", "show", "hook", "--json").row
    assert (row["ready"], row["dead"], row["rule"]["policy"]["jitter"]) == (0, 1, 0.2)
    assert [(each["key"], each["status"], each["outcome"]) for each in row["attempts"]] == [
        ("good", 200, "done"),
        ("bad", 422, "bury"),
    ]
    (letter,) = row["dead_letters"]
    assert (letter["event"]["key"], letter["attempts"]) == ("bad", 1)
    assert "no [such] user" in letter["failures"][0]["error"]
    out = cli("rules", "show", "hook").out
    assert "HTTP 422" in out


def test_test_says_whether_and_why(cli: Cli, bucket: Bucket) -> None:
    bucket.put("pending/a.json", {"amount": 70})
    cli("rules", "add", "a", "--to", "queue:q", "--filter", 'key LIKE "pending/%" AND size > 1000')
    ran = cli("rules", "test", "a", "--key", "pending/a.json")
    assert ran.code == 3
    assert ran.out.startswith("no match\n")
    (line,) = [line for line in ran.out.splitlines() if line.lstrip().startswith("→")]
    assert "size > 1000" in line
    assert "size is 13" in line
    row = cli("rules", "test", "--filter", "size < 1000", "--key", "pending/a.json", "--json").row
    assert (row["matches"], row["exists"]) == (True, True)
    ran = cli("rules", "test", "--filter", 'kind = "deleted"', "--key", "gone", "--kind", "deleted")
    assert (ran.code, ran.out.splitlines()[0]) == (0, "match")
    assert "no such object" in ran.err


def test_explain_shows_the_tree_the_prefix_and_the_cost(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    cli("rules", "add", "a", "--to", "queue:q", "--filter", FILTER)
    assert "key prefix  pending/" in cli("rules", "explain", "a").out
    monkeypatch.delenv("BUCKETMQ_URL")  # a filter alone needs no bucket
    row = cli("rules", "explain", "--filter", 'key REGEXP "^a[0-9]" AND size > 1', "--json").row
    assert (row["prefix"], "HEAD" in row["cost"]) == ("a", True)
    out = cli("rules", "explain", "--filter", 'key REGEXP "^a[bold]"').out
    assert '"^a[bold]"' in out


def test_a_dry_run_lists_what_matches_now(cli: Cli, bucket: Bucket) -> None:
    for key in ("a/1", "a/2", "b/1"):
        bucket.put(key, b"1")
    ran = cli("rules", "dry-run", "--filter", 'key LIKE "a/%"')
    assert (ran.code, ran.out.splitlines()) == (0, ["a/1", "a/2"])
    row = cli("rules", "dry-run", "--filter", "", "--prefix", "a/", "--limit", 1, "--json").row
    assert (row["keys"], row["more"]) == (["a/1"], True)
    assert cli("rules", "dry-run", "--filter", 'key = "c"').code == 3


def test_a_rule_and_a_filter_at_once_are_too_much(cli: Cli) -> None:
    assert cli("rules", "explain").code == 2
    assert cli("rules", "explain", "a", "--filter", "").code == 2


def test_help_of_the_group_shows_its_verbs(shell: Shell) -> None:
    ran = shell("bucketmq rules --help")
    assert ran.code == 0
    for verb in ("add", "dry-run", "redrive", "rotate"):
        assert verb in ran.out
