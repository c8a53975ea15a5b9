"""Models are loaded once for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="session", autouse=True)
def models() -> Iterator[None]:
    """What the stages use stays loaded while buckets come and go."""
    pytest.importorskip("PIL")
    pytest.importorskip("pyarrow")
    from apps.images.running import Images
    from bucketmq.pipeline.resources import of_process

    stages = [each for pipeline in Images(None).pipelines().values() for each in pipeline.stages]  # type: ignore[arg-type]
    let_go = of_process().hold([each for stage in stages for each in stage.uses])
    yield
    let_go()
