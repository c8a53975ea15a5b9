"""put, get, mv, rm and trigger: users' objects, and the events they make."""

from __future__ import annotations

import json
from pathlib import Path

from bucketmq.client import Bucket
from cli.ran import Cli, Shell


def events(bucket: Bucket) -> list[tuple[str, str]]:
    queue, positions = bucket.existing_queue("events"), {0: 0}
    found: list[tuple[str, str]] = []
    while True:
        before = dict(positions)
        found += [(message.body["kind"], message.body["key"]) for message in queue.tail(positions)]
        if positions == before:
            return found


def test_each_verb_does_what_it_says_and_reports_it(cli: Cli, bucket: Bucket) -> None:
    assert cli("put", "pending/1.json", stdin=b'{"n": 1}').code == 0
    assert cli("put", "pending/1.json", stdin=b'{"n": 2}').code == 0
    assert cli("mv", "pending/1.json", "done/1.json").code == 0
    assert cli("rm", "done/1.json").code == 0
    assert events(bucket) == [
        ("created", "pending/1.json"),
        ("changed", "pending/1.json"),
        ("moved", "done/1.json"),
        ("deleted", "done/1.json"),
    ]


def test_what_is_put_is_what_is_got(cli: Cli, shell: Shell, folder: Path) -> None:
    (folder / "bytes").write_bytes(bytes(range(256)))
    assert cli("put", "a.bin", folder / "bytes", "--content-type", "x/y", "--meta", "Owner=ada").code == 0
    assert shell("bucketmq get a.bin | cmp - bytes").code == 0
    assert cli("get", "a.bin", "-o", folder / "copy").code == 0
    assert (folder / "copy").read_bytes() == bytes(range(256))
    row = cli("get", "a.bin", "--json").row
    assert (row["content_type"], row["metadata"], row["size_bytes"]) == ("x/y", {"owner": "ada"}, 256)
    assert row["body_base64"].startswith("AAEC")


def test_json_and_text_bodies_are_shown_as_such(cli: Cli) -> None:
    cli("put", "a.json", stdin=b'{"n": [1]}')
    cli("put", "b.json", stdin=b"{broken")
    cli("put", "c.txt", stdin="größer".encode())
    assert cli("get", "a.json", "--json").row["body"] == {"n": [1]}
    assert cli("get", "b.json", "--json").row["body"] == "{broken"
    assert cli("get", "c.txt", "--json").row["body"] == "größer"


def test_put_prints_the_version_and_the_event(cli: Cli, bucket: Bucket) -> None:
    ran = cli("put", "a", stdin=b"x")
    assert ran.out.strip() == bucket.get("a").version
    assert "created a, event evt_" in ran.err
    row = cli("put", "a", "--json", stdin=b"y").row
    assert (row["key"], row["event"]["kind"], row["reported"]) == ("a", "changed", True)


def test_new_refuses_to_write_over(cli: Cli, bucket: Bucket) -> None:
    cli("put", "a", stdin=b"first")
    ran = cli("put", "a", "--new", stdin=b"second")
    assert (ran.code, bucket.get("a").body) == (4, b"first")
    assert ran.err.startswith("error (contended): ")


def test_mv_leaves_another_object_alone_unless_told(cli: Cli, bucket: Bucket) -> None:
    bucket.put("a", b"a")
    bucket.put("b", b"b")
    assert cli("mv", "a", "b").code == 2
    assert bucket.get("b").body == b"b"
    assert cli("mv", "a", "b", "--replace", "--json").row["event"]["from_key"] == "a"
    assert bucket.get("b").body == b"a"


def test_what_is_not_there(cli: Cli) -> None:
    assert cli("get", "nothing").code == 1
    assert cli("mv", "nothing", "else").code == 1
    assert cli("rm", "nothing").code == 3
    assert cli("rm", "nothing", "--json").row == {"key": "nothing", "deleted": False}


def test_our_own_keys_and_bad_options_are_usage_errors(cli: Cli, folder: Path) -> None:
    assert cli("put", "queues/x", stdin=b"").code == 2
    assert cli("put", "a", "--meta", "nothing", stdin=b"").code == 2
    ran = cli("put", "a", folder / "missing")
    assert (ran.code, "cannot read" in ran.err) == (2, True)


def test_trigger_prints_the_event_it_made(cli: Cli, bucket: Bucket) -> None:
    ran = cli("trigger", "pending/7.json")
    assert "pending/7.json" in ran.out
    row = cli("trigger", "pending/7.json", "--kind", "deleted", "--json").row
    assert (row["kind"], row["source"]) == ("deleted", "trigger")
    assert events(bucket) == [("created", "pending/7.json"), ("deleted", "pending/7.json")]
    assert cli("trigger", "x", "--kind", "moved").code == 2


def test_a_body_from_a_pipe_needs_no_file(shell: Shell) -> None:
    ran = shell("echo hello | bucketmq put a.txt && bucketmq get a.txt --json")
    assert json.loads(ran.out.splitlines()[-1])["body"] == "hello\n"
