"""The distributed sweep on real executors, beside the one of a single process, on the same history of two buckets.

What happens when somebody dies or somebody else sweeps is tested without Spark, request by request:
`tests/procedures/objects/test_sweep_split.py`.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

import msgspec
from spark.conftest import Inbox

import bucketmq
from bucketmq.chores import sweep
from bucketmq.errors import Invalid
from bucketmq.events.inventory import Manifest


def inventory(root: Path, name: str = "all") -> list[list[Any]]:
    folder = root / "inventory" / "sweeps" / name
    manifest = msgspec.json.decode((folder / "manifest.json").read_bytes(), type=Manifest)
    chunks = [folder / "chunks" / f"{chunk.name}.ndjson" for chunk in manifest.chunks]
    assert manifest.first_to is None and not manifest.position
    return [msgspec.json.decode(line) for chunk in chunks for line in chunk.read_bytes().split()]


def events(bucket: Any) -> list[tuple[str, str, str]]:
    found, positions = [], dict[int, int]()
    while seen := bucket.queue("events").tail(positions):
        found += [(each.body["key"], each.body["kind"], each.body["id"]) for each in seen]
    return sorted(found)


def test_executors_find_what_one_process_finds(inbox: Inbox, tmp_path: Path) -> None:
    here, other = Path(inbox.url), tmp_path / "other"
    for n in range(300):  # nearly all below one prefix
        path = here / (f"big/{n // 100}/{n:04}" if n % 10 else f"p{n:03}/x")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"old")
    for step in range(2):
        if step:
            for n in range(0, 300, 7):
                path = here / f"big/{n // 100}/{n:04}"
                if n % 3 == 0 and path.exists():
                    path.unlink()
                else:
                    path.write_bytes(b"newer")
            (here / "big/1/0111").rename(here / "moved")
        shutil.copytree(here, other, copy_function=shutil.copy2, dirs_exist_ok=True) if not step else _mirror(
            here, other
        )
        alone = bucketmq.connect(str(other))
        one = alone.sweep()
        many = sweep.run(inbox.spark, inbox.url, tasks=4, keys_max=60, range_keys=25)
        assert (many.keys, many.created, many.changed, many.deleted) == (
            one.keys,
            one.created,
            one.changed,
            one.deleted,
        )
        assert many.created > 0 and (not step or (many.deleted > 0 and many.changed > 0))
        assert [item[:1] + item[2:] for item in inventory(here)] == [item[:1] + item[2:] for item in inventory(other)]
        told = [(key, kind) for key, kind, _ in events(inbox.bucket)]
        assert told == [(key, kind) for key, kind, _ in events(alone)]
        alone.close()
    nothing = sweep.run(inbox.spark, inbox.url, tasks=4)
    assert (nothing.created, nothing.changed, nothing.deleted) == (0, 0, 0)
    with pytest.raises(Invalid, match="tasks"):
        sweep.run(inbox.spark, inbox.url, tasks=0)


def _mirror(source: Path, target: Path) -> None:
    """Make users' objects of the target those of the source, times included; leave the bookkeeping alone."""
    own = {"queues", "inventory", "rules", "probe", ".bucketmq"}
    for path in sorted(target.rglob("*")):
        place = path.relative_to(target)
        if place.parts[0] not in own and path.is_file() and not (source / place).exists():
            path.unlink()
    for path in sorted(source.rglob("*")):
        place = path.relative_to(source)
        if place.parts[0] not in own and path.is_file():
            (target / place).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target / place)
