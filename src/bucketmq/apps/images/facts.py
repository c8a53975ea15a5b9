"""What a stage says of an image: the JSON objects below facts/, as values, and the pipeline of a stage that makes them.

Facts hold no time and no chance: the same image gives the same bytes, so a stage that is run again writes nothing new.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import msgspec

from bucketmq.apps.images.decode import Unreadable
from bucketmq.apps.images.places import COLUMNS, FACTS_TEMPLATES, FILTER, PASSED, RAW, pipeline_of
from bucketmq.models.pictures import PLAIN_LIMITS, PictureLimits
from bucketmq.pipeline import FromEvents, Outcomes, Pipeline, ToObjects, stage

if TYPE_CHECKING:
    import pyarrow as pa

Verdict = Literal["fine", "flagged", "unsure", "unknown"]
Kind = Literal["photo", "drawing", "screenshot", "scan", "unknown"]
AltSource = Literal["embedded", "claude"]


class Thumb(msgspec.Struct, frozen=True):
    """One thumbnail: the size that was asked for, and what came of it."""

    size: int
    width: int
    height: int
    size_bytes: int
    key: str


class ThumbnailFacts(msgspec.Struct, frozen=True, kw_only=True):
    """`facts/thumbnails/<key>.json`."""

    key: str
    version: str
    """The version of the image that this was made of."""
    stage_version: int
    width: int
    height: int
    """Upright."""
    format: str
    frames: int
    animated: bool
    """Whether the thumbnails move."""
    profile: str
    thumbs: tuple[Thumb, ...]


class PolicyFacts(msgspec.Struct, frozen=True, kw_only=True):
    """`facts/policy/<key>.json`."""

    key: str
    version: str
    stage_version: int
    verdict: Verdict
    score: float | None
    """How probable it is that the image is not safe for work; None if it could not be judged."""
    reason: str
    model: str


class TextFacts(msgspec.Struct, frozen=True, kw_only=True):
    """`facts/text/<key>.json`."""

    key: str
    version: str
    stage_version: int
    text: str
    lines: int
    unsure: bool
    """There is text that could not be read for sure, and is left out."""
    model: str


class AltFacts(msgspec.Struct, frozen=True, kw_only=True):
    """`facts/alt/<key>.json`: what the picture alone says; the text in it is added where both are known."""

    key: str
    version: str
    stage_version: int
    alt: str
    alt_source: AltSource
    confidence: float
    kind: Kind
    colours: tuple[str, ...]
    digest: str
    """Of the image's bytes: the same image is not described twice."""
    model: str


Model = TypeVar("Model")


class WithModel(msgspec.Struct, Generic[Model], frozen=True):
    """What a stage with a model uses: the model, and the limits."""

    model: Model
    limits: PictureLimits


class LoadModel(msgspec.Struct, Generic[Model], frozen=True, kw_only=True):
    """How that is made, where it is used."""

    load: Callable[[], Model]
    limits: PictureLimits = PLAIN_LIMITS

    def __call__(self) -> WithModel[Model]:
        return WithModel(self.load(), self.limits)


Facts = ThumbnailFacts | PolicyFacts | TextFacts | AltFacts


def encoded(facts: Facts) -> str:
    return msgspec.json.encode(facts).decode()


def for_each(
    batch: pa.RecordBatch, columns: Sequence[str], make: Callable[[dict[str, Any]], dict[str, Any]]
) -> Outcomes:
    """What `make` gives for each image of a batch, as columns beside those that are passed on.

    One that cannot be read is a failed row with the reason. A key outside raw/ is an image that was moved away: nothing
    comes of it, and what was made of it before goes.
    """
    made: dict[str, list[Any]] = {name: [] for name in ("key", "at", "content_version", *columns)}
    of: list[int] = []
    failed: dict[int, str] = {}
    for number, row in enumerate(batch.to_pylist()):
        if not row["key"].startswith(RAW) or row["content"] is None:
            continue
        try:
            found = make(row)
        except Unreadable as error:
            failed[number] = str(error)
            continue
        of.append(number)
        for name in ("key", "at", "content_version"):
            made[name].append(row[name])
        for name in columns:
            made[name].append(found[name])
    return Outcomes(rows=made, failed=failed, of=of)


def version_of(row: dict[str, Any]) -> str:
    """The version of the bytes that were read."""
    return row["content_version"] or row["version"] or ""


def facts_to(name: str) -> ToObjects:
    """Where the facts of a stage go."""
    return ToObjects(template=FACTS_TEMPLATES[name], body="facts", content_type="application/json", follows="key")


def facts_pipeline(
    name: str,
    say: Callable[[dict[str, Any], Any], Facts],
    make: Callable[[], Any],
    *,
    about: str,
    bytes_max: int,
    rows_max: int,
    task_rows: int,
) -> Pipeline:
    """The pipeline of a stage that writes facts and nothing else: `say` gives those of an image, with what `make`
    made."""
    said = functools.partial(_said, say)
    made = stage(name=name, takes=COLUMNS, gives=f"{PASSED}, facts string", uses=make, rows_max=rows_max)(said)
    return Pipeline(
        name=pipeline_of(name),
        about=about,
        source=FromEvents(filter=FILTER, content="bytes", size_bytes_max=bytes_max),
        task_rows=task_rows,
        stages=(made,),
        target=facts_to(name),
    )


def _said(say: Callable[[dict[str, Any], Any], Facts], batch: pa.RecordBatch, uses: Any) -> Outcomes:
    return for_each(batch, ("facts",), lambda row: {"facts": encoded(say(row, uses))})
