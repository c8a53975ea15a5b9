"""Text: what is written in an image, in the order in which people read it. Lines that are not sure are left out.

Of an animation the first frame is read, of a TIFF its first pages.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bucketmq.apps.images.decode import Opened, frames_of, on_white, opened, picture
from bucketmq.apps.images.facts import LoadModel, TextFacts, WithModel, facts_pipeline, version_of
from bucketmq.apps.images.places import TEXT
from bucketmq.models.ocr import RapidOcr, Reading
from bucketmq.models.pictures import PictureLimits
from bucketmq.pipeline import Pipeline

if TYPE_CHECKING:
    from collections.abc import Iterator

    from PIL.Image import Image

VERSION = 1
SIDE_MAX = 3600
"""A page of A4 scanned with 300 dots to the inch is read whole; small print needs it."""
SIDE_MIN = 32
"""Smaller pictures have no text that could be read, and recognisers stumble over them."""
PAGES_MAX = 8
LETTERS_MIN = 2
"""A letter that stands alone in an image may as well be the edge of something."""
STROKES = "一丨丶亅丿"
"""Characters of one stroke, which horizons and walls are taken for."""
TEXT_CHARS_MAX = 100_000
ROWS_MAX, TASK_ROWS = 8, 4


def read(data: bytes, uses: WithModel[RapidOcr]) -> Reading:
    """The text of an image. `Unreadable` if there is no picture."""
    with opened(data, uses.limits) as found:
        pages = [uses.model.read_page(page) for page in _pages(found) if min(page.size) >= SIDE_MIN]
    # A recogniser takes edges for dashes: what has no letter and no digit but such is nothing that anybody wrote.
    lines = [line for each in pages for line in each.text.splitlines() if _letters(line)]
    unsure = any(each.unsure for each in pages)
    if sum(map(_letters, lines)) < LETTERS_MIN:
        return Reading("", unsure or bool(lines))
    return Reading("\n".join(lines)[:TEXT_CHARS_MAX], unsure)


def _letters(line: str) -> int:
    return sum(each.isalnum() and each not in STROKES for each in line)


def _pages(found: Opened) -> Iterator[Image]:
    for number in range(min(frames_of(found), PAGES_MAX) if found.kind == "tiff" else 1):
        if number:
            found.image.seek(number)
        yield on_white(picture(found, SIDE_MAX).image)


def texted(row: dict[str, Any], uses: WithModel[RapidOcr]) -> TextFacts:
    """What the stage says of an image."""
    reading = read(row["content"], uses)
    return TextFacts(
        key=row["key"],
        version=version_of(row),
        stage_version=VERSION,
        text=reading.text,
        lines=len(reading.text.splitlines()),
        unsure=reading.unsure,
        model=uses.model.model,
    )


def pipeline(limits: PictureLimits, *, bytes_max: int) -> Pipeline:
    return facts_pipeline(
        TEXT,
        texted,
        LoadModel(load=RapidOcr, limits=limits),
        about="read the text in images below raw/",
        bytes_max=bytes_max,
        rows_max=ROWS_MAX,
        task_rows=TASK_ROWS,
    )
