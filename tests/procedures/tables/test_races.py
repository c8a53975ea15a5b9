"""Committers that race on real stores: a folder, and a server that speaks S3. Contract style, no faults."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import bucketmq
from procedures.tables.shards import SHAPE, chunks, content, texts

WRITERS, COMMITS = 4, 5


@pytest.fixture(params=["folder", "seaweedfs"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "folder":
        return f"file://{tmp_path}/bucket"
    address: str = request.getfixturevalue("seaweedfs_url")
    return address.replace("s3://bucketmq", f"s3://bucketmq/{tmp_path.name}")


def test_racing_committers_lose_nothing_and_readers_see_whole_commits(url: str) -> None:
    errors: list[BaseException] = []
    buckets = [bucketmq.connect(url, probe=False) for _ in range(WRITERS + 1)]
    buckets[0].table("t", **SHAPE).replace("pair", chunks("pair", 2, rev=1))

    def write(name: int) -> None:
        try:
            table = buckets[name].table("t", **SHAPE)
            for n in range(COMMITS):
                table.replace(f"{name}-{n}", chunks(f"{name}-{n}"))
                table.replace("pair", chunks("pair", 2, rev=n + 2))
        except BaseException as error:
            errors.append(error)

    def look() -> None:
        try:
            table: Any = buckets[WRITERS].table("t")
            while any(thread.is_alive() for thread in threads):
                found = content(table, groups=["pair"])["pair"]
                assert found in [texts("pair", 2, rev) for rev in range(1, COMMITS + 2)]
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(name,)) for name in range(WRITERS)]
    reader = threading.Thread(target=look)
    for thread in (*threads, reader):
        thread.start()
    for thread in (*threads, reader):
        thread.join()
    assert errors == []
    found = content(buckets[WRITERS].table("t"))
    assert found.pop("pair") == texts("pair", 2, COMMITS + 1)
    assert found == {f"{name}-{n}": texts(f"{name}-{n}") for name in range(WRITERS) for n in range(COMMITS)}
    for bucket in buckets:
        bucket.close()
