"""Thumbnails: WebP in several sizes, upright, in sRGB, without metadata. The largest is made first, others from it.

Animations stay animations while they are within bounds, or become their first frame by setting. Nothing is enlarged:
a small image gives thumbnails of its own size under all names, so that every size can be linked without asking.
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.apps.images.decode import Opened, Picture, fit, frames_of, opened, picture
from bucketmq.apps.images.facts import Thumb, ThumbnailFacts, encoded, facts_to, for_each, version_of
from bucketmq.apps.images.places import (
    COLUMNS,
    FILTER,
    PASSED,
    THUMB_TEMPLATE,
    THUMBNAILS,
    pipeline_of,
    thumb_key,
)
from bucketmq.models.pictures import PLAIN_LIMITS, PictureLimits
from bucketmq.pipeline import FromEvents, Outcomes, Pipeline, ToObjects, stage

if TYPE_CHECKING:
    import pyarrow as pa
    from PIL.Image import Image

VERSION = 1
"""Of this stage: grows when its results change."""
SIZES = (256, 800, 1600)
QUALITY = 80
METHOD = 0
"""How hard libwebp tries, 0 to 6. At 4 an image takes twice as long, and is a fifth smaller."""
ANIMATED_FRAMES_MAX = 120
ANIMATED_PIXELS_MAX = 40_000_000
"""Of all frames as they are written in all sizes; beyond that an animation becomes its first frame."""
FRAME_MILLISECONDS = 100
"""For frames that do not say how long they are shown."""
FRAME_MILLISECONDS_MAX = (1 << 24) - 1
LOOPS_MAX = (1 << 16) - 1
"""What WebP has room for."""

ROWS_MAX, TASK_ROWS = 16, 8
"""Images that a stage is given at once, and from how many on a task of Spark is worth it."""


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What thumbnails are made like. Sent to executors."""

    sizes: tuple[int, ...] = SIZES
    keep_animations: bool = True
    limits: PictureLimits = PLAIN_LIMITS

    def __call__(self) -> Settings:
        """As a resource of the stage, itself."""
        return self


class Made(msgspec.Struct, frozen=True):
    """The thumbnails of one image, by size, and what is known of it."""

    files: dict[int, bytes]
    sizes: dict[int, tuple[int, int]]
    width: int
    height: int
    format: str
    frames: int
    animated: bool
    profile: str


def thumbnails(data: bytes, settings: Settings) -> Made:
    """All thumbnails of an image. `Unreadable` if there is none."""
    with opened(data, settings.limits) as found:
        frames = frames_of(found)
        animated = frames > 1 and found.kind != "tiff" and settings.keep_animations and _fits(found, frames, settings)
        files, sizes, profile = _moving(found, frames, settings) if animated else _still(found, settings)
        return Made(files, sizes, *found.size, found.kind, frames, animated, profile)


def _still(found: Opened, settings: Settings) -> tuple[dict[int, bytes], dict[int, tuple[int, int]], str]:
    """Of the first frame or page."""
    largest = picture(found, max(settings.sizes))
    files: dict[int, bytes] = {}
    sizes: dict[int, tuple[int, int]] = {}
    current, written = largest.image, b""
    for size in sorted(settings.sizes, reverse=True):
        smaller = _smaller(current, size)
        if not written or smaller is not current:  # otherwise the image is small itself: one file under several names
            written = _webp([smaller], [])
        files[size], sizes[size], current = written, smaller.size, smaller
    return files, sizes, largest.profile


def _moving(found: Opened, frames: int, settings: Settings) -> tuple[dict[int, bytes], dict[int, tuple[int, int]], str]:
    """Of all frames. One that cannot be decoded makes the image unreadable, as in a browser it would stop there."""
    largest: list[Picture] = []
    durations: list[int] = []
    for number in range(frames):
        found.image.seek(number)
        largest.append(picture(found, max(settings.sizes)))
        durations.append(min(int(found.image.info.get("duration") or FRAME_MILLISECONDS), FRAME_MILLISECONDS_MAX))
    files: dict[int, bytes] = {}
    sizes: dict[int, tuple[int, int]] = {}
    current, written = [each.image for each in largest], b""
    for size in sorted(settings.sizes, reverse=True):
        smaller = [_smaller(each, size) for each in current]
        if not written or smaller[0] is not current[0]:
            written = _webp(smaller, durations, loop=min(int(found.image.info.get("loop", 0)), LOOPS_MAX))
        files[size], sizes[size], current = written, smaller[0].size, smaller
    return files, sizes, largest[0].profile


def _fits(found: Opened, frames: int, settings: Settings) -> bool:
    """Whether an animation stays one."""
    width, height = found.image.size
    written = sum(side[0] * side[1] for side in {fit((width, height), size) for size in settings.sizes})
    decoded = width * height * frames
    return (
        frames <= min(ANIMATED_FRAMES_MAX, settings.limits.frames_max)
        and decoded <= settings.limits.pixels_of_all_frames_max
        and written * frames <= ANIMATED_PIXELS_MAX
    )


def _smaller(image: Image, size: int) -> Image:
    from PIL.Image import Resampling

    if max(image.size) <= size:
        return image
    return image.resize(fit(image.size, size), Resampling.LANCZOS, reducing_gap=2.0)


def _webp(frames: Sequence[Image], durations: Sequence[int], *, loop: int = 0) -> bytes:
    """A WebP without any metadata."""
    out = io.BytesIO()
    options: dict[str, Any] = {"quality": QUALITY, "method": METHOD, "exif": b"", "icc_profile": b"", "xmp": b""}
    if len(frames) > 1:
        options |= {"save_all": True, "append_images": frames[1:], "duration": list(durations), "loop": loop}
    frames[0].save(out, "WEBP", **options)
    return out.getvalue()


def facts_of(row: dict[str, Any], made: Made) -> ThumbnailFacts:
    thumbs = tuple(
        Thumb(size, *made.sizes[size], len(made.files[size]), thumb_key(row["key"], size))
        for size in sorted(made.files)
    )
    return ThumbnailFacts(
        key=row["key"],
        version=version_of(row),
        stage_version=VERSION,
        width=made.width,
        height=made.height,
        format=made.format,
        frames=made.frames,
        animated=made.animated,
        profile=made.profile,
        thumbs=thumbs,
    )


def thumbnailed(batch: pa.RecordBatch, settings: Settings) -> Outcomes:
    """The function of the stage."""

    def make(row: dict[str, Any]) -> dict[str, Any]:
        made = thumbnails(row["content"], settings)
        files = [{"size": size, "file": made.files[size]} for size in sorted(made.files)]
        return {"thumbs": files, "facts": encoded(facts_of(row, made))}

    return for_each(batch, ("thumbs", "facts"), make)


def pipeline(settings: Settings, *, bytes_max: int) -> Pipeline:
    gives = f"{PASSED}, thumbs array<struct<size:int,file:binary>>, facts string"
    made = stage(name=THUMBNAILS, takes=COLUMNS, gives=gives, uses=settings, rows_max=ROWS_MAX)(thumbnailed)
    return Pipeline(
        name=pipeline_of(THUMBNAILS),
        about="make thumbnails of images below raw/",
        source=FromEvents(filter=FILTER, content="bytes", size_bytes_max=bytes_max),
        task_rows=TASK_ROWS,
        stages=(made,),
        targets=(
            ToObjects(template=THUMB_TEMPLATE, each="thumbs", body="file", content_type="image/webp", follows="key"),
            facts_to(THUMBNAILS),
        ),
    )
