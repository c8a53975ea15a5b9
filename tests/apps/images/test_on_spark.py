"""The same comes of the same, with Spark and without."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

pytest.importorskip("PIL")
pytest.importorskip("pyspark")

from spark.conftest import Inbox, inbox, java_here, spark

import bucketmq
from apps.images.drawn import drawing, jpeg, photo
from apps.images.running import STAGES, Images
from apps.moderation.drawing import animation, canvas, encoded, written
from bucketmq.apps.images.table import NAME
from bucketmq.spark import start

__all__ = ["inbox", "java_here", "spark"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

Step = Callable[[Any], object]
STEPS: dict[str, tuple[Step, ...]] = {
    "images come, some of them unreadable": (
        lambda bucket: bucket.put("raw/a.jpg", jpeg(photo())),
        lambda bucket: bucket.put("raw/2026/b.png", encoded(written("Rye bread"))),
        lambda bucket: bucket.put("raw/moves.gif", animation([canvas((60, 40), "red"), canvas((60, 40), "blue")])),
        lambda bucket: bucket.put("raw/bad.jpg", b"not an image"),
        lambda bucket: bucket.put("raw/cut.jpg", jpeg(photo())[:1500]),
    ),
    "one is replaced, one is deleted, one is moved away": (
        lambda bucket: bucket.put("raw/a.jpg", encoded(drawing())),
        lambda bucket: bucket.delete("raw/2026/b.png"),
        lambda bucket: bucket.move("raw/moves.gif", "archive/moves.gif"),
    ),
}


def run_on_spark(inbox: Inbox, images: Images) -> None:
    for name, pipeline in images.pipelines().items():
        query = start(pipeline, inbox.url, inbox.spark, checkpoint=str(inbox.folder / "checkpoints" / name), once=True)
        try:
            query.awaitTermination()
        finally:
            query.stop()
    if NAME not in inbox.bucket.api.watchers.by_name:
        images.keep_table()
    inbox.bucket.run_watchers(NAME, stop_when_empty=True, signals=False)


def plain(value: Any) -> Any:
    """What must be equal: not the versions, which belong to one write in one bucket."""
    if isinstance(value, dict):
        return {
            name: plain(each) for name, each in value.items() if not name.endswith("version") or name == "stage_version"
        }
    return [plain(each) for each in value] if isinstance(value, list) else value


def outcome(images: Images) -> Any:
    made = images.made()
    facts = {key: plain(msgspec.json.decode(body)) for key, body in made.items() if key.startswith("facts/")}
    thumbs = {key: body for key, body in made.items() if key.startswith("thumbs/")}
    return facts, thumbs, plain(images.rows()), sorted(images.dead())


@pytest.mark.parametrize("stages", [("thumbnails",), pytest.param(STAGES, marks=pytest.mark.long)])
def test_the_same_comes_of_the_same_with_spark_and_without(
    inbox: Inbox, tmp_path: Path, stages: tuple[str, ...]
) -> None:
    with bucketmq.connect(str(tmp_path / "plain")) as other:
        on_spark, without = Images(inbox.bucket, stages), Images(other, stages)
        for name, steps in STEPS.items():
            for step in steps:
                step(inbox.bucket)
                step(other)
            run_on_spark(inbox, on_spark)
            without.run()
            assert outcome(on_spark) == outcome(without), name
            versions = {row[f"{stage}_version"] == row["version"] for row in on_spark.rows() for stage in stages}
            assert versions == {True}, name
        assert [row["key"] for row in on_spark.rows()] == ["raw/a.jpg"]
        assert len(on_spark.dead()) == 2 * len(stages)
