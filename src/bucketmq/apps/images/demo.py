"""The demo of images: pictures that it draws itself, through all stages on a folder, without Spark, with the page.

It draws, waits until every image has its row, replaces one and deletes one, and tells what became of each. Exits with 1
if something is not as it must be.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Annotated, Any

import msgspec
import typer

from bucketmq.apps.images.drawing import encoded, gallery, notice
from bucketmq.apps.images.places import STAGES, TABLE, facts_key, thumb_key
from bucketmq.apps.images.thumbnails import SIZES
from bucketmq.cli.exits import end
from bucketmq.cli.options import Json
from bucketmq.cli.output import emit, emit_text, flush, say, table
from bucketmq.client import Bucket, connect
from bucketmq.crew import Crew, Member, Scene
from bucketmq.errors import NotFound, Unavailable
from bucketmq.procedures.queues import EVENTS

WAIT_SECONDS = 100.0
"""For all stages of all images, with models that are loaded first."""
LOOK_SECONDS = 0.2
REPLACED, DELETED, BROKEN = "raw/2026/hills.jpg", "raw/2026/mountain.png", "raw/2026/broken.jpg"


def demo(
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything running until Ctrl-C.")] = False,
    as_json: Json = False,
) -> None:
    """See images work: pictures drawn here get thumbnails, verdicts, texts and descriptions, on a local folder.

    Needs no account, no server and no Java. Ends by itself in about a minute; exits with 1 if something is missing.
    """
    began = time.monotonic()
    with Scene("images") as scene:
        # A key that is set here is not spent on made-up pictures.
        environment = {"BUCKETMQ_URL": scene.url, "IMAGES_DESCRIBER": "embedded"}
        with Crew(scene.folder, environment) as crew, connect(scene.url) as bucket:
            part = crew.start("images", "--json", "apps", "run", "images", "--without-spark", "--port-page", "0")
            _until(part, lambda: "all parts are ready" in _printed(part), "the parts of the application")
            say(f"{time.monotonic() - began:5.1f} s  all parts are ready; putting images")
            problems = _watch(bucket, part, began)
            page = _page(part)
            if as_json:
                emit({"good": not problems, "problems": problems, "page": page, "images": _rows(bucket)})
            else:
                _tell(bucket, problems)
                emit_text(
                    f"page    {page}"
                    if keep
                    else f"The page was at {page.partition('#')[0]}; --keep leaves it running."
                )
                if keep:
                    emit_text(f"bucket  {scene.url}")
                    emit_text("Everything goes on running. Ctrl-C ends it.")
            flush()
            if keep:
                with contextlib.suppress(KeyboardInterrupt):
                    while part.running:
                        time.sleep(LOOK_SECONDS)
        scene.good = not problems
    end(scene)


def _watch(bucket: Bucket, part: Member, began: float) -> list[str]:
    """Put, replace and delete; what is not as it must be in the end."""
    images = gallery()
    for key, data in images.items():
        bucket.put(key, data)
    readable = set(images) - {BROKEN}
    _until(part, lambda: _complete(bucket) == readable, "rows of all images")
    say(
        f"{time.monotonic() - began:5.1f} s  {len(readable)} images are through all stages; replacing one, deleting one"
    )
    bucket.put(REPLACED, encoded(notice(), "PNG"))
    bucket.delete(DELETED)
    after = readable - {DELETED}
    _until(part, lambda: _complete(bucket) == after and bool(_row(bucket, REPLACED).get("text")), "the changes")
    say(f"{time.monotonic() - began:5.1f} s  what was derived of both is up to date")
    problems = [f"{key} is left of a deleted image" for key in _derived(DELETED) if bucket.look(key) is not None]
    problems += [f"{key} is missing" for image in sorted(after) for key in _derived(image) if bucket.look(key) is None]
    if len(_dead(bucket)) != len(STAGES):
        problems.append(f"the broken image made {len(_dead(bucket))} dead letters, not {len(STAGES)}")
    return problems


def _derived(key: str) -> list[str]:
    return [*(thumb_key(key, size) for size in SIZES), *(facts_key(key, stage) for stage in STAGES)]


def _rows(bucket: Bucket) -> list[dict[str, Any]]:
    try:
        rows: list[dict[str, Any]] = bucket.table(TABLE).read().to_pylist()
    except NotFound:
        return []
    return sorted(rows, key=lambda row: str(row["key"]))


def _row(bucket: Bucket, key: str) -> dict[str, Any]:
    return next((row for row in _rows(bucket) if row["key"] == key), {})


def _complete(bucket: Bucket) -> set[str]:
    """Images whose row is of the version that is there now. A row that is left of a deleted one counts, too."""
    found = set()
    for row in _rows(bucket):
        there = bucket.look(row["key"])
        if there is None or (row["complete"] and str(there.version).strip('"') == row["version"]):
            found.add(str(row["key"]))
    return found


def _dead(bucket: Bucket) -> list[str]:
    return [each.reason for each in bucket.existing_queue(EVENTS).dead_letters.peek(100)]


def _tell(bucket: Bucket, problems: list[str]) -> None:
    lines = [(row["key"], row["verdict"], row["alt"]) for row in _rows(bucket)]
    table(("key", "verdict", "alternative text"), lines)
    for reason in sorted(set(_dead(bucket))):
        emit_text(f"dead letter  {BROKEN}: {reason}")
    for problem in problems:
        emit_text(f"WRONG        {problem}")
    if not problems:
        emit_text("Every image has its thumbnails and facts, and nothing is left of the deleted one.")


def _until(part: Member, holds: Callable[[], bool], what: str) -> None:
    give_up = time.monotonic() + WAIT_SECONDS
    while not holds():
        if not part.running:
            raise Unavailable(f"the application ended while waiting for {what}: {part.last_words()}")
        if time.monotonic() > give_up:
            raise Unavailable(f"waited {WAIT_SECONDS:.0f} s for {what}; its log ends with: {part.last_words()}")
        time.sleep(LOOK_SECONDS)


def _printed(part: Member) -> str:
    return part.log.read_text(errors="replace") if part.log.exists() else ""


class _Page(msgspec.Struct):
    page: str


def _page(part: Member) -> str:
    """The link that the application told first."""
    for line in _printed(part).splitlines():
        with contextlib.suppress(msgspec.MsgspecError):
            return msgspec.json.decode(line, type=_Page).page
    return ""
