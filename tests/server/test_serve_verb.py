"""bucketmq serve: in a process of its own, with secrets from everywhere they may come from, until SIGTERM."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest

from bucketmq.cli.serve import warn_plain_http
from bucketmq.client import connect
from bucketmq.events.signing import new_secret
from bucketmq.testing.endpoints import Reply, endpoint
from server.running import delivered, payload, when_it_refuses

PROGRAM = [sys.executable, "-m", "bucketmq.cli"]
BASIC = "Basic " + base64.b64encode(b"mia:password-by-option").decode()
TOKENS = ("the-token-by-option", "the-token-by-file", "the-token-by-variable", "another-one-by-variable")
SIGNING = new_secret(b"s" * 32)


def environment(**more: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("BUCKETMQ_")}
    return {**kept, "NO_COLOR": "1", "BUCKETMQ_PROBE": "off", **more}


class Process:
    """A server that listens."""

    def __init__(self, process: subprocess.Popen[str], url: str) -> None:
        self.process = process
        self.url = url
        self.out = self.err = ""

    def stop(self, number: signal.Signals = signal.SIGTERM) -> int:
        self.process.send_signal(number)
        self.out, self.err = self.process.communicate(timeout=60)
        return self.process.returncode

    def post(self, headers: dict[str, str]) -> int:
        return httpx2.post(f"{self.url}/events/r2", content=payload("r2"), headers=headers, timeout=30).status_code


@contextlib.contextmanager
def serve(folder: Path, *options: str, **more: str) -> Iterator[Process]:
    process = subprocess.Popen(
        [*PROGRAM, "serve", f"file://{folder}", "--port", "0", "--json", *options],
        env=environment(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise AssertionError(process.communicate(timeout=30)[1])
        yield Process(process, json.loads(line)["url"])
    finally:
        if process.poll() is None:
            process.kill()
        process.communicate()


def test_every_secret_opens_the_door_and_none_is_printed(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("# the first and only\nthe-token-by-file\n\n")
    options = ["--token", TOKENS[0], "--token-file", str(tmp_path / "tokens"), "--signing-secret", SIGNING]
    by_variable = f"{TOKENS[2]} {TOKENS[3]}"
    with serve(folder, *options, "--basic", "mia:password-by-option", BUCKETMQ_TOKEN=by_variable) as running:
        for token in TOKENS:
            assert running.post({"authorization": f"Bearer {token}"}) == 200
        assert running.post({"authorization": BASIC}) == 200
        assert running.post({"authorization": "Bearer wrong"}) == 401
        assert running.stop() == 0
        assert "Traceback" not in running.err
        for secret in (*TOKENS, SIGNING, "password-by-option"):
            assert secret not in running.out + running.err
    with connect(f"file://{folder}", probe=False) as bucket:
        assert len(delivered(bucket)) == 1


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_finishes_what_is_in_hand(folder: Path, number: signal.Signals) -> None:
    answer = threading.Event()
    with endpoint([Reply(200, until=answer)]) as there, connect(f"file://{folder}", probe=False) as bucket:
        bucket.rules.add("slow", to=there.url, private=True, start="beginning")
        with serve(folder, "--token", "a-token-for-tests") as running:
            assert running.post({"authorization": "Bearer a-token-for-tests"}) == 200
            there.wait_for(1)
            later = when_it_refuses(running.url, answer.set)
            assert running.stop(number) == 0, running.err
            later.join()
        bucket.notify(stop_when_empty=True)
        assert len(there.requests) == 1


@pytest.mark.parametrize(
    ("options", "more", "code", "says"),
    [
        ([], {}, 2, "no caller could be let in"),
        (["--no-auth", "--host", "0.0.0.0"], {}, 2, "without secrets"),
        (["--no-auth", "--token", "secret-x-for-tests"], {}, 2, "switched off"),
        (["--token-file", "/nowhere/tokens"], {}, 2, "cannot be read"),
        (["--signing-secret", "secret-x-for-tests"], {}, 2, "whsec_"),
        (["--token", "secret-x-for-tests", "--sweep-every", "0.1"], {}, 2, "sweep_seconds"),
        (["--token", "secret-x-for-tests", "--trusted-proxy", "nobody"], {}, 2, "network of proxies"),
        (["--pubsub-audience", "https://events.example.com"], {}, 2, "service account"),
        (["--token", "short"], {}, 2, "at least 16 characters"),
        (["--token", "secret-x-for-tests", "--host", "203.0.113.7"], {}, 5, "cannot listen"),
    ],
)
def test_what_cannot_work_is_said_in_one_line(
    folder: Path, options: list[str], more: dict[str, str], code: int, says: str
) -> None:
    ran = subprocess.run(
        [*PROGRAM, "serve", f"file://{folder}", "--port", "0", *options],
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (ran.returncode, len(ran.stderr.splitlines())) == (code, 1), ran
    assert says in ran.stderr
    assert "secret-x-for-tests" not in ran.stderr


def test_a_missing_extra_says_what_to_install(folder: Path) -> None:
    code = (
        "import sys; sys.modules['uvicorn'] = None\n"
        f"sys.argv = ['bucketmq', 'serve', 'file://{folder}', '--no-auth']\n"
        "from bucketmq.cli import main; main()"
    )
    ran = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 1
    assert "pip install 'bucketmq[server]'" in ran.stderr


def test_without_secrets_it_says_so(folder: Path) -> None:
    with serve(folder, "--no-auth", "--no-notify", "--no-files") as running:
        assert running.post({}) == 200
        assert running.stop() == 0
        assert "WITHOUT SECRETS" in running.err


@pytest.mark.parametrize(
    ("host", "proxies", "warns"),
    [("127.0.0.1", [], False), ("0.0.0.0", [], True), ("10.1.2.3", [], True), ("0.0.0.0", ["10.0.0.0/8"], False)],
)
def test_plain_http_on_a_public_address_is_warned_of(
    host: str, proxies: list[str], warns: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    warn_plain_http(host, proxies)
    assert ("WITHOUT HTTPS" in capsys.readouterr().err) is warns


def test_logs_are_json_where_json_is_wanted(folder: Path) -> None:
    with serve(folder, "--token", "a-token-for-tests") as running:
        url, headers = f"{running.url}/events/tigris", {"authorization": "Bearer a-token-for-tests"}
        httpx2.post(url, content=b'{"events": [7]}', headers=headers, timeout=30)
        running.stop()
    rows: list[Any] = [json.loads(line) for line in running.err.splitlines() if line.startswith("{")]
    assert any("action=bad_items" in row["message"] for row in rows)
