"""The application on a bucket, run without Spark until nothing is left to do."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from bucketmq.apps.app import made
from bucketmq.apps.images.app import IMAGES
from bucketmq.apps.images.places import STAGES, pipeline_of
from bucketmq.apps.images.settings import ImageSettings
from bucketmq.apps.images.table import BATCH, FACTS_FILTER, NAME, images_of, keep_rows
from bucketmq.client import Bucket
from bucketmq.events.event import ObjectEvent, time_text
from bucketmq.pipeline import Pipeline
from bucketmq.pipeline.again import Retold, Which, retell

__all__ = ["STAGES", "Images"]


class Images:
    """A bucket, and what the application makes of it."""

    def __init__(self, bucket: Bucket, stages: Sequence[str] = STAGES, **settings: Any) -> None:
        self.bucket = bucket
        self._names = [pipeline_of(stage) for stage in stages]
        self.settings: dict[str, Any] = {"describer": "embedded", **settings}
        self._watching = False

    def pipelines(self) -> dict[str, Pipeline]:
        settings = ImageSettings(url="memory://", **self.settings)
        found = (made(each, settings) for each in IMAGES.pipelines if each.name in self._names)
        return {each.name: each for each in found}

    def put(self, key: str, data: bytes) -> str:
        self.bucket.put(key, data)
        return self.version(key)

    def run(self) -> None:
        """Every pipeline in a watcher, and the table's keeper, until nothing is left to do."""
        if not self._watching:
            self._watching = True
            self.watch()
        names = list(self.pipelines())
        self.bucket.run_watchers(*names, stop_when_empty=True, signals=False)
        self.bucket.run_watchers(NAME, stop_when_empty=True, signals=False)

    def watch(self) -> None:
        for name, pipeline in self.pipelines().items():
            handle = pipeline.watcher(self.bucket)
            self.bucket.watch(pipeline.source.filter, name=name, start="beginning", batch=100)(handle)
        self.keep_table()

    def keep_table(self) -> None:
        @self.bucket.watch(FACTS_FILTER, name=NAME, start="beginning", batch=BATCH)
        def keep(changes: Any) -> None:
            opened = self.bucket.run(self.bucket.api.open())
            self.bucket.run(keep_rows(opened, images_of(changes)))

    def touch(self, *keys: str) -> None:
        """Make rows anew."""
        self.bucket.run(keep_rows(self.bucket.run(self.bucket.api.open()), keys))

    def rerun(self, stage: str, **which: Any) -> Retold:
        opened = self.bucket.run(self.bucket.api.open())
        return self.bucket.run(retell(opened, self.pipelines()[pipeline_of(stage)], Which(**which)))

    def version(self, key: str) -> str:
        found = self.bucket.look(key)
        assert found is not None
        return str(found.version).strip('"')

    def keys(self, prefix: str) -> list[str]:
        """Users' objects; ours are left out."""
        return sorted(each for each in self.bucket.rules.matching("").keys if each.startswith(prefix))

    def made(self) -> dict[str, bytes]:
        """What was made of images, with its bytes."""
        return {key: self.bucket.get(key).body for key in (*self.keys("thumbs/"), *self.keys("facts/"))}

    def rows(self) -> list[dict[str, Any]]:
        return sorted(self.bucket.table("images").read().to_pylist(), key=lambda row: row["key"])

    def row(self, key: str) -> dict[str, Any]:
        (found,) = (row for row in self.rows() if row["key"] == key)
        return found

    def dead(self) -> list[tuple[str, str]]:
        """The stage and the reason of every dead letter."""
        letters = self.bucket.existing_queue("events").dead_letters.peek(100)
        return [(each.reason.partition(":")[0].removeprefix("stage "), each.reason) for each in letters]

    def event(self, key: str, at: float) -> Any:
        """The change that a watcher would be handed for the version that is there now."""
        event = ObjectEvent(
            id=f"{key}-{at}", kind="created", key=key, at=time_text(at), source="writer", version=self.version(key)
        )
        return SimpleNamespace(id=f"{key}-{at}", event=event, attempt=1)
