"""Every example that a help text shows is run as it is printed."""

from __future__ import annotations

import shlex
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from bucketmq.apps import registry
from bucketmq.cli.group import EXAMPLES
from bucketmq.client import Bucket
from cli.ran import Cli, Shell, bury, spark_query

ELSEWHERE = {
    "apps demo": "tests/apps/test_registry runs one",
    "apps rerun": "test_a_stage_of_moderation_is_run_again runs them, after the pipeline",
    "demo": "test_demo runs it",
    **{
        f"images {verb}": "tests/apps/images/test_verbs runs them, where there are images"
        for verb in ("ls", "rerun", "show")
    },
    "logs explain": "tests/apps/logs/test_cli runs it, with an alert",
    **{
        f"documents {verb}": "tests/apps/documents/test_verbs runs it, on documents that are indexed"
        for verb in ("ask", "graph", "lance", "search", "switch", "why")
    },
    "moderation demo": "tests/apps/moderation/test_demo runs it, where Spark is",
    "pipeline run": "test_pipeline runs it, where Spark is",
    **{
        f"research {verb}": "tests/apps/research/test_verbs runs them, after a study"
        for verb in ("check", "report", "start", "status", "stop")
    },
}

TASKS = """
import os
import bucketmq

queue = bucketmq.connect(os.environ["BUCKETMQ_URL"], probe=False).queue("jobs")

def handle(delivery):
    print(delivery.body)

@queue.handler
def decorated(delivery):
    print(delivery.body)
"""

AGENTS = """
import os
import bucketmq

bucket = bucketmq.connect(os.environ["BUCKETMQ_URL"], probe=False)

@bucket.watch('WHERE key REGEXP "^pending/"', start="beginning")
def route(change):
    change.bytes()
"""

POSTS = """
from bucketmq.pipeline import FromQueue, Pipeline, ToQueue

classify = Pipeline(name="classify", source=FromQueue("jobs"), target=ToQueue(queue="classified", body="body"))
"""

MODULES = {"tasks": TASKS, "agents": AGENTS, "posts": POSTS}

STOPPED_CODE = 124
"""What `timeout` exits with when it had to stop the command."""

for listed in registry.every():  # their verbs bring examples when they are imported
    assert listed.app is not None and listed.app.commands is not None
    listed.app.commands()

OF_ARTIFACTS = "artifacts "  # tests/apps/artifacts/test_verbs runs these one after the other: each needs the one before

SHOWN = [
    (verb, line)
    for verb, lines in EXAMPLES.items()
    if verb not in ELSEWHERE and not verb.startswith(OF_ARTIFACTS)
    for line in lines
]


@pytest.fixture
def prepared(bucket: Bucket, folder: Path) -> None:
    """What the examples take for granted: queues and rules with messages and dead letters, modules with handlers."""
    for name, text in MODULES.items():
        (folder / f"{name}.py").write_text(text)
    queue = bucket.queue("jobs")
    bury(queue, "no such user", "no network")
    queue.send_many({"n": n} for n in range(20))
    queue.subscription("audit")
    bucket.rules.add("pending", to="queue:out", filter='WHERE key REGEXP "^pending/"', gone="bury")
    bucket.rules.add("signed", to="https://example.com/hook", filter='key = "nothing"', sign=True)
    bucket.rules.add("notifications", to="https://example.com/hook", filter='key = "nothing"', bearer="env:TOKEN")
    bucket.trigger("pending/lost.json")
    bucket.notify(only=["pending"], stop_when_empty=True)
    bucket.put("pending/7.json", {"amount": 7})
    bucket.table("users", key="name").upsert([{"name": "ada", "posts": 7}])
    bucket.put("logs/web/2026-11-18/a.jsonl", '{"time":"2026-11-18T01:02:03Z","level":"error","msg":"broken"}')
    spark_query(bucket, source="jobs", reader="nightly", target="copies", txn="copying")


def split(line: str) -> list[str] | None:
    """The arguments of a line that is one command; None if it needs a shell, or is stopped by `timeout`."""
    words = shlex.shlex(line, posix=True, punctuation_chars="|<>;&")
    words.whitespace_split = True
    command, *args = words
    needs_shell = "$(" in line or any(set(word) <= set("|<>;&") for word in args)
    return args if command == "bucketmq" and not needs_shell else None


SINGLE = [(line, args) for _, line in SHOWN if (args := split(line)) is not None]
STOPPED = [line for _, line in SHOWN if line.startswith("timeout ")]
OTHERS = [line for _, line in SHOWN if split(line) is None and line not in STOPPED]


@pytest.mark.parametrize(("line", "args"), SINGLE, ids=[line for line, _ in SINGLE])
@pytest.mark.usefixtures("prepared")
def test_an_example_of_one_command(
    cli: Cli, folder: Path, monkeypatch: pytest.MonkeyPatch, line: str, args: list[str]
) -> None:
    """In this process: what a process of its own adds is tested by the other examples."""
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    ran = cli(*(each.replace("/tmp/inbox", str(folder / "inbox")) for each in args))
    for module in MODULES:
        sys.modules.pop(module, None)
    assert ran.code == 0, (line, ran)
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("line", OTHERS)
@pytest.mark.usefixtures("prepared")
def test_an_example_for_the_shell(shell: Shell, line: str) -> None:
    ran = shell(line)
    assert ran.code == 0, ran
    assert "Traceback" not in ran.err


@pytest.mark.parametrize("lines", [STOPPED[n : n + 2] for n in range(0, len(STOPPED), 2)], ids=" & ".join)
@pytest.mark.usefixtures("prepared")
def test_an_example_that_runs_until_it_is_stopped(shell: Shell, lines: list[str]) -> None:
    """Two at a time, because they wait most of it."""
    with ThreadPoolExecutor() as pool:
        for ran in pool.map(shell, lines):
            assert ran.code == STOPPED_CODE, ran
            assert "Traceback" not in ran.err
