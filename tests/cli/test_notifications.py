"""notifications set, show, reset: the shape that users of Tigris know."""

from __future__ import annotations

import json

import pytest

from bucketmq.client import Bucket
from bucketmq.testing.endpoints import endpoint
from cli.ran import Cli

URL = "https://example.com/hook"
TOKEN = "a-token-of-some-length"


def test_the_line_that_people_know_works(cli: Cli, bucket: Bucket) -> None:
    with endpoint() as there:
        where = ["--url", there.url, "--private"]
        ran = cli("notifications", "set", *where, "--token", TOKEN, "--filter", 'WHERE `key` REGEXP "^pending/"')
        assert (ran.code, TOKEN in ran.out + ran.err) == (0, False)
        bucket.put("pending/a.json", {"n": 1})
        bucket.put("other/a.json", {"n": 1})
        cli("rules", "run", "--once")
        (request,) = there.requests
    assert request.headers["authorization"] == f"Bearer {TOKEN}"
    (event,) = json.loads(request.body)["events"]
    assert (event["eventName"], event["object"]["key"]) == ("OBJECT_CREATED_PUT", "pending/a.json")


@pytest.mark.parametrize("text", ['WHERE `key` REGEXP "^pending/"', '`key` REGEXP "^pending/"'])
def test_where_may_be_left_out(cli: Cli, bucket: Bucket, text: str) -> None:
    assert cli("notifications", "set", "--url", URL, "--filter", text).code == 0
    assert cli("rules", "test", "notifications", "--key", "pending/a").code == 0
    assert cli("rules", "test", "notifications", "--key", "other/a").code == 3


def test_what_is_left_out_stays(cli: Cli, bucket: Bucket) -> None:
    cli("notifications", "set", "--url", URL, "--token", TOKEN, "--filter", 'key LIKE "a/%"')
    subscription = bucket.rules.get("notifications").subscription
    cli("notifications", "set", "--disable")
    row = cli("notifications", "set", "--filter", 'key LIKE "b/%"', "--json").row
    assert row == {
        "url": URL,
        "filter": 'key LIKE "b/%"',
        "enabled": False,
        "paused": "disabled",
        "bearer": "…ngth",
    }
    assert cli("notifications", "set", "--enable", "--json").row["enabled"] is True
    assert bucket.rules.get("notifications").subscription == subscription
    assert bucket.rules.secrets("notifications").bearer == TOKEN


def test_a_user_and_a_password(cli: Cli, bucket: Bucket) -> None:
    assert cli("notifications", "set", "--url", URL, "--username", "ada", "--password", "swordfish").code == 0
    assert bucket.rules.secrets("notifications").basic == "ada:swordfish"
    ran = cli("notifications", "show")
    assert ("ada:…" in ran.out, "swordfish" in ran.out) == (True, False)


def test_show_and_reset(cli: Cli, bucket: Bucket) -> None:
    assert cli("notifications", "show").code == 3
    cli("notifications", "set", "--url", URL)
    assert cli("notifications", "show", "--json").row["url"] == URL
    assert cli("notifications", "reset", "--json").row == {"removed": True}
    assert bucket.rules.list() == []
    assert cli("notifications", "reset").code == 3


@pytest.mark.parametrize(
    "wrong",
    [
        "--filter key=1",
        "--disable",
        "--url nowhere",
        "--url http://example.com/",
        "--url https://example.com --username ada",
        "--url https://example.com --token t --username ada --password p",
    ],
)
def test_what_cannot_work_is_a_usage_error(cli: Cli, bucket: Bucket, wrong: str) -> None:
    assert cli("notifications", "set", *wrong.split()).code == 2
    assert bucket.rules.list() == []


def test_the_bucket_may_be_named_beside_the_address(cli: Cli, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("BUCKETMQ_URL")
    assert cli("notifications", "set", "--url", URL, "--bucket", url).code == 0
    assert cli("--url", url, "notifications", "set", "--url", URL).code == 0
    assert cli("notifications", "show", "--url", url).code == 0
