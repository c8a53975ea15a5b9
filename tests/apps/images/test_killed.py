"""Real processes of the application, killed with SIGKILL again and again while images come, change and go: watchers, a
driver of Spark, its executors, on a folder and on a real object store."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("PIL")
pytest.importorskip("pyarrow")

from processes.below import EXECUTOR
from processes.parts import kill, last_words, supervised

import bucketmq
from apps.images.drawn import drawing, jpeg, photo
from apps.images.running import STAGES, Images
from apps.moderation.drawing import encoded
from bucketmq.apps.images.places import pipeline_of

TABLE = {"images-table": ("images-table",)}
WATCHERS = {name: (name, "--without-spark") for name in map(pipeline_of, STAGES)} | TABLE
SPARK = {"driver": ("spark", "--master", "local[2,4]")} | TABLE
CLUSTER = {"driver": ("spark", "--master", "local-cluster[2,1,1024]")} | TABLE
COUNT = 12
WAIT_SECONDS = 480.0


def finished(images: Images, expected: dict[str, bytes]) -> bool:
    try:
        rows = {row["key"]: row for row in images.rows()}
    except bucketmq.NotFound:
        return False
    return set(rows) == set(expected) and all(
        row["complete"] and row["version"] == images.version(key) for key, row in rows.items()
    )


@pytest.mark.long
@pytest.mark.xdist_group("spark")
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("parts", "executor", "kills_min"),
    [
        pytest.param(WATCHERS, None, 5, id="watchers"),
        pytest.param(SPARK, None, 2, id="drivers"),
        pytest.param(CLUSTER, EXECUTOR, 2, id="executors"),
    ],
)
def test_whatever_part_is_killed_every_image_ends_complete_and_nothing_is_left_of_others(
    tmp_path: Path, place: str, parts: dict[str, tuple[str, ...]], executor: bytes | None, kills_min: int
) -> None:
    if "driver" in parts:
        pytest.importorskip("pyspark")
    environment = {"BUCKETMQ_URL": place, "IMAGES_DESCRIBER": "embedded", "BUCKETMQ_PROBE": "off"}
    expected: dict[str, bytes] = {}
    with bucketmq.connect(place) as bucket:
        images = Images(bucket)
        with supervised("images", parts, tmp_path, environment) as running:
            victims = itertools.cycle(running.parts.values())
            for number in range(COUNT):
                key = f"raw/{number}.jpg"
                expected[key] = jpeg(photo((80, 60), number))
                bucket.put(key, expected[key])
                if number % 3 == 2:
                    changed = f"raw/{number - 1}.jpg"
                    expected[changed] = encoded(drawing((60, 80)))
                    bucket.put(changed, expected[changed])
                if number % 4 == 3:
                    bucket.delete(f"raw/{number - 3}.jpg")
                    del expected[f"raw/{number - 3}.jpg"]
            kills, seen = 0, 0
            by = time.monotonic() + WAIT_SECONDS
            while not finished(images, expected):
                assert time.monotonic() < by, last_words(running)
                running.look()
                count = len(images.keys("facts/"))
                # A driver takes long to start: it is killed when it has written something, and not all.
                if kills < 2 * kills_min and ("driver" not in parts or count > seen):
                    seen = count
                    kill(next(victims), executor)
                    kills += 1
                time.sleep(0.1 if "driver" in parts else 1.0)
        assert kills >= kills_min, "it was over before enough was killed"
        assert len(images.rows()) == len(expected), "each is there once"
        made: dict[str, Any] = images.made()
        derived = {key for key in made if any(each in key for each in expected)}
        assert set(made) == derived and len(made) == len(expected) * (3 + len(STAGES))
        for key in expected:
            for stage in STAGES:
                facts = msgspec.json.decode(made[f"facts/{stage}/{key}.json"])
                assert facts["version"] == images.version(key), (key, stage)
        assert images.dead() == []
