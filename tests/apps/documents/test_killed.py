"""Real processes that index, killed with SIGKILL again and again while documents come, change and go: watchers, a
driver of Spark, its executors, on a folder and on a real object store. Each document is old or new at any time, never
half, and new in the end."""

from __future__ import annotations

import itertools
import re
import time
from pathlib import Path

import pytest
from processes.below import EXECUTOR, PYTHON_WORKER
from processes.parts import kill, last_words, supervised

import bucketmq
from apps.documents.shelf import sections, texts_of
from bucketmq.apps.documents.names import table_of

pytestmark = [pytest.mark.long, pytest.mark.xdist_group("spark"), pytest.mark.timeout(600)]

DOCUMENTS, PARTS = 6, 3
WAIT_SECONDS = 540.0
WATCHER = ("documents-index", "--without-spark")


def document(name: str, version: int) -> str:
    return sections(*(f"{name} version{version}x of part {part}" for part in range(PARTS)))


def versions_of(table: bucketmq.Table) -> dict[str, int]:
    """Which version of each document is there; all of its chunks are of that one."""
    try:
        found = texts_of(table)
    except bucketmq.NotFound:
        return {}
    versions = {}
    for doc, texts in found.items():
        (versions[doc],) = {int(re.findall(r"version(\d+)x", text)[0]) for text in texts}
        assert len(texts) == PARTS, (doc, texts)
    return versions


@pytest.mark.parametrize(
    ("parts", "executor", "rounds"),
    [
        pytest.param({"one": WATCHER, "two": WATCHER}, None, 6, id="watchers"),
        pytest.param({"driver": ("spark", "--master", "local[2,4]")}, PYTHON_WORKER, 2, id="local"),
        pytest.param({"driver": ("spark", "--master", "local-cluster[2,1,1024]")}, EXECUTOR, 2, id="local-cluster"),
    ],
)
def test_whatever_is_killed_every_document_is_whole_and_the_newest_in_the_end(
    tmp_path: Path, place: str, parts: dict[str, tuple[str, ...]], executor: bytes | None, rounds: int
) -> None:
    if executor is not None:
        pytest.importorskip("pyspark")
    environment = {"BUCKETMQ_URL": place, "DOCUMENTS_ENCODERS": "none", "BUCKETMQ_PROBE": "off"}
    with bucketmq.connect(place) as bucket:
        table = bucket.table(table_of("none"))
        by = time.monotonic() + WAIT_SECONDS
        expected: dict[str, int] = {}
        with supervised("documents", parts, tmp_path, environment) as running:

            def until_whole(wanted: int) -> None:
                """At least so many documents are as they should be; none is half there meanwhile."""
                while sum(versions_of(table).get(doc) == version for doc, version in expected.items()) < wanted:
                    wait()

            def wait() -> None:
                running.look()
                assert time.monotonic() < by, last_words(running)
                time.sleep(0.1)

            victims = itertools.cycle(running.parts.values())
            for version in range(rounds):
                for number in range(DOCUMENTS):
                    expected[f"docs/{number}.md"] = version
                bucket.put_many({doc: document(doc, version) for doc in expected})
                for doc in ("docs/0.md", "docs/1.md") if version % 2 else ():
                    bucket.delete(doc)
                    del expected[doc]
                until_whole(1 if version else len(expected))  # it is in the middle of the rest
                kill(next(victims), None if version % 2 else executor)
            expected["docs/last.md"] = rounds  # whoever was killed last has come back for it
            bucket.put("docs/last.md", document("docs/last.md", rounds))
            while versions_of(table) != expected:
                wait()
        assert bucket.queue("events").dead_letters.peek(10) == []
