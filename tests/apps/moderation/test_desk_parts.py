"""The desk's parts without a server: how the flow is counted; and its verb."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import msgspec
import pytest

from bucketmq.apps.moderation.audit import Line
from bucketmq.apps.moderation.desk.flow import MINUTES, Explained, Flow, Submission
from bucketmq.apps.moderation.notice import NOTICE_RULE
from bucketmq.events.event import time_text
from bucketmq.procedures.rules.journal import Attempt
from bucketmq.server.gate import CSRF_HEADER

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


def test_every_submission_is_explained_once() -> None:
    flow = Flow()

    def sent(id: str, revision: int, ago: float, accepted_ago: float | None = None) -> None:
        flow.add_submission(Submission(id, revision, NOW - ago, NOW - (accepted_ago or ago)))

    sent("a", 1, 100)
    sent("a", 1, 95, 100)  # a repeat
    sent("b", 1, 90)
    sent("b", 2, 80)  # a newer version
    sent("c", 1, 70)
    sent("d", 1, 60)
    sent("e", 1, 50, 4000)  # a repeat of what was sent before the desk was opened
    sent("f", 1, 40)
    flow.add(
        [
            line("routed", "a", 99, outcome="approved/"),
            {**line("routed", "b", 79, outcome="flagged/"), "revision": 2, "action": "routed:b:2"},
            line("routed", "c", 69, outcome="needs-review/"),
            line("routed", "f", 5000, outcome="approved/"),
        ],
        [],
    )
    flow.add([line("approve", "c", 10)], [])
    found = flow.explained(NOW)
    assert found == Explained(
        submitted=8, repeats=2, replaced=1, judged=4, waiting=1, approved=2, flagged=1, needs_review=1
    )
    assert flow.explained(NOW + 3600) == Explained(0, 0, 0, 0, 0, 0, 0, 0)


@pytest.mark.parametrize("seed", range(20))
def test_the_figures_of_what_was_submitted_add_up_at_any_time(seed: int) -> None:
    flow, chance = Flow(), random.Random(seed)
    newest: dict[str, int] = {}
    accepted: dict[tuple[str, int], float] = {}
    for number in range(400):
        ago = 2000.0 - 5 * number
        id = f"p{chance.randrange(60)}"
        if chance.random() < 0.6:
            revision = newest[id] = newest.get(id, 0) + (id not in newest or chance.random() < 0.3)
            first = accepted.setdefault((id, revision), NOW - ago)
            flow.add_submission(Submission(id, revision, NOW - ago, first))
        elif id in newest:
            routed = line("routed", id, ago, outcome=chance.choice(("approved/", "flagged/", "needs-review/")))
            flow.add([{**routed, "revision": newest[id], "action": f"routed:{id}:{newest[id]}"}], [])
        found = flow.explained(NOW - ago)
        assert found.submitted == found.repeats + found.replaced + found.judged + found.waiting
        assert found.judged == found.approved + found.flagged + found.needs_review
    assert found.submitted > 50 and found.repeats and found.replaced and found.judged and found.waiting


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
            f"{url}/api/login", json={"token": "token-of-rosa-0001"}, headers={CSRF_HEADER: "login"}, timeout=30
        )
        assert answer.json()["name"] == "rosa"
        started.terminate()
        out, err = started.communicate(timeout=60)
        assert started.returncode == 0 and "token-of" not in row + out + err
    finally:
        started.kill()
        started.communicate()
