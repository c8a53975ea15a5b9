"""From objects to counts and windows: counted once whatever is delivered again, the same rows for everybody."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import duckdb
import pytest
from pipeline.dying import Stopped, dying_after

from apps.logs.parts import MINUTE, START, Logs, jsonl, line, ordinary, put
from bucketmq.apps import registry
from bucketmq.apps.logs import matching, models
from bucketmq.apps.logs.app import counting
from bucketmq.apps.logs.drain import Index
from bucketmq.apps.logs.matching import REST, tally
from bucketmq.apps.logs.models import Model, learnt
from bucketmq.apps.logs.parse import Line, read
from bucketmq.errors import Invalid
from bucketmq.outcomes import Done


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[Logs]:
    made = Logs(str(tmp_path / "bucket"))
    yield made
    made.close()


def total(logs: Logs) -> int:
    return sum(row["lines"] for row in logs.rows())


def test_lines_are_counted_by_template_and_minute(logs: Logs) -> None:
    key = put(logs.bucket, "a", [*ordinary(0, 3), *ordinary(1, 2), line(START, "boom", "error")])
    logs.go()
    assert [
        (row["minute"].timestamp() - START, row["template"], row["level"], row["lines"]) for row in logs.rows()
    ] == [
        (0, "boom", "error", 1),
        (0, "request <*> served in <*>", "info", 3),
        (60, "request <*> served in <*>", "info", 2),
    ]
    assert {row["source"] for row in logs.rows()} == {key}
    assert logs.bucket.get_json("log-services/web.json")["lines"] == 6
    assert [each["template"] for each in logs.bucket.get_json("templates/web.json")["templates"]] == [
        "boom",
        "request <*> served in <*>",
    ]
    assert logs.dead() == []


def test_an_object_that_is_told_again_or_run_again_counts_once_and_one_that_is_replaced_as_it_is_now(
    logs: Logs,
) -> None:
    key = put(logs.bucket, "a", ordinary(0, 5))
    logs.go()
    before = logs.rows()
    for _ in range(3):
        logs.bucket.trigger(key)
        logs.go()
    assert [{**row, "at": 0} for row in logs.rows()] == [{**row, "at": 0} for row in before]
    assert logs.bucket.get_json("log-services/web.json")["lines"] == 5
    put(logs.bucket, "a", ordinary(0, 2))
    logs.count()
    assert total(logs) == 2
    put(logs.bucket, "a", [])
    logs.count()
    assert total(logs) == 0
    put(logs.bucket, "b", ordinary(0, 4))
    logs.count()
    logs.bucket.delete("logs/web/2026-11-18/b.jsonl")
    logs.count()
    assert total(logs) == 4, "what was counted stays when the log is deleted"


def test_other_tools_read_the_counts(logs: Logs) -> None:
    put(logs.bucket, "a", ordinary(0, 5))
    put(logs.bucket, "b", ordinary(0, 3), service="mail")
    logs.count()
    files = [str(Path(logs.url) / file) for file in logs.bucket.table("log-counts").snapshot().files]
    rows = duckdb.read_parquet(files).aggregate("service, sum(lines) AS n").order("service").fetchall()
    assert rows == [("mail", 3), ("web", 5)]


def test_bad_objects_are_dead_letters_that_say_why_and_the_others_go_on(tmp_path: Path) -> None:
    logs = Logs(str(tmp_path / "bucket"), unpacked_bytes_max=1 << 20)
    logs.bucket.put("logs/stray.txt", "x")
    logs.bucket.put("logs/web/2026-11-18/bomb.gz", gzip.compress(b"a" * (3 << 20), 1))
    put(logs.bucket, "good", ordinary(0, 2))
    logs.count()
    assert total(logs) == 2
    reasons = sorted(logs.dead())
    assert len(reasons) == 2
    assert "does not say of which service" in reasons[0] and "unpacks to more than" in reasons[1]
    logs.close()


def test_lines_from_the_future_are_counted_when_their_object_came(logs: Logs) -> None:
    put(logs.bucket, "a", [line(START + 365 * 86400, "request from next year"), *ordinary(0, 1)])
    logs.go()
    service = logs.bucket.get_json("log-services/web.json")
    assert service["skewed"] == 1
    assert service["newest_at"] <= service["arrived_at"]


def test_a_process_that_dies_between_any_two_writes_loses_and_doubles_nothing(tmp_path: Path) -> None:
    deaths, writes, alive = 0, 0, False
    while not alive:
        logs = Logs(str(tmp_path / f"bucket-{writes}"))
        changes: list[Any] = []
        logs.bucket.watch('key LIKE "logs/%"', name="seen", start="beginning")(changes.append)
        put(logs.bucket, "a", [*ordinary(0, 5), line(START, "boom", "error")])
        logs.bucket.run_watchers("seen", stop_when_empty=True, signals=False)
        count, watch = logs.counting.watcher(logs.bucket), logs.watching.watcher(logs.bucket)
        try:
            with dying_after(writes):
                count(changes[0])
                alive = True
        except Stopped:
            deaths += 1
        count(changes[0])
        (delivery, *_) = logs.bucket.queue("log-windows").receive(1)
        try:
            with dying_after(writes % 7):
                watch(delivery)
        except Stopped:
            deaths += 1
        assert watch(delivery) == Done()
        delivery.ack()
        logs.watch()
        logs.keep()
        assert total(logs) == 6
        assert logs.bucket.get_json("log-services/web.json")["lines"] == 6
        assert len(logs.bucket.get_json("templates/web.json")["templates"]) == 2
        logs.close()
        writes += 1
    assert deaths >= 8


def test_identifiers_do_not_make_templates_explode(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = [Line(None, "info", f"user {word(n)} logged in from {word(n * 7)}") for n in range(20_000)]
    found = tally(lines, Index(()), at=START, skew_seconds=300)
    assert len(found.seen) == 1 and found.seen[0].count == 20_000
    monkeypatch.setattr(matching, "UNKNOWN_MAX", 200)
    noise = [Line(None, "info", " ".join(word(n * k + k) for k in range(1, 9))) for n in range(400)]
    found = tally(noise, Index(()), at=START, skew_seconds=300)
    assert sum(each.count for each in found.seen) == len(noise)
    assert len(found.seen) <= 201 and " ".join(REST) in {each.template for each in found.seen}


def word(number: int) -> str:
    return "".join("abcdefghijklmnopqrst"[int(digit, 36) % 20] for digit in f"{number * 2654435761 % 2**31:x}")


def test_a_model_does_not_grow_without_end_and_keeps_what_it_has(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "TEMPLATES_MAX", 300)
    model = Model("web")
    for part in range(8):
        lines = [Line(None, "info", " ".join(word(n * k + part * 997) for k in range(1, 9))) for n in range(100)]
        found = tally(lines, model.index(), at=START, skew_seconds=300)
        before = {each.id for each in model.templates}
        model = learnt(model, found.seen, f"object-{part}")
        assert learnt(model, found.seen, f"object-{part}") == model, "the same again changes nothing"
        if len(before) == 300:
            assert {each.id for each in model.templates} == before
    assert len(model.templates) <= 300 and model.refused > 0


def test_a_frozen_model_gives_its_templates_and_only_what_it_lacks_is_new() -> None:
    first = tally([Line(None, "", f"job {n} done") for n in range(3)], Index(()), at=START, skew_seconds=0)
    index = learnt(Model("web"), first.seen, "o").index()
    second = tally([Line(None, "", "job 77 done"), Line(None, "", "job 7 lost")], index, at=START, skew_seconds=0)
    assert [(each.template, each.new) for each in second.seen if not each.new] == [("job <*> done", False)]
    assert [each.template for each in second.seen if each.new] == ["job <*> lost"]


def test_sessions_go_by_a_field_or_a_pattern() -> None:
    lines = [Line(None, "", f"blk_{n % 2} event {'abc'[n]}x") for n in range(3)]
    found = tally(lines, Index(()), at=START, skew_seconds=0, key_pattern="(?P<key>blk_[0-9]+)")
    assert [(key, len(events)) for key, events in found.sessions] == [("blk_0", 2), ("blk_1", 1)]
    with pytest.raises(Invalid, match="not an expression of RE2"):
        counting(sequence_pattern="(?P<key>x(?=y))")
    with pytest.raises(Invalid, match="needs one named group"):
        counting(sequence_pattern="blk_")


def test_a_key_that_is_a_secret_is_not_told_and_still_says_what_belongs_together() -> None:
    told = [line(START, "opened", session_id="geheimesdings"), line(START, "closed", session_id="geheimesdings")]
    lines = list(read(jsonl(told), at=START + 1.0, bytes_max=1 << 20))
    found = tally(lines, Index(()), at=START + 1.0, skew_seconds=300.0)
    ((key, events),) = found.sessions
    assert len(events) == 2 and "geheimesdings" not in key
    lines = [Line(START, "info", "mail of ada@example.com"), Line(START, "info", "mail of blk_-1608999687919862906")]
    found = tally(lines, Index(()), at=START, skew_seconds=300.0, key_pattern=r"mail of (?P<key>\S+)")
    first, second = (key for key, _ in found.sessions)
    assert first == "blk_-1608999687919862906" and "ada" not in second


def test_secrets_are_in_no_object_that_we_write(logs: Logs) -> None:
    told = [
        line(START, "login of ada@example.com with password=hunter-two and Bearer abcdefghijklmnop", "error"),
        line(START, "card 4111 1111 1111 1111 refused, token: geheimesdings", "error"),
    ]
    put(logs.bucket, "a", told)
    logs.go()
    for path in Path(logs.url).rglob("*"):
        if path.is_file() and "logs/web" not in str(path.relative_to(logs.url)):
            data = path.read_bytes()
            for secret in (b"hunter-two", b"ada@example.com", b"abcdefghijklmnop", b"4111 1111", b"geheimesdings"):
                assert secret not in data, (path, secret)


def test_the_application_is_registered_with_its_parts() -> None:
    app = registry.get("logs")
    assert app.parts == ["keeper", "page", "log-counts", "log-watch", "spark"]
    assert app.with_stage("match").name == "log-counts"


def test_jsonl_is_what_is_written() -> None:
    assert jsonl([{"a": 1}, {"b": 2}]) == b'{"a":1}\n{"b":2}' and MINUTE == 60
