"""The verbs dashboard and token, and pausing a queue."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import httpx2
import msgspec

from bucketmq.server.people import read_person, who_has
from cli.ran import Cli

VERB = [sys.executable, "-m", "bucketmq.cli", "dashboard", "--port", "0", "--json"]


def test_a_token_and_the_line_that_lets_it_in(cli: Cli) -> None:
    row = cli("token", "rosa", "--role", "operate", "--role", "review", "--queue", "mail-*", "--json").row
    caller = who_has([read_person(row["line"])], row["token"])
    assert caller is not None and caller.roles == ("operate", "review") and caller.queues == ("mail-*",)
    ran = cli("token", "vera")
    assert ran.out.startswith("vera=sha256-") and ran.out.strip().endswith(":look") and "shown this once" in ran.err
    assert cli("token", "x", "--role", "emperor").code == 2


def test_a_queue_is_paused_and_resumed(cli: Cli) -> None:
    cli("send", "jobs", "1")
    ran = cli("queue", "pause", "jobs", "--why", "the database is being moved")
    assert ran.code == 0 and "the database is being moved" in ran.err
    assert cli("receive", "jobs").code == 3
    nothing = cli("receive", "jobs")
    assert nothing.code == 3 and "which is paused: the database is being moved" in nothing.err
    assert cli("queue", "pause", "jobs", "--subscription", "main", "--json").row["paused"]["main"] == "paused"
    assert "still paused: main" in cli("queue", "resume", "jobs").err
    assert cli("queue", "resume", "jobs", "-s", "main", "--json").row == {"queue": "jobs", "paused": {}}
    assert cli("receive", "jobs", "--ack").code == 0
    assert cli("queue", "pause", "jbos").code == 1
    assert cli("queue", "pause", "jobs", "-s", "adit").code == 1


def test_the_dashboard_opens_with_a_token_of_its_own_on_this_machine_alone(tmp_path: Path) -> None:
    environment = {**os.environ, "BUCKETMQ_URL": f"file://{tmp_path}/bucket", "BUCKETMQ_PROBE": "off"}
    refused = subprocess.run(
        [*VERB, "--host", "0.0.0.0"], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert refused.returncode == 2 and "--token-file" in refused.stderr
    started = subprocess.Popen(
        [*VERB, "--no-figures"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        assert started.stdout is not None and started.stderr is not None
        row = started.stdout.readline()
        assert row, started.communicate(timeout=30)[1]
        url = msgspec.json.decode(row)["url"]
        link = next(line for line in started.stderr if "#token=" in line)
        token = link.strip().rpartition("#token=")[2]
        headers = {"authorization": f"Bearer {token}"}
        assert httpx2.get(f"{url}/api/overview", headers=headers, timeout=30).json()["queues"] == 0
        assert httpx2.get(f"{url}/api/overview", timeout=30).status_code == 401
        started.terminate()
        started.communicate(timeout=60)
        assert started.returncode == 0
    finally:
        started.kill()
        started.communicate()
    assert not list((tmp_path / "bucket").rglob("*.json")), "looking writes nothing"


def test_serve_shows_the_dashboard_beside_its_receivers(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("# the night shift\nrosa=token-of-rosa-0001:operate\n")
    environment = {**os.environ, "BUCKETMQ_URL": f"file://{tmp_path}/bucket", "BUCKETMQ_PROBE": "off"}
    verb = [sys.executable, "-m", "bucketmq.cli", "serve", "--no-auth", "--port", "0", "--json"]
    without = subprocess.run(
        [*verb, "--dashboard"], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert without.returncode == 2 and "BUCKETMQ_DASHBOARD_TOKENS" in without.stderr
    started = subprocess.Popen(
        [*verb, "--dashboard-tokens", str(tmp_path / "tokens")],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert started.stdout is not None
        row = started.stdout.readline()
        assert row, started.communicate(timeout=30)[1]
        url = msgspec.json.decode(row)["url"]
        headers = {"authorization": "Bearer token-of-rosa-0001"}
        assert httpx2.get(f"{url}/api/overview", headers=headers, timeout=30).status_code == 200
        assert httpx2.get(f"{url}/api/overview", timeout=30).status_code == 401
        assert "BucketMQ" in httpx2.get(f"{url}/", timeout=30).text
        assert httpx2.get(f"{url}/healthz", timeout=30).json()["status"] == "ok"
        assert "bucketmq_build_info" in httpx2.get(f"{url}/metrics", timeout=30).text
        assert httpx2.post(f"{url}/events/auto", json={}, timeout=30).status_code == 400
        started.terminate()
        out, err = started.communicate(timeout=60)
        assert started.returncode == 0 and "token-of" not in row + out + err
    finally:
        started.kill()
        started.communicate()
