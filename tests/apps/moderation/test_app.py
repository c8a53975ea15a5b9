"""Moderation as an application: its pipeline without Spark, its stage run again, its page."""

from __future__ import annotations

import shlex
from pathlib import Path

import httpx2
import msgspec
import pytest
from cli.ran import Cli
from cli.running import running
from server.running import until

from bucketmq.apps.moderation.agents import page
from bucketmq.apps.moderation.app import MODERATION
from bucketmq.apps.moderation.pipeline import pipeline as judging
from bucketmq.apps.moderation.queues import READER
from bucketmq.apps.moderation.settings import settings_from
from bucketmq.cli.group import EXAMPLES
from bucketmq.client import Bucket

pytest.importorskip("pyarrow")

ONCE = ("apps", "run", "moderation", "--only", "moderation", "--without-spark", "--once", "--classifier", "none")


def test_the_settings_choose_the_classifier_of_the_pipeline(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = settings_from({}, url="memory://", classifier="none", private_images=True)
    assert MODERATION.pipeline(READER, chosen) == judging(classifier="none", private_images=True)
    assert MODERATION.pipeline(READER) == judging()


def test_a_stage_of_moderation_is_run_again(cli: Cli, bucket: Bucket) -> None:
    for id in ("post-17", "post-18"):
        bucket.queue("submissions").send({"id": id, "text": "hello", "revision": 1}, key=id)
    assert cli(*ONCE).code == 0
    bucket.delete("pending/post-17.json")
    shown = [shlex.split(line)[1:] for line in EXAMPLES["apps rerun"]]
    dry, told = (cli(*words) for words in shown)
    assert dry.code == told.code == 0, (dry, told)
    assert "moderation would be sent 1 message again, of 2 looked at" in dry.err
    assert "at most 1 read and 4 writes: $" in dry.err
    assert told.row["told"] == 2
    before = bucket.store.look("pending/post-18.json")
    assert cli(*ONCE).code == 0
    assert bucket.get_json("pending/post-17.json")["text"] == "hello"
    assert bucket.store.look("pending/post-18.json") == before  # it would be the same, so it is not written


def test_stages_that_are_not_there_are_told_with_those_that_are(cli: Cli) -> None:
    ran = cli("apps", "rerun", "moderation", "--stage", "jugde", "--prefix", "")
    assert "has no stage 'jugde'; there are: judge (of moderation)" in ran.err


def test_whoever_runs_it_gets_a_token_of_the_desk_if_nobody_has_one() -> None:
    alone = page(settings_from({}, url="memory://"), "http://127.0.0.1:1")
    token = alone.link.partition("#token=")[2]
    assert alone.environment == {"DESK_TOKENS": f"runner={token}:administer"} and len(token) >= 16
    given = settings_from({}, url="memory://", desk_tokens=("rosa=a-token-of-rosa-1:reviewer",))
    assert msgspec.structs.asdict(page(given, "http://127.0.0.1:1")) == {
        "link": "http://127.0.0.1:1",
        "environment": {},
    }


@pytest.mark.slow
def test_all_of_it_runs_on_one_machine_and_a_post_goes_through(
    bucket: Bucket, folder: Path, environment: dict[str, str]
) -> None:
    words = [
        "apps",
        "run",
        "moderation",
        "--without-spark",
        "--classifier",
        "none",
        "--port-ingest",
        "0",
        "--port-desk",
        "0",
        "--json",
    ]
    with running(words, environment, folder) as process:
        page = process.row()["page"]  # before anything else
        addresses = {}
        while (row := process.row())["said"] != f"all parts are ready on {environment['BUCKETMQ_URL']}":
            if row["said"].startswith("ready at "):
                addresses[row["part"]] = row["said"].removeprefix("ready at ")
        assert page.startswith(f"{addresses['desk']}/#token=")
        assert httpx2.get(addresses["desk"], timeout=30).status_code == 200
        sent = httpx2.post(f"{addresses['ingest']}/submit", json={"id": "p1", "text": "hello"}, timeout=30)
        assert sent.status_code == 201
        until((folder / "bucket" / "approved" / "p1.json").exists)
        code, _, err = process.stop()
        assert code == 0, err
        assert page.partition("#token=")[2] not in err
