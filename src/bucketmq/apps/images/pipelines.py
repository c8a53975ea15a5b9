"""The four pipelines of images, made when they are wanted: their models take long to import. Each is its stage's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bucketmq.apps.app import LazyPipeline
from bucketmq.apps.images.places import ALT, POLICY, TEXT, THUMBNAILS, pipeline_of
from bucketmq.apps.images.settings import BYTES_MAX, PIXELS_MAX

if TYPE_CHECKING:
    from bucketmq.pipeline import Pipeline


def thumbnailing(*, bytes_max: int = BYTES_MAX, pixels_max: int = PIXELS_MAX, animations: str = "keep") -> Pipeline:
    from bucketmq.apps.images.thumbnails import Settings, pipeline
    from bucketmq.models.pictures import PictureLimits

    kept = animations == "keep"
    return pipeline(Settings(keep_animations=kept, limits=PictureLimits(pixels_max=pixels_max)), bytes_max=bytes_max)


def judging(*, bytes_max: int = BYTES_MAX, pixels_max: int = PIXELS_MAX) -> Pipeline:
    from bucketmq.apps.images.policy import pipeline
    from bucketmq.models.pictures import PictureLimits

    return pipeline(PictureLimits(pixels_max=pixels_max), bytes_max=bytes_max)


def reading(*, bytes_max: int = BYTES_MAX, pixels_max: int = PIXELS_MAX) -> Pipeline:
    from bucketmq.apps.images.text import pipeline
    from bucketmq.models.pictures import PictureLimits

    return pipeline(PictureLimits(pixels_max=pixels_max), bytes_max=bytes_max)


def describing(
    *, bytes_max: int = BYTES_MAX, pixels_max: int = PIXELS_MAX, describer: str = "auto", url: str = ""
) -> Pipeline:
    from bucketmq.apps.images.alt import MakeUses, pipeline
    from bucketmq.models.pictures import PictureLimits

    uses = MakeUses(limits=PictureLimits(pixels_max=pixels_max), describer=describer, url=url)
    return pipeline(uses, bytes_max=bytes_max)


PIPELINES: dict[str, LazyPipeline] = {
    THUMBNAILS: LazyPipeline(
        name=pipeline_of(THUMBNAILS), make=thumbnailing, about="Make thumbnails in three sizes, as WebP."
    ),
    POLICY: LazyPipeline(name=pipeline_of(POLICY), make=judging, about="Judge whether images are safe for work."),
    TEXT: LazyPipeline(name=pipeline_of(TEXT), make=reading, about="Read the text in images."),
    ALT: LazyPipeline(name=pipeline_of(ALT), make=describing, about="Write alternative texts for images."),
}
"""By stage."""
