"""The demo of moderation: its posts, and the whole of it as `make demo` runs it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from bucketmq.pipelines.moderation.classify.embedded import EmbeddedClassifier
from bucketmq.pipelines.moderation.demo.posts import KINDS, samples
from bucketmq.pipelines.moderation.record import APPROVED, Post, record_of
from bucketmq.pipelines.moderation.routing import outcome_of, read

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


@pytest.mark.long
@pytest.mark.timeout(400)
@pytest.mark.xdist_group("spark")
def test_the_demo_loses_nothing_and_says_so(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    ran = subprocess.run(
        [sys.executable, "-m", "bucketmq.cli", "moderation", "demo", "--count", "60", "--json"],
        env={**os.environ, "TMPDIR": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    told = json.loads(ran.stdout)
    assert told["good"] is True
    assert told["accepted"] == 61  # and one with an id that looks like a path
    assert (told["lost"], told["twice"], told["refused"], told["failed"]) == (0, 0, 2, [])
    assert sum(told["outcomes"].values()) == told["accepted"]
    assert told["flagged"] == told["noticed"] > 0
    assert told["notices_refused"] == 2
    assert not list(tmp_path.glob("bucketmq-moderation-*"))
