"""What a small document costs on its way through a pipeline without Spark into a table, by the size of batches.

CPU time of this process, not wall time: what else the machine does matters less. The bucket is a folder.

    python -m bench.batches                # one at a time, then 10 and 100
    python -m bench.batches --only 100
"""

from __future__ import annotations

import argparse
import tempfile
import time
from typing import Any

import bucketmq
from bucketmq.pipeline import FromEvents, Pipeline, ToUpserts, stage

DOCUMENTS = 200
LINES = 5


@stage(takes="key string, at timestamp, content string", gives="id string, doc string, at timestamp, text string")
def lines(batch: Any) -> Any:
    """A row for each line of a document."""
    rows = [
        (f"{row['key']}#{n}", row["key"], row["at"], text)
        for row in batch.to_pylist()
        for n, text in enumerate(row["content"].splitlines())
    ]
    return {name: [row[place] for row in rows] for place, name in enumerate(("id", "doc", "at", "text"))}


SOURCE = FromEvents(filter="key REGEXP '^docs/'", content="text")
INDEX = Pipeline(
    name="index",
    source=SOURCE,
    stages=(lines,),
    target=ToUpserts(table="lines", key="id", group="doc", newer_by="at"),
)


def measure(batch: int | None) -> str:
    """One line about documents that are handled so many at a time; None: by a handler of single changes."""
    with tempfile.TemporaryDirectory() as folder, bucketmq.connect(folder) as bucket:
        bucket.watch(SOURCE.filter, name="index", start="beginning", batch=batch)(INDEX.watcher(bucket))
        bucket.put("docs/first", "x")
        bucket.run_watchers(stop_when_empty=True, signals=False)
        text = "\n".join(f"line {n}" for n in range(LINES))
        bucket.put_many({f"docs/{n}": text for n in range(DOCUMENTS)})
        table = bucket.table("lines")
        cpu, requests, version = time.process_time(), bucket.requests, table.snapshot().version
        bucket.run_watchers(stop_when_empty=True, signals=False)
        cpu, spent = time.process_time() - cpu, bucket.requests - requests
        assert table.read().num_rows == DOCUMENTS * LINES + 1
        writes = spent.create + spent.replace
        return (
            f"batch={batch}: {1000 * cpu / DOCUMENTS:.2f} ms of CPU a document; for {DOCUMENTS} of them "
            f"{table.snapshot().version - version} commits, {writes} PUTs, {spent.get} GETs, {spent.look} HEADs"
        )


def main() -> None:
    options = argparse.ArgumentParser(prog="python -m bench.batches", description=__doc__)
    options.add_argument("--only", type=int, metavar="SIZE", help="batches of this size alone")
    only = options.parse_args().only
    for batch in (None, 10, 100) if only is None else (only,):
        print(measure(batch))


if __name__ == "__main__":
    main()
