"""The contact sheet: rows of the table `images`, filtered and cut into pages. Read again when the table has changed."""

from __future__ import annotations

from typing import Any

import msgspec

from bucketmq import aio
from bucketmq.apps.images.places import STAGES, TABLE
from bucketmq.errors import Invalid, NotFound

LIMIT_MAX = 200
COLUMNS = (
    "key",
    "version",
    "complete",
    "width",
    "height",
    "format",
    "frames",
    "animated",
    "verdict",
    "score",
    "alt",
    "alt_source",
    "kind",
    "thumbnails_version",
    "policy_version",
)
"""What a sheet needs; the text of all images would be read for nothing."""
BLURRED = ("flagged", "unsure", "unknown", None)
"""Verdicts whose images are shown blurred. Who has not been judged yet is not shown either."""


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """Which images, from where on. Keys come in their order."""

    verdict: str = ""
    """One of the verdicts, `unjudged`, or empty for all."""
    q: str = ""
    """A part of the key or of the alternative text."""
    after: str = ""
    limit: int = 60

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= LIMIT_MAX:
            raise Invalid(f"limit must be 1 to {LIMIT_MAX}")


class Found(msgspec.Struct, frozen=True):
    items: list[dict[str, Any]]
    next: str | None
    matching: int
    total: int
    verdicts: dict[str, int]
    generation: int


class Sheet:
    """The rows of one bucket, kept while the table does not change. Belongs to one event loop."""

    def __init__(self, bucket: aio.Bucket) -> None:
        self._bucket = bucket
        self._version: int | None = None
        self._rows: list[dict[str, Any]] = []

    async def find(self, wanted: Wanted) -> Found:
        """A page. One GET; if the table has changed, one for each of its files."""
        await self._refresh()
        said = wanted.q.lower()
        rows = [row for row in self._rows if _matches(row, wanted.verdict, said)]
        behind = [row for row in rows if row["key"] > wanted.after]
        items = [{**row, "blurred": _blurred(row)} for row in behind[: wanted.limit]]
        verdicts: dict[str, int] = {}
        for row in self._rows:
            verdicts[row["verdict"] or "unjudged"] = verdicts.get(row["verdict"] or "unjudged", 0) + 1
        following = items[-1]["key"] if len(behind) > wanted.limit else None
        return Found(items, following, len(rows), len(self._rows), verdicts, self._version or 0)

    async def one(self, key: str) -> dict[str, Any]:
        """All that is known of an image. `NotFound` if it is not in the table."""
        found = (await self._bucket.table(TABLE).read(keys=[key])).to_pylist()
        if not found:
            raise NotFound(f"no image {key!r} is in the table; it may have been deleted, or waits to be looked at")
        row: dict[str, Any] = found[0]
        row["blurred"] = _blurred(row)
        row["stages"] = [
            {"stage": each, "version": row[f"{each}_version"], "current": row[f"{each}_version"] == row["version"]}
            for each in STAGES
        ]
        return row

    async def _refresh(self) -> None:
        try:
            snapshot = await self._bucket.table(TABLE).snapshot()
        except NotFound:
            self._version, self._rows = None, []
            return
        if snapshot.version != self._version:
            rows = (await self._bucket.table(TABLE).read(columns=COLUMNS, at=snapshot)).to_pylist()
            self._rows = sorted(rows, key=lambda row: row["key"])
            self._version = snapshot.version


def _blurred(row: dict[str, Any]) -> bool:
    """A verdict on another version than the one that is shown does not count."""
    return row["verdict"] in BLURRED or row["policy_version"] != row["thumbnails_version"]


def _matches(row: dict[str, Any], verdict: str, said: str) -> bool:
    if verdict and (row["verdict"] or "unjudged") != verdict:
        return False
    return not said or said in row["key"].lower() or said in (row["alt"] or "").lower()
