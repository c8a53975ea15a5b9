"""The settings of images. What a stage does with its settings belongs to the stage."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from bucketmq.apps.page import PageSettings
from bucketmq.apps.settings import SECRET, Variable

BYTES_MAX = 32 << 20
PIXELS_MAX = 25_000_000


class ImageSettings(PageSettings, frozen=True, kw_only=True):
    """What all parts of images share."""

    bytes_max: Annotated[
        int, Meta(ge=1, description="a larger object is a dead letter"), Variable("IMAGES_BYTES_MAX")
    ] = BYTES_MAX
    pixels_max: Annotated[
        int,
        Meta(ge=1, description="an image of more pixels is a dead letter, before it is decoded"),
        Variable("IMAGES_PIXELS_MAX"),
    ] = PIXELS_MAX
    animations: Annotated[
        Literal["keep", "first"],
        Meta(description="whether animations stay ones, within bounds, or become their first frame"),
        Variable("IMAGES_ANIMATIONS"),
    ] = "keep"
    describer: Annotated[
        Literal["auto", "embedded", "claude"],
        Meta(description="what describes images: claude, embedded, or by default claude where there is a key"),
        Variable("IMAGES_DESCRIBER"),
    ] = "auto"
    anthropic_api_key: Annotated[str | None, Variable("ANTHROPIC_API_KEY"), SECRET] = None
