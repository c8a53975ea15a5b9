"""The verbs of logs, on a folder; what lines say is shown and never obeyed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from apps.logs.parts import MINUTE, START, Logs, line, ordinary, put
from bucketmq.apps.logs.look import services
from bucketmq.procedures.objects import listing

ESCAPE = "\x1b[31mred\x1b[0m"


@pytest.fixture
def written(folder: Path, url: str) -> Any:
    logs = Logs(url)
    for minute in (0, 25):
        put(logs.bucket, str(minute), ordinary(minute, 3))
    logs.go()
    put(logs.bucket, "bad", [line(START + 30 * MINUTE, f"broken {ESCAPE} password=hunter-two", "error")])
    logs.go()
    yield logs
    logs.close()


def test_tail_templates_alerts_explain_and_mute(cli: Any, written: Logs) -> None:
    tail = cli("logs", "tail", "web", "--json")
    assert [row["level"] for row in tail.rows] == ["info"] * 6 + ["error"]
    plain = cli("logs", "tail", "web", "--level", "error")
    assert "\x1b" not in plain.out and "\\u001b[31mred" in plain.out and "hunter-two" not in plain.out
    templates = cli("logs", "templates", "web", "--hours", "1000", "--json").rows
    assert (templates[0]["template"], templates[0]["lines"]) == ("request <*> served in <*>", 6)
    assert "\x1b" not in cli("logs", "templates", "web").out
    (alert,) = cli("logs", "alerts", "--json").rows
    assert alert["kind"] == "new-pattern" and "hunter-two" not in str(alert)
    assert "\x1b" not in cli("logs", "alerts").out
    shown = cli("logs", "explain", alert["id"])
    assert "never seen before" in shown.out and "\x1b" not in shown.out
    of_template = cli("logs", "tail", "web", "--template", alert["template_id"], "--json").rows
    assert len(of_template) == 1 and of_template[0]["source"].endswith("bad.jsonl")
    assert cli("logs", "mute", alert["id"], "--for", "2h", "--note", "known").code == 0
    assert cli("logs", "alerts", "--json").rows == []
    assert len(cli("logs", "alerts", "--in", "muted", "--json").rows) == 1
    assert cli("logs", "mute", alert["id"], "--off", "--json").rows == [{"alert": alert["id"], "until": None}]
    assert len(cli("logs", "alerts", "--json").rows) == 1


def test_lines_without_times_are_as_new_as_their_objects(cli: Any, url: str) -> None:
    logs = Logs(url)
    for name in "123":
        logs.bucket.put(f"logs/plain/2026-11-18/{name}.log", f"began in {name}\nended in {name}\n")
    logs.go()
    logs.close()
    tail = cli("logs", "tail", "plain", "--count", "3", "--json").rows
    assert [row["text"] for row in tail] == ["ended in 2", "began in 3", "ended in 3"]
    (began, _) = sorted(cli("logs", "templates", "plain", "--json").rows, key=lambda row: row["template"])
    of_template = cli("logs", "tail", "plain", "--template", began["id"], "--count", "2", "--json").rows
    assert [row["text"] for row in of_template] == ["began in 2", "began in 3"]


def test_all_is_seen_where_there_is_more_than_one_listing_holds(
    cli: Any, written: Logs, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(written.bucket, "worse", [line(START + 31 * MINUTE, "the disk is full", "error")])
    put(written.bucket, "0", ordinary(0, 3), service="mailer")
    written.go()
    monkeypatch.setattr(listing, "RANGE_KEYS_LOCAL", 1)
    assert [row["text"] for row in cli("logs", "tail", "web", "--count", "1", "--json").rows] == ["the disk is full"]
    assert len(cli("logs", "alerts", "--json").rows) == 2
    assert [each.service for each in written.bucket.run(services(written.bucket.api))] == ["mailer", "web"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("tail", "nobody"), "there are no logs of a service 'nobody'"),
        (("tail", "web", "--level", "loud"), "a level is one of"),
        (("tail", "web", "--template", "x"), "has no template 'x'"),
        (("alerts", "--in", "space"), "alerts are open, muted or resolved"),
        (("mute", "x"), "not the id of an alert"),
        (("mute", "0" * 20, "--for", "long"), "write 30m, 8h or 7d"),
        (("mute", "0" * 20, "--for", "²h"), "write 30m, 8h or 7d"),
        (("explain", "0" * 20), "there is no open alert"),
    ],
)
def test_mistakes_are_said(cli: Any, bucket: Any, words: tuple[str, ...], said: str) -> None:
    bucket.put("logs/web/2026-11-18/a.txt", "hello")
    ran = cli("logs", *words)
    assert ran.code != 0 and said in ran.err and "Traceback" not in ran.err
