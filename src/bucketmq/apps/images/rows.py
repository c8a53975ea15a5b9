"""The row of an image in the table `images`: what its stages said, joined. Pure.

A row holds for each stage which version of the image its facts were made of. Where these differ, a stage is still at
work, or could not read the newer version: `complete` is false then.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import msgspec

from bucketmq.apps.images.facts import AltFacts, Facts, PolicyFacts, TextFacts, ThumbnailFacts
from bucketmq.apps.images.places import ALT, POLICY, STAGES, TEXT, THUMBNAILS

if TYPE_CHECKING:
    import pyarrow as pa

KINDS: dict[str, type[Facts]] = {THUMBNAILS: ThumbnailFacts, POLICY: PolicyFacts, TEXT: TextFacts, ALT: AltFacts}

COLUMNS = (
    "key string, version string, complete boolean, width int, height int, format string, frames int, animated boolean, "
    "thumbs array<struct<size:int,width:int,height:int,size_bytes:bigint,key:string>>, verdict string, score double, "
    "reason string, alt string, alt_source string, confidence double, kind string, colours array<string>, "
    "text string, text_unsure boolean, "
    + ", ".join(f"{stage}_version string, {stage}_stage int, {stage}_model string" for stage in STAGES)
)
"""The columns of the table, as in Spark."""

QUOTED_CHARS_MAX = 240
"""How much of the text in an image its alternative text repeats; all of it is in `text`."""


def decoded(stage: str, body: bytes) -> Facts | None:
    """The facts of a stage; None if they are not ours."""
    try:
        return msgspec.json.decode(body, type=KINDS[stage])
    except msgspec.DecodeError:
        return None


def alt_with_text(said: AltFacts | None, read: TextFacts | None) -> tuple[str | None, str | None, float | None]:
    """The alternative text with what is written in the image, its source, and how sure it is.

    A sentence of Claude stands as it is. Text that was read for an older version of the image is not of this one.
    """
    if said is None:
        return None, None, None
    if said.alt_source == "claude" or read is None or read.version != said.version or not read.text:
        return said.alt, said.alt_source, said.confidence
    text = " ".join(read.text.split())
    if len(text) > QUOTED_CHARS_MAX:
        text = f"{text[:QUOTED_CHARS_MAX].rsplit(' ', 1)[0]} …"
    return f"{said.alt} Text in it: {text}", said.alt_source, said.confidence


def row_of(key: str, version: str | None, facts: Mapping[str, Facts]) -> dict[str, Any]:
    """The row of an image whose version is this one now, None if it is gone."""
    thumbs, policy, text, alt = (facts.get(stage) for stage in (THUMBNAILS, POLICY, TEXT, ALT))
    row: dict[str, Any] = {"key": key, "version": version}
    row["complete"] = version is not None and all(
        stage in facts and facts[stage].version == version for stage in STAGES
    )
    if isinstance(thumbs, ThumbnailFacts):
        row |= {name: getattr(thumbs, name) for name in ("width", "height", "format", "frames", "animated")}
        row["thumbs"] = [msgspec.structs.asdict(each) for each in thumbs.thumbs]
    if isinstance(policy, PolicyFacts):
        row |= {"verdict": policy.verdict, "score": policy.score, "reason": policy.reason}
    read = text if isinstance(text, TextFacts) else None
    if read is not None:
        row |= {"text": read.text, "text_unsure": read.unsure}
    if isinstance(alt, AltFacts):
        row["alt"], row["alt_source"], row["confidence"] = alt_with_text(alt, read)
        row |= {"kind": alt.kind, "colours": list(alt.colours)}
    for stage, said in facts.items():
        row[f"{stage}_version"] = said.version
        row[f"{stage}_stage"] = said.stage_version
        row[f"{stage}_model"] = getattr(said, "model", "")
    return row


def as_table(rows: list[dict[str, Any]]) -> pa.Table:
    """Rows with all columns of the table; what is not known is null."""
    import pyarrow as pa

    from bucketmq.pipeline.columns import arrow_schema

    schema = arrow_schema(COLUMNS)
    return pa.Table.from_pylist([{name: row.get(name) for name in schema.names} for row in rows], schema)
