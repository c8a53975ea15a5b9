"""Rows as Parquet and back, by processes that end right after reading."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

from bucketmq.procedures.tables.parquet import from_parquet, to_parquet

CHILDREN = 60
"""Of processes that let Arrow's threads read memory of Python's, one in twenty to one in five aborted."""

ENDS_AFTER_READING = """
import os, sys
import pyarrow as pa
import pyarrow.dataset, pyarrow.parquet
from bucketmq.procedures.tables.parquet import from_parquet, to_parquet

rows = pa.table({f"column {number}": list(range(200)) for number in range(30)})
body = to_parquet(rows)
pids = []
for _ in range(int(sys.argv[1])):
    pid = os.fork()
    if pid == 0:
        from_parquet(body)
        sys.exit(0)
    pids.append(pid)
failed = [code for pid in pids if (code := os.waitpid(pid, 0)[1])]
print(failed)
"""


@pytest.mark.slow
def test_a_process_that_ends_right_after_reading_does_not_abort() -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDS_AFTER_READING, str(CHILDREN)],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert done.stdout.split("\n")[0] == "[]", done.stderr


def test_columns_and_schema_are_those_asked_for() -> None:
    body = to_parquet(pa.table({"a": [1, 2], "b": ["x", None]}))
    assert from_parquet(body, columns=["b"]).to_pydict() == {"b": ["x", None]}
    wider = pa.schema([("a", pa.int64()), ("new", pa.string())])
    assert from_parquet(body, schema=wider).to_pydict() == {"a": [1, 2], "new": [None, None]}
