"""The same on a real object store."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

pytest.importorskip("pyspark")

import word_stages as stages
from pipeline.test_pipeline import run, run_again

import bucketmq
from bucketmq.chores import archive, audit, sweep
from bucketmq.pipeline import FromEvents, FromQueue, Pipeline, ToObjects
from bucketmq.spark.upkeep import orphans
from bucketmq.testing import servers
from spark.conftest import Inbox
from spark.write.test_faults import ROWS, kill_a_commit, send_some


@pytest.fixture
def cloud(tmp_path: Path, spark: Any) -> Iterator[Inbox]:
    try:
        with servers.seaweedfs() as url:
            made = Inbox(tmp_path, spark, url)
            yield made
            made.bucket.close()
    except bucketmq.Unsupported as error:
        servers.skip_or_fail(error)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_rows_in_are_rows_out_on_an_object_store(cloud: Inbox, capsys: pytest.CaptureFixture[str]) -> None:
    cloud.bucket.queue("jobs", shards=3, inline_bytes_max=1000)
    rows = cloud.spark.range(5000).selectExpr("struct(id as n) as body", "cast(id % 50 as string) as key")
    for _ in range(2):
        cloud.write(rows, "jobs", txn="load")
    cloud.bucket.queue("jobs").send_many([{"n": n, "text": "x" * 2000} for n in range(5000, 5010)], key="k")
    for _ in range(2):
        stream = cloud.read_stream("jobs", maxRowsPerTrigger=1500, columns="key,body,shard,offset", minPartitions=3)
        query = cloud.stream_to(stream, "copy", "cp")
        cloud.bucket.queue("jobs").send_many([{"n": 5010}], key="k")
    found = cloud.read("copy", bodySchema="n long, text string").selectExpr("body.n as n").collect()
    assert sorted(row.n for row in found) == list(range(5011))
    assert orphans.remove(cloud.url, "copy") == 0
    secret = parse_qs(urlsplit(cloud.url).query)["secret_access_key"][0]
    cloud.read("copy").explain(True)
    told = capsys.readouterr().out + json.dumps([progress.json for progress in query.recentProgress])
    told += "".join(path.read_text(errors="replace") for path in (cloud.folder / "cp").rglob("*") if path.is_file())
    assert secret not in told


@pytest.mark.long
@pytest.mark.timeout(400)
def test_a_commit_that_is_killed_after_publishing_is_recognised_on_an_object_store(
    cloud: Inbox, failing: Callable[..., str]
) -> None:
    send_some(cloud)
    run = kill_a_commit(cloud, "after")
    failing(run)
    run()
    assert sorted(cloud.bodies("copy")) == list(range(ROWS))


@pytest.mark.long
@pytest.mark.timeout(400)
def test_chores_work_on_an_object_store_without_a_connector_for_it(cloud: Inbox) -> None:
    jobs = cloud.bucket.queue("jobs", shards=2, inline_bytes_max=1000)
    for start in range(0, 300, 50):
        jobs.send_many([{"n": n, "text": "x" * (n % 2 * 2000)} for n in range(start, start + 50)])
    left = 300
    while left:
        batch = jobs.receive(left)
        for delivery in batch:
            delivery.ack()
        left -= len(batch)
    jobs.flush()
    done = archive.run(cloud.spark, cloud.url, queue="jobs", file_bytes=64 << 10)
    assert (done.rows, done.skipped) == (300, 0)
    assert done.files >= 4
    rows = bucketmq.history(cloud.spark, cloud.url, "jobs").select("body", "outcomes", "place").collect()
    assert sorted(json.loads(row.body)["n"] for row in rows) == list(range(300))
    assert {(row.place, row.outcomes["main"]) for row in rows} == {("archive", "done")}
    assert audit.run(cloud.spark, cloud.url, queue="jobs").complete
    cloud.bucket.put("docs/1.txt", "x")
    swept = sweep.run(cloud.spark, cloud.url, prefix="docs/", tasks=2)
    assert (swept.keys, swept.created) == (1, 1)


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_events_with_their_objects_become_objects_once_on_an_object_store(cloud: Inbox) -> None:
    files = {"a.txt": b"abc", "bad.txt": b"\xff", "large.txt": b"x" * 200, "gone.txt": b"x", "n/\u00e9 +%.txt": b"abcd"}
    for key, body in files.items():
        cloud.bucket.put(f"incoming/{key}", body)
    cloud.bucket.delete("incoming/gone.txt")
    cloud.bucket.put("incoming/a.txt", "abcde")
    source = FromEvents(filter="key REGEXP '^incoming/' AND kind != 'deleted'", content="text", size_bytes_max=100)
    target = ToObjects(template="out/{+key}.json")
    pipeline = Pipeline(name="measure", source=source, stages=(stages.measure,), target=target)
    run(cloud, pipeline)
    run_again(cloud, pipeline)
    expected = {
        "a.txt": {"key": "incoming/a.txt", "size": 5, "state": "same"},
        "gone.txt": {"key": "incoming/gone.txt", "size": None, "state": "gone"},
        "n/\u00e9 +%.txt": {"key": "incoming/n/\u00e9 +%.txt", "size": 4, "state": "same"},
    }
    for key, body in expected.items():
        read = cloud.bucket.get(f"out/incoming/{key}.json")
        assert (json.loads(read.body), read.content_type, read.hops) == (body, "application/json", 1)
    told = [each for each in cloud.bodies("events") if each["key"].startswith("out/")]
    assert sorted(each["key"] for each in told) == sorted(f"out/incoming/{key}.json" for key in expected)
    bad, large = sorted(letter.reason for letter in cloud.bucket.queue("events").dead_letters.peek())
    assert "is not UTF-8 text" in bad and "has 200 bytes, more than 100" in large


@pytest.mark.long
@pytest.mark.timeout(400)
def test_of_rows_for_one_object_the_newest_stays_on_an_object_store(cloud: Inbox) -> None:
    target = ToObjects(template="pending/{id}.json", if_exists="newer", newer_by="revision")
    pipeline = Pipeline(name="p", source=FromQueue("posts", stages.POST), target=target)
    for revisions in ((1, 3, 2), (2, 4), (3,)):
        rows = [{"id": "a/../b", "text": f"{n}", "revision": n} for n in revisions]
        cloud.bucket.queue("posts").send_many(rows)
        run(cloud, pipeline)
    assert cloud.bucket.get_json("pending/a%2F..%2Fb.json")["text"] == "4"
    told = [(each["key"], each["kind"]) for each in cloud.bodies("events")]
    assert told == [("pending/a%2F..%2Fb.json", "created"), ("pending/a%2F..%2Fb.json", "changed")]
