"""The verbs of images: show, ls, rebuild; run and rerun are those of `bucketmq apps`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from bucketmq.apps.images.places import RAW, STAGES, TABLE
from bucketmq.cli.exits import Code
from bucketmq.cli.group import Group
from bucketmq.cli.options import Json, Url, open_bucket
from bucketmq.cli.output import emit, emit_text, plural, say, table
from bucketmq.errors import Invalid, NotFound
from bucketmq.procedures.queues import EVENTS

if TYPE_CHECKING:
    from bucketmq.client import Bucket

LETTERS_LOOKED_AT = 1_000
ALT_CHARS_SHOWN = 60
VERDICTS = ("fine", "flagged", "unsure", "unknown")


def show(
    key: Annotated[str, typer.Argument(metavar="KEY", help="The image: raw/2026/hills.jpg.")],
    *,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """All that is known of an image, stage by stage, and why a stage could not read it.

    Reads what the stages wrote, not the table: it is never behind.
    """
    from bucketmq.apps.images.table import read_row

    with open_bucket(url, probe=False) as bucket:
        row = bucket.run(read_row(bucket.run(bucket.api.open()), key))
        dead = _dead(bucket, key)
    if row is None and not dead:
        raise NotFound(f"nothing is known of {key!r}; see which images there are: bucketmq images ls")
    if as_json:
        emit({"key": key, "image": row, "dead_letters": dead})
        return
    for name, value in _shown(row or {}):
        emit_text(f"{name:<12}  {value}")
    for stage, state in _stages(row or {}):
        emit_text(f"{stage:<12}  {state}")
    for each in dead:
        emit_text(f"dead letter   {each}")
    if row is not None and row.get("text"):
        emit_text("text:")
        for line in row["text"].splitlines():
            emit_text(f"  {line}")


def _shown(row: dict[str, Any]) -> list[tuple[str, Any]]:
    if not row:
        return []
    size = f"{row['width']} x {row['height']} {row['format']}" if row.get("width") else "not known yet"
    verdict = row.get("verdict") or "not judged yet"
    score = row.get("score")
    return [
        ("key", row["key"]),
        ("version", row["version"] or "gone"),
        ("size", size),
        ("verdict", verdict if score is None else f"{verdict} ({score:.2f}, {row['policy_model']})"),
        ("alt", row.get("alt") or "not written yet"),
        ("thumbnails", "  ".join(each["key"] for each in row.get("thumbs") or ()) or "none yet"),
    ]


def _stages(row: dict[str, Any]) -> list[tuple[str, str]]:
    versions = [(stage, row.get(f"{stage}_version")) for stage in STAGES if row]
    return [
        (stage, "not yet" if of is None else "current" if of == row["version"] else "of an older version")
        for stage, of in versions
    ]


def _dead(bucket: Bucket, key: str) -> list[str]:
    """Why events about this image died, of the latest thousand letters."""
    try:
        letters = bucket.existing_queue(EVENTS).dead_letters.peek(LETTERS_LOOKED_AT)
    except NotFound:
        return []
    return [each.reason for each in letters if isinstance(each.body, dict) and each.body.get("key") == key]


def ls(
    prefix: Annotated[str, typer.Argument(metavar="PREFIX", help="Those with this key prefix.")] = RAW,
    *,
    verdict: Annotated[
        str | None, typer.Option(metavar="VERDICT", help="Only fine, flagged, unsure or unknown ones.")
    ] = None,
    limit: Annotated[int, typer.Option(min=1, help="At most this many.")] = 1_000,
    url: Url = None,
    as_json: Json = False,
) -> None:
    """The images in the table, with verdict and alternative text. With --json every column."""
    if verdict is not None and verdict not in VERDICTS:
        raise Invalid(f"{verdict!r} is not a verdict; write {', '.join(VERDICTS[:-1])} or {VERDICTS[-1]}")
    with open_bucket(url, probe=False) as bucket:
        try:
            rows = bucket.table(TABLE).read().to_pylist()
        except NotFound:
            rows = []
    found = [
        row
        for row in sorted(rows, key=lambda row: str(row["key"]))
        if row["key"].startswith(prefix) and (verdict is None or row["verdict"] == verdict)
    ]
    if as_json:
        for row in found[:limit]:
            emit(row)
    elif found:
        lines = [(row["key"], row["verdict"] or "", _cut(row["alt"] or "")) for row in found[:limit]]
        table(("key", "verdict", "alternative text"), lines)
        say(f"{plural(min(limit, len(found)), 'image')} of {len(found):,}")
    if not found:
        raise typer.Exit(Code.EMPTY)


def _cut(text: str) -> str:
    return text if len(text) <= ALT_CHARS_SHOWN else f"{text[:ALT_CHARS_SHOWN]} …"


def rebuild(*, url: Url = None, as_json: Json = False) -> None:
    """Rebuild every row of the table from what the stages wrote, and delete rows of which nothing is left.

    For a table that was lost or restored from a backup: the application keeps it by itself.
    """
    from bucketmq.apps.images.table import rebuild_rows

    with open_bucket(url) as bucket:
        made = bucket.run(rebuild_rows(bucket.run(bucket.api.open())))
    if as_json:
        emit({"images": made})
    else:
        say(f"rebuilt the rows of {plural(made, 'image')}")


GROUP = Group("images", "Images below raw/: thumbnails, verdicts, texts, descriptions.")
GROUP.add("Look", show, "bucketmq images show raw/cat.jpg", "bucketmq images show raw/cat.jpg --json")
GROUP.add("Look", ls, "bucketmq images ls", "bucketmq images ls raw/2026/ --verdict flagged --json")
GROUP.add("Work", rebuild, "bucketmq images rebuild")
GROUP.add_running(
    run=(
        "timeout 4 bucketmq images run --only images-table",
        "bucketmq images run --only images-alt --without-spark --once",
    ),
    rerun=(
        "bucketmq images rerun --stage thumbnails --key raw/cat.jpg",
        "bucketmq images rerun --stage alt --prefix raw/2026/ --dry-run --json",
    ),
)
