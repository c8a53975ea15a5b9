"""Looking: what is where, what was, what could be promoted, and how two versions differ. Changes nothing."""

from __future__ import annotations

from typing import Any

import msgspec

from bucketmq.api.bucket import BucketApi
from bucketmq.apps.artifacts import environments, keys, manifest, places, promotion
from bucketmq.apps.artifacts.environments import Report, State
from bucketmq.apps.artifacts.keys import Trust
from bucketmq.apps.artifacts.manifest import MANIFEST, Difference, Manifest, Opened
from bucketmq.apps.artifacts.promotion import Gate
from bucketmq.apps.artifacts.verify import read_manifest, trusted_manifest
from bucketmq.errors import BucketMQError
from bucketmq.procedures.abreast import abreast
from bucketmq.procedures.objects.listing import all_items
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Now, Procedure


class Cell(msgspec.Struct, frozen=True):
    """One artifact in one environment."""

    environment: str
    name: str
    current: State | None
    expires_at: str
    over: bool
    """Whether agents refuse the pointer because it has ended."""
    previous: str
    """The version that a rollback goes back to."""
    reports: tuple[Report, ...]
    past: tuple[State, ...]
    problem: str = ""
    """Why it cannot be believed, if it cannot."""

    @property
    def health(self) -> str:
        """What agents say of what is current, in a few words."""
        if self.current is None:
            return "untrusted"
        about = [each for each in self.reports if each.counter == self.current.counter]
        counts = {state: sum(each.state == state for each in about) for state in ("refused", "failed", "healthy")}
        return ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "no report"


def overview(bus: BucketApi, trust: Trust, *, name: str = "") -> Procedure[list[Cell]]:
    """Every artifact in every environment. One LIST, and a GET, a LIST and a GET for each agent for each of them."""
    bucket = yield from bus.open()
    found = yield from environments.pointers(bucket)
    order = [each.name for each in trust.environments]
    wanted = [(environment, each) for environment, each in found if not name or each == name]
    wanted.sort(key=lambda where: (where[1], order.index(where[0]) if where[0] in order else len(order)))
    cells = yield from abreast([_cell(bucket, trust, environment, each) for environment, each in wanted])
    for cell in cells:
        if isinstance(cell, BucketMQError):
            raise cell
    return [cell for cell in cells if isinstance(cell, Cell)]


def _cell(bucket: OpenBucket, trust: Trust, environment: str, name: str) -> Procedure[Cell | None]:
    try:
        pointed = yield from environments.read_pointer(bucket, trust, environment, name)
    except BucketMQError as error:
        return Cell(environment, name, None, "", False, "", (), (), str(error))
    if pointed is None:
        return None
    reports = yield from environments.read_reports(bucket, trust, environment, name)
    pointer = pointed.pointer
    over = keys.is_over(pointer.expires_at, (yield from Now()))
    previous = pointer.previous.version if pointer.previous is not None else ""
    return Cell(environment, name, pointer.current, pointer.expires_at, over, previous, tuple(reports), pointer.past)


class Build(msgspec.Struct, frozen=True):
    """A version that was published."""

    name: str
    version: str
    stored_at: float
    """When its manifest was written."""


def builds(bus: BucketApi, name: str = "") -> Procedure[list[Build]]:
    """What was published, the newest first. One LIST for each 999 files of all versions."""
    bucket = yield from bus.open()
    found: list[Build] = []
    place = f"{places.BUILDS}{manifest.check_name(name)}/" if name else places.BUILDS
    for each in (yield from all_items(bucket, place)):
        parts = each.key.split("/")
        if len(parts) == 4 and parts[3] == MANIFEST:
            found.append(Build(parts[1], parts[2], each.stored_at))
    return sorted(found, key=lambda each: (-each.stored_at, each.name, each.version))


def difference(bus: BucketApi, name: str, before: str, after: str) -> Procedure[tuple[Manifest, Manifest, Difference]]:
    """How two versions differ by their manifests. Two GETs; signatures are not looked at."""
    bucket = yield from bus.open()
    opened: list[Opened] = []
    for version in (before, after):
        opened.append((yield from read_manifest(bucket, places.build(name, version), name, version)))
    old, new = (each.manifest for each in opened)
    return old, new, manifest.difference(old, new)


def gate_of(
    bus: BucketApi, trust: Trust, name: str, version: str, environment: str, *, promoter: str, by: str = ""
) -> Procedure[Gate]:
    """Whether a version may be promoted now, and what is missing."""
    bucket = yield from bus.open()
    policy = trust.environment(environment)
    opened, _ = yield from trusted_manifest(bucket, trust, places.build(name, version), name, version)
    return (yield from promotion.gate(bucket, trust, policy, opened, promoter=promoter, by=by))


def cell_row(cell: Cell) -> dict[str, Any]:
    """A cell as JSON."""
    return {**msgspec.to_builtins(cell), "health": cell.health}
