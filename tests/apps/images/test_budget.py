"""What an image costs in requests, exactly."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("PIL")
pytest.importorskip("pyarrow")

import bucketmq
from apps.images.drawn import jpeg, photo
from apps.images.running import STAGES, Images
from bucketmq.apps.images.places import pipeline_of

DATA = jpeg(photo((64, 48)))


def spent(images: Images, work: Callable[[], Any]) -> dict[str, int]:
    before = images.bucket.requests
    work()
    found = images.bucket.requests - before
    kinds = ("get", "look", "list", "create", "replace", "delete")
    return {kind: count for kind in kinds if (count := getattr(found, kind))}


def test_a_stage_costs_a_few_requests_and_writes_nothing_when_nothing_changed() -> None:
    with bucketmq.connect("memory://") as bucket:
        images = Images(bucket)
        images.put("raw/warm.jpg", DATA)
        images.run()
        for stage in STAGES:
            handle = images.pipelines()[pipeline_of(stage)].watcher(bucket)
            images.put(f"raw/{stage}.jpg", DATA)
            event = images.event(f"raw/{stage}.jpg", time.time())
            objects = 4 if stage == "thumbnails" else 1
            # The image, its register twice; for each object a HEAD and a PUT; a note, the events, the register.
            first = {"get": 3, "look": 1 + objects, "create": 3 + objects, "delete": 1}
            assert spent(images, lambda handle=handle, event=event: handle(event)) == first, stage
            again = {"get": 3, "look": 1 + objects}
            assert spent(images, lambda handle=handle, event=event: handle(event)) == again, stage


def test_the_rows_of_many_images_are_one_commit() -> None:
    with bucketmq.connect("memory://") as bucket:
        images = Images(bucket)
        names = [f"raw/{number}.jpg" for number in range(4)]
        for name in names:
            images.put(name, DATA)
        images.run()
        bucket.table("images").delete(*names)
        costs = spent(images, lambda: images.touch(*names))
        assert costs == {"get": 4 * 4 + 2, "look": 4 * (4 + 1), "create": 1, "replace": 1}
        assert spent(images, lambda: images.touch(*names)).keys() == {"get", "look"}, "nothing changed"
