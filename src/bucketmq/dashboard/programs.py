"""What programs report of themselves (`log.reports`), as this dashboard last read it; and this server's own report.

Read when somebody looks, with one LIST and a GET for each report that has changed. A program that reports nothing is
not known here: what is shown says so.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any
from urllib.parse import urlsplit

from bucketmq import aio
from bucketmq.dashboard.site import Kept
from bucketmq.engines.meter import Requests
from bucketmq.log.reports import Report, Spent
from bucketmq.metrics.report import Reporter, spent_of
from bucketmq.pricing import cost, prices_of
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.upkeep import reports
from bucketmq.server.place import bus_of, run

FRESH_SECONDS = 10.0
"""How old what is shown may be: a process writes every 15 seconds at most."""
REPORT_SECONDS = 300.0
"""How often this server reports itself, at most."""
NAME = "dashboard"

PROVIDERS = {"s3": "s3", "gs": "gcs", "az": "azure"}
"""Whose prices the requests are shown at, by the URL's scheme. A folder costs nothing."""


class Programs:
    """The programs of one bucket. Belongs to one event loop."""

    def __init__(self, bucket: aio.Bucket) -> None:
        self._bucket = bucket
        self._known: reports.Known = {}
        self._read = Kept(self._read_all, fresh_seconds=FRESH_SECONDS)
        self._own = Reporter(bucket, "server", NAME, every_seconds=REPORT_SECONDS)

    async def read(self) -> list[Report]:
        """Every report, by kind and name."""
        return await self._read.read()

    def forget(self) -> None:
        self._read.forget()

    def touch(self) -> None:
        """This server did something that is worth a report."""
        self._own.touch()

    @contextlib.asynccontextmanager
    async def reporting(self) -> AsyncIterator[None]:
        """Report what this server does while the block runs."""
        self._own.start()
        try:
            yield
        finally:
            await asyncio.to_thread(self._own.close)

    async def cost(self) -> dict[str, Any]:
        """What requests came to at list prices: this server's since it started, and what programs report."""
        provider = PROVIDERS.get(urlsplit(self._bucket.api.where).scheme)
        found = await self.read()
        own = spent_of(self._bucket.requests)
        rows: list[dict[str, Any]] = [
            {
                "kind": each.kind,
                "name": each.name,
                "requests": _count(spent),
                "usd": _dollars(spent, provider),
                "since": each.began,
            }
            for each in found
            if (spent := self._spent(each)) is not None
        ]
        rows.sort(key=lambda row: row["requests"], reverse=True)
        everything = own
        for each in found:
            everything = everything + (self._spent(each) or Spent())
        return {
            "requests": _count(own),
            "usd": _dollars(own, provider),
            "prices": None if provider is None else prices_of(provider).name,
            "programs": rows,
            "all_requests": _count(everything),
            "all_usd": _dollars(everything, provider),
            "uncounted": [each.name for each in found if each.done.spent is None],
        }

    def _spent(self, report: Report) -> Spent | None:
        """What the processes of a program spent, this one left out: its own count is newer."""
        spent = report.before.spent
        for process_id, each in report.processes.items():
            if process_id != self._own.id and each.done.spent is not None:
                spent = each.done.spent + (spent or Spent())
        return spent

    async def _read_all(self) -> list[Report]:
        self._known = await run(self._bucket, self._read_changed())
        return [report for _, (_, _, report) in sorted(self._known.items())]

    def _read_changed(self) -> Procedure[reports.Known]:
        return (yield from reports.read_all((yield from bus_of(self._bucket).open()), self._known))


def _count(spent: Spent) -> int:
    return spent.writes + spent.reads + spent.lists


def _dollars(spent: Spent, provider: str | None) -> float | None:
    if provider is None:
        return None
    return cost(Requests(create=spent.writes, get=spent.reads, list=spent.lists), provider)
