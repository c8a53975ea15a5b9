"""The desk's parts without a server: who may log in, sessions, and how the flow is counted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from bucketmq.apps.moderation.audit import Line
from bucketmq.apps.moderation.desk.flow import MINUTES, Flow
from bucketmq.apps.moderation.desk.people import lines_of, read_people, read_person, who_has
from bucketmq.apps.moderation.desk.session import FAILURES_MAX, SESSION_SECONDS, Sessions
from bucketmq.apps.moderation.notice import NOTICE_RULE
from bucketmq.errors import Invalid
from bucketmq.events.event import time_text
from bucketmq.procedures.rules.journal import Attempt
from bucketmq.server.callers import FAILURES_SECONDS, Limit

TOKEN = "a:token=with:signs-in-it"


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_people_are_read_from_text() -> None:
    people = read_people([f"rosa={TOKEN}:reviewer", "Ömer B.=another-token-0001:read-only"])
    assert [(each.name, each.role) for each in people] == [("rosa", "reviewer"), ("Ömer B.", "read-only")]
    assert who_has(people, TOKEN) is people[0]
    assert who_has(people, TOKEN + "x") is None and who_has(people, "") is None and who_has(people, "\udc80") is None
    assert TOKEN not in repr(people)
    assert lines_of("# ours\n\n  a=b:c  \nd\n") == ["a=b:c", "d"]


@pytest.mark.parametrize(
    "text",
    [
        "rosa",
        "rosa=a-token-that-is-long",
        "rosa=:reviewer",
        "=a-token-that-is-long:reviewer",
        "rosa=a-token-that-is-long:admin",
        "rosa=short-token:reviewer",
        "rosa=a token with some spaces:reviewer",
        "ro\nsa=a-token-that-is-long:reviewer",
        f"{'x' * 101}=a-token-that-is-long:reviewer",
    ],
)
def test_what_lets_nobody_in_is_refused_without_repeating_the_token(text: str) -> None:
    with pytest.raises(Invalid) as refused:
        read_person(text)
    assert "token-that-is-long" not in str(refused.value)


def test_a_desk_without_people_or_with_mixed_up_ones_does_not_open() -> None:
    for texts in (
        [],
        ["rosa=a-token-that-is-long:reviewer", "rosa=b-token-that-is-long:read-only"],
        ["rosa=a-token-that-is-long:reviewer", "omar=a-token-that-is-long:reviewer"],
    ):
        with pytest.raises(Invalid):
            read_people(texts)
    assert len(read_people(["rosa=a-token-that-is-long:reviewer", "rosa=b-token-that-is-long:reviewer"])) == 2


def test_a_session_ends_by_itself_and_with_its_process() -> None:
    people, clock = read_people([f"rosa={TOKEN}:reviewer"]), Clock()
    sessions = Sessions(people, clock=clock)
    assert sessions.begin("wrong") is None
    session = sessions.begin(TOKEN)
    assert session is not None
    cookie = sessions.write(session)
    assert sessions.read(cookie) == session and TOKEN not in cookie
    assert Sessions(people, clock=clock).read(cookie) is None, "another process has another key"
    clock.now += SESSION_SECONDS - 1
    assert sessions.read(cookie) == session
    clock.now += 1
    assert sessions.read(cookie) is None


def test_each_session_has_its_own_proof_of_the_page() -> None:
    sessions = Sessions(read_people([f"rosa={TOKEN}:reviewer"]))
    one, other = sessions.begin(TOKEN), sessions.begin(TOKEN)
    assert one is not None and other is not None
    assert sessions.fits(one, sessions.csrf(one)) and not sessions.fits(one, sessions.csrf(other))
    assert not sessions.fits(one, "") and not sessions.fits(one, "é\udc80")
    sessions.end(one)
    assert sessions.read(sessions.write(one)) is None and sessions.read(sessions.write(other)) == other


def test_an_address_that_fails_too_often_waits_and_others_do_not() -> None:
    clock = Clock()
    limit = Limit(FAILURES_MAX, clock=clock)
    for _ in range(FAILURES_MAX):
        assert limit.wait_seconds("10.0.0.1") == 0
        limit.failed("10.0.0.1")
        clock.now += 1
    assert limit.wait_seconds("10.0.0.1") == FAILURES_SECONDS - FAILURES_MAX
    assert limit.wait_seconds("10.0.0.2") == 0
    clock.now += FAILURES_SECONDS - FAILURES_MAX
    assert limit.wait_seconds("10.0.0.1") == 0


NOW = 1_790_000_000.0


def line(did: Any, id: str, ago: float, **more: Any) -> Any:
    return msgspec.to_builtins(
        Line(action=f"{did}:{id}:1", did=did, by="x", id=id, revision=1, at=time_text(NOW - ago), **more)
    )


def judged(id: str, ago: float) -> dict[str, str]:
    return {"kind": "created", "key": f"pending/{id}.json", "at": time_text(NOW - ago)}


def test_the_flow_counts_each_step_once_and_pairs_what_belongs_together() -> None:
    flow = Flow()
    flow.add(
        [
            line("routed", "a", 90, outcome="flagged/"),
            line("accepted", "a", 100),
            line("accepted", "a", 100),
            line("accepted", "old", 60 * MINUTES + 30),
            line("approve", "a", 10),
            {"action": "no line"},
            None,
            {**line("accepted", "bad", 1), "at": "yesterday"},
        ],
        [judged("a", 95), {"kind": "deleted", "key": "pending/a.json", "at": time_text(NOW)}, {"key": 7}, "text"],
    )
    for rule, outcome in ((NOTICE_RULE, "done"), (NOTICE_RULE, "retry"), ("other", "done")):
        flow.add_attempt(
            Attempt(
                rule=rule,
                event="e",
                key="flagged/a.json",
                attempt=1,
                outcome=outcome,
                at=time_text(NOW - 88),
                happened_at=time_text(NOW - 90),
            )
        )
    rates = flow.rates(NOW)
    assert {name: sum(counts) for name, counts in rates.items()} == {
        "accepted": 1, "judged": 1, "approved": 0, "flagged": 1, "needs-review": 0, "reviewed": 1, "told": 1,
    }  # fmt: skip
    assert rates["accepted"][-2] == 1 and rates["reviewed"][-1] == 1
    took = {name: found and (found.count, round(found.p50)) for name, found in flow.latencies(NOW).items()}
    assert took == {"judging": (1, 5), "routing": (1, 5), "whole": (1, 10), "review": (1, 80), "notice": (1, 2)}
    assert set(flow.latencies(NOW + 3600).values()) == {None}


def test_the_verb_opens_a_desk_by_the_environment_and_shows_no_token(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("# the night shift\nrosa=token-of-rosa-0001:reviewer\n")
    environment = {**os.environ, "BUCKETMQ_URL": f"file://{tmp_path}/bucket", "BUCKETMQ_PROBE": "off"}
    verb = [sys.executable, "-m", "bucketmq.cli", "moderation", "desk", "--port", "0", "--json"]
    refused = subprocess.run(verb, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert refused.returncode == 2 and "DESK_TOKENS" in refused.stderr
    started = subprocess.Popen(
        [*verb, "--token-file", str(tmp_path / "tokens")],
        env={**environment, "DESK_TOKENS": "demo=token-of-demo-0001:reviewer"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert started.stdout is not None
        row = started.stdout.readline()
        assert row, started.communicate(timeout=30)[1]
        url = msgspec.json.decode(row)["url"]
        answer = httpx2.post(
            f"{url}/api/login", json={"token": "token-of-rosa-0001"}, headers={"x-desk-csrf": "login"}, timeout=30
        )
        assert answer.json()["name"] == "rosa"
        started.terminate()
        out, err = started.communicate(timeout=60)
        assert started.returncode == 0 and "token-of" not in row + out + err
    finally:
        started.kill()
        started.communicate()
