"""What images cost in CPU time of one core, beside bare Pillow, and in what order text comes. `python -m bench.images`.

CPU time, not wall time: what else the machine does matters less. Bare Pillow is what a short script would do: `draft`,
`thumbnail`, `save`, for each size from the file; no orientation, no colours, no limits. The pipeline on a bucket in
memory is measured too, beside the bare function in it.

    python -m bench.images                         # the picture is drawn here
    python -m bench.images --json
    python -m bench.images --pages FOLDER          # pages FOLDER/*.tif with their text in FOLDER/*.txt
"""

from __future__ import annotations

import argparse
import difflib
import io
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec
from PIL import Image

from bench.machine import this_machine
from bucketmq.apps.images.alt import MakeUses, described
from bucketmq.apps.images.drawing import landscape
from bucketmq.apps.images.facts import LoadModel
from bucketmq.apps.images.policy import judged
from bucketmq.apps.images.thumbnails import METHOD, QUALITY, Settings, pipeline, thumbnails
from bucketmq.models.nsfw import nsfw_scorer

REPEATS = 8
TWELVE_MEGAPIXELS = (4000, 3000)


class Measured(msgspec.Struct, frozen=True):
    """One thing that was measured."""

    what: str
    milliseconds: float
    """CPU time of an image, the median."""
    target_milliseconds: float | None = None
    ratio: float | None = None
    """How many times what bare Pillow takes in the same run."""


def cpu_milliseconds(work: Callable[[], object], repeats: int) -> float:
    work()
    found = []
    for _ in range(repeats):
        began = time.process_time()
        work()
        found.append((time.process_time() - began) * 1000)
    return sorted(found)[len(found) // 2]


def bare(data: bytes, sizes: Sequence[int], *, from_largest: bool = False) -> None:
    """What a short script would do."""
    image = None
    for size in sorted(sizes, reverse=True):
        if image is None or not from_largest:
            image = Image.open(io.BytesIO(data))
            image.draft("RGB", (size, size))
        image.thumbnail((size, size))
        image.save(io.BytesIO(), "WEBP", quality=QUALITY, method=METHOD)


def measure(data: bytes, repeats: int) -> list[Measured]:
    found = []

    def add(what: str, work: Callable[[], object], target: float | None = None, beside: float | None = None) -> float:
        took = cpu_milliseconds(work, repeats)
        ratio = None if beside is None else round(took / beside, 2)
        found.append(Measured(what, round(took, 1), target, ratio))
        return took

    one, three = Settings(sizes=(256,)), Settings()
    alone = add("bare Pillow, 256", lambda: bare(data, one.sizes))
    add("thumbnails, 256", lambda: thumbnails(data, one), 40.0, alone)
    each = add("bare Pillow, 256, 800, 1600, each from the file", lambda: bare(data, three.sizes))
    largest = add("bare Pillow, the same from the largest", lambda: bare(data, three.sizes, from_largest=True))
    add("thumbnails, 256, 800, 1600", lambda: thumbnails(data, three), 150.0, largest)
    add("thumbnails, 256, 800, 1600, beside each from the file", lambda: thumbnails(data, three), 150.0, each)
    whole = cpu_milliseconds(lambda: thumbnails(data, three), repeats)
    found.append(_piped(data, repeats, whole))
    judge, uses = LoadModel(load=nsfw_scorer)(), MakeUses(describer="embedded")()
    row = {"key": "raw/a.jpg", "content": data, "content_version": "1", "version": "1"}
    add(f"policy, {judge.model.model}", lambda: judged(data, judge))
    add("alt, embedded", lambda: described(row, uses))
    return found


def _piped(data: bytes, repeats: int, beside: float) -> Measured:
    """The pipeline on a bucket in memory: events claimed, lineage kept, objects written and reported."""
    import bucketmq

    with bucketmq.connect("memory://") as bucket:
        made = pipeline(Settings(), bytes_max=1 << 30)
        source: Any = made.source
        bucket.watch(source.filter, name=made.name, start="beginning")(made.watcher(bucket))
        for number in range(repeats):
            bucket.put(f"raw/{number}.jpg", data)
        began = time.process_time()
        bucket.run_watchers(stop_when_empty=True, signals=False)
        took = (time.process_time() - began) * 1000 / repeats
    return Measured("the pipeline of it, in a watcher", round(took, 1), None, round(took / beside, 2))


class Page(msgspec.Struct, frozen=True):
    """How much of a page is read in order: characters that match the truth in its order, of all."""

    page: str
    characters: int
    by_height: float
    in_reading_order: float
    seconds: float


def read_pages(folder: Path) -> list[Page]:
    from bucketmq.apps.images.text import read
    from bucketmq.models.ocr import RapidOcr

    uses, found = LoadModel(load=RapidOcr)(), []
    for path in sorted(folder.glob("*.tif")):
        truth = _characters(path.with_suffix(".txt").read_text())
        began = time.process_time()
        after = read(path.read_bytes(), uses).text
        seconds = time.process_time() - began
        with patch("bucketmq.models.ocr.in_reading_order", list):
            before = read(path.read_bytes(), uses).text
        found.append(Page(path.name, len(truth), _share(before, truth), _share(after, truth), round(seconds, 1)))
    return found


def _characters(text: str) -> str:
    return "".join(text.split())


def _share(text: str, truth: str) -> float:
    matcher = difflib.SequenceMatcher(None, _characters(text), truth, autojunk=False)
    return round(sum(block.size for block in matcher.get_matching_blocks()) / len(truth), 3)


def main(words: Sequence[str]) -> int:
    options = argparse.ArgumentParser(prog="python -m bench.images", description=__doc__)
    options.add_argument("--json", action="store_true", help="one JSON value on standard output")
    options.add_argument("--repeats", type=int, default=REPEATS)
    options.add_argument("--pages", type=Path, help="a folder with pages and their text")
    options.add_argument("--megapixels", type=float, default=12.0)
    given = options.parse_args(words)
    scale = (given.megapixels / 12.0) ** 0.5
    size = (round(TWELVE_MEGAPIXELS[0] * scale), round(TWELVE_MEGAPIXELS[1] * scale))
    out = io.BytesIO()
    landscape(1, size).save(out, "JPEG", quality=88)
    found = measure(out.getvalue(), given.repeats)
    pages = [] if given.pages is None else read_pages(given.pages)
    if given.json:
        report = {"machine": msgspec.to_builtins(this_machine()), "jpeg_bytes": len(out.getvalue()), "size": size}
        print(json.dumps({**report, "measured": msgspec.to_builtins(found), "pages": msgspec.to_builtins(pages)}))
        return 0
    print(f"JPEG of {size[0]} x {size[1]}, {len(out.getvalue()):,} bytes; ms of CPU, median of {given.repeats}")
    for each in found:
        target = "" if each.target_milliseconds is None else f"target {each.target_milliseconds:.0f}"
        ratio = "" if each.ratio is None else f"x {each.ratio:.2f}"
        print(f"{each.what:<56}{each.milliseconds:>8.1f} ms  {ratio:<8}{target}")
    for page in pages:
        print(
            f"{page.page:<24}{page.characters:>6} characters, in order {page.by_height:.1%} by height, "
            f"{page.in_reading_order:.1%} in reading order, {page.seconds} s"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
