"""Real processes of the application, killed with SIGKILL again and again while images come, change and go."""

from __future__ import annotations

import itertools
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("PIL")
pytest.importorskip("pyarrow")

import bucketmq
from apps.images.drawn import drawing, jpeg, photo
from apps.images.running import STAGES, Images
from apps.moderation.drawing import encoded
from bucketmq.apps.images.places import pipeline_of
from bucketmq.crew import Crew

PARTS = (*(pipeline_of(stage) for stage in STAGES), "images-table")
COUNT = 12
KILLS = 10
WAIT_SECONDS = 240.0


def finished(images: Images, expected: dict[str, bytes]) -> bool:
    try:
        rows = {row["key"]: row for row in images.rows()}
    except bucketmq.NotFound:
        return False
    return set(rows) == set(expected) and all(
        row["complete"] and row["version"] == images.version(key) for key, row in rows.items()
    )


@pytest.mark.long
@pytest.mark.timeout(600)
def test_whatever_part_is_killed_every_image_ends_complete_and_nothing_is_left_of_others(tmp_path: Path) -> None:
    url = f"file://{tmp_path}/album"
    environment = {"BUCKETMQ_URL": url, "IMAGES_DESCRIBER": "embedded", "BUCKETMQ_PROBE": "off"}
    expected: dict[str, bytes] = {}
    with bucketmq.connect(url) as bucket, Crew(tmp_path, environment) as crew:
        images = Images(bucket)
        for part in PARTS:
            crew.start(part, "--json", "apps", "run", "images", "--only", part, "--without-spark")
        victims = itertools.cycle(PARTS)
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
        kills = 0
        by = time.monotonic() + WAIT_SECONDS
        while not finished(images, expected):
            assert time.monotonic() < by, {name: each.last_words() for name, each in crew.members.items()}
            if kills < KILLS:
                member = crew.members[next(victims)]
                member.kill()
                member.restart()
                kills += 1
            time.sleep(1.0)
        crew.finish(crew.members.values())
        assert kills >= 5, "it was over before enough was killed"
        made: dict[str, Any] = images.made()
        derived = {key for key in made if any(each in key for each in expected)}
        assert set(made) == derived and len(made) == len(expected) * (3 + len(STAGES))
        for key in expected:
            for stage in STAGES:
                facts = msgspec.json.decode(made[f"facts/{stage}/{key}.json"])
                assert facts["version"] == images.version(key), (key, stage)
        assert images.dead() == []
