"""Every example that a help text shows is run as it is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from bucketmq.apps import registry
from bucketmq.cli.examples import EXAMPLES
from bucketmq.client import Bucket
from cli.ran import Shell, bury, spark_query

ELSEWHERE = {
    "apps demo": "tests/apps/test_registry runs one",
    "apps rerun": "test_a_stage_of_moderation_is_run_again runs them, after the pipeline",
    "demo": "test_demo runs it",
    "moderation demo": "tests/apps/moderation/test_demo runs it, where Spark is",
    "pipeline run": "test_pipeline runs it, where Spark is",
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

for listed in registry.every():  # their verbs bring examples when they are imported
    assert listed.app is not None and listed.app.commands is not None
    listed.app.commands()

SHOWN = [(verb, line) for verb, lines in EXAMPLES.items() if verb not in ELSEWHERE for line in lines]


@pytest.fixture
def prepared(bucket: Bucket, folder: Path) -> None:
    """What the examples take for granted: queues and rules with messages and dead letters, modules with handlers."""
    (folder / "tasks.py").write_text(TASKS)
    (folder / "agents.py").write_text(AGENTS)
    (folder / "posts.py").write_text(POSTS)
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
    spark_query(bucket, source="jobs", reader="nightly", target="copies", txn="copying")


@pytest.mark.parametrize(("verb", "line"), SHOWN, ids=[line for _, line in SHOWN])
@pytest.mark.usefixtures("prepared")
def test_example(shell: Shell, folder: Path, verb: str, line: str) -> None:
    ran = shell(line.replace("/tmp/inbox", str(folder / "inbox")))
    assert ran.code == (124 if line.startswith("timeout ") else 0), ran
    assert "Traceback" not in ran.err
