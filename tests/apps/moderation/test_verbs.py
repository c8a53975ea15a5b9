"""The verbs of moderation as somebody who comes from the demo runs them: by its variables, as processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx2
import msgspec
from server.running import until

from apps.moderation.test_posts import BAD, CLEAN, classify
from apps.moderation.test_router import tigris
from bucketmq.client import connect


def start(*args: str, **environment: str) -> subprocess.Popen[str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("BUCKET", "WEBHOOK"))}
    return subprocess.Popen(
        [sys.executable, "-m", "bucketmq.cli", "moderation", *args, "--json"],
        env={**kept, "BUCKETMQ_PROBE": "off", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def row(process: subprocess.Popen[str]) -> Any:
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line, process.communicate(timeout=30)[1]
    return msgspec.json.decode(line)


def test_the_agents_run_by_the_demos_variables_until_sigterm(tmp_path: Path) -> None:
    environment = {"BUCKET_NAME": f"{tmp_path}/bucket", "PORT_INGEST": "0", "PORT_ROUTER": "0"}
    agents = [start("ingest", **environment), start("route", WEBHOOK_SECRET="a-secret-of-tigris", **environment)]
    try:
        ingest, router = (row(agent)["url"] for agent in agents)
        answer = httpx2.post(f"{ingest}/submit", json={"id": "p1", "text": "hello"}, timeout=30)
        assert answer.json() == {"id": "p1", "status": "pending"}
        with connect(environment["BUCKET_NAME"], probe=False) as bucket:
            classify(bucket, "p1", "hello", CLEAN)
            assert row(agents[1])["outcome"] == "approved/"
            path = tmp_path / "bucket" / "pending" / "p2.json"  # written by a program that reports nothing
            classify(bucket, "p2", "hello", BAD)
            until(lambda: not path.exists())
            body = tigris(("OBJECT_CREATED_PUT", "pending/p2.json"))
            secret = {"authorization": "Bearer a-secret-of-tigris"}
            assert httpx2.post(f"{router}/webhook", content=body, headers=secret, timeout=30).status_code == 200
        for agent in agents:
            agent.send_signal(signal.SIGTERM)
        ended = [agent.communicate(timeout=60) for agent in agents]
        assert [agent.returncode for agent in agents] == [0, 0], ended
        assert "a-secret-of-tigris" not in "".join(text for pair in ended for text in pair)
    finally:
        for agent in agents:
            agent.kill()
            agent.communicate()
    done = start("status", **environment)
    out, err = done.communicate(timeout=60)
    assert done.returncode == 0, err
    found = msgspec.json.decode(out)
    assert (found["submitted"], found["unjudged"]) == (1, 1)
    assert (found["objects"]["approved/"], found["objects"]["flagged/"]) == (1, 1)
    assert found["waiting_for_people"] == 1


def test_a_router_that_pulls_ends_with_what_it_has_done(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/bucket"
    with connect(url, probe=False) as bucket:
        classify(bucket, "p1", "hello", 0.2)
    done = start("route", "--url", url, "--once", "--clear-up-to", "spam=0.1")
    out, err = done.communicate(timeout=60)
    assert done.returncode == 0, err
    assert msgspec.json.decode(out)["outcome"] == "needs-review/"
    wrong = start("route", "--url", url, "--once", "--flag-above", "rudeness=0.1")
    assert "no category" in wrong.communicate(timeout=60)[1]
    assert wrong.returncode == 2
