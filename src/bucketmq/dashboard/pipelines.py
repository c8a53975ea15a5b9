"""The tab Pipelines: how far each is behind, how fast it is, how long a batch takes, what failed, whether it runs.

Made of the reports that pipelines leave in the bucket, with and without Spark (`programs`), and of the queues they read
(`survey`). A process that does nothing writes nothing: one that is quiet is idle, unless messages wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from fastapi import APIRouter, Request, Response

from bucketmq.dashboard.programs import Programs
from bucketmq.dashboard.queues import Page
from bucketmq.dashboard.site import Site, json_answer, query_of
from bucketmq.dashboard.survey import Survey, Surveyed
from bucketmq.events.rule import OWN_QUEUES, rule_of
from bucketmq.log.reports import Point, Process, Report
from bucketmq.server.people import Caller

LIVE_SECONDS = 60.0
"""One that wrote so lately is at work: a process writes every 15 seconds while it does something."""
SILENT_SECONDS = 120.0
"""One that has messages to read and wrote nothing for so long hangs, or was killed."""

State = Literal["runs", "idle", "silent", "failed", "stopped"]


class Standing(msgspec.Struct, frozen=True):
    """Whether a pipeline runs, since when, and what is wrong."""

    state: State
    since_seconds: float
    error: str = ""


def routes(site: Site, programs: Programs, survey: Survey) -> APIRouter:
    router = APIRouter(prefix="/api")

    @router.get("/pipelines")
    async def pipelines(request: Request) -> Response:
        """A page of pipelines, by name. Only the queues of those shown are looked at."""
        caller = site.looker(request)
        page = query_of(request, Page)
        found = {each.name: each for each in await known(site, programs, caller) if page.q in each.name}
        names = sorted(found)
        shown = [name for name in names if name > page.after][: page.limit]
        queues = sorted({found[name].queue for name in shown} - {""})
        there = set(await site.work(survey.names()))
        seen = await site.work(survey.fresh([name for name in queues if name in there]))
        now = site.bucket.now_seconds
        rows = [pipeline_row(found[name], seen, now) for name in shown]
        more = bool(shown) and shown[-1] != names[-1]
        return json_answer(
            {
                "pipelines": rows,
                "total": len(names),
                "next": shown[-1] if more else None,
                "readers": unreported(survey, caller, set(found)) if not page.after and not page.q else [],
                "now": now,
            }
        )

    return router


async def known(site: Site, programs: Programs, caller: Caller) -> list[Report]:
    """The pipelines that a caller sees. One that reads no queue is for those who see everything."""
    return [
        each
        for each in await site.work(programs.read())
        if each.kind == "pipeline" and (caller.sees(each.queue) if each.queue else "*" in caller.queues)
    ]


def pipeline_row(report: Report, seen: list[Surveyed], now: float) -> dict[str, Any]:
    """A pipeline for the page."""
    processes = sorted(report.processes.values(), key=lambda each: -each.at)
    lag = lag_of(report, next((each for each in seen if each.name == report.queue), None), now)
    standing = standing_of(report, lag, now)
    points = sorted((point for each in processes for point in each.recent), key=lambda point: point.at)
    last = points[-1] if points else None
    done = report.done
    return {
        "name": report.name,
        "queue": report.queue,
        **msgspec.to_builtins(standing),
        "lag": lag,
        "rows": done.rows,
        "retried": done.retried,
        "dead": done.dead,
        "began": report.began,
        "rows_per_second": speed(processes, now) if standing.state == "runs" else 0.0,
        "batch_seconds": None if last is None else last.batch_seconds,
        "last_at": max((each.at for each in processes), default=report.began),
        "points": [msgspec.to_builtins(point) for point in points],
        "processes": [process_row(each, now) for each in processes],
    }


def process_row(process: Process, now: float) -> dict[str, Any]:
    return {
        "place": process.place,
        "began": process.began,
        "at": process.at,
        "ended": process.ended,
        "error": process.error,
        "live": process.ended is None and now - process.at <= LIVE_SECONDS,
        "rows": process.done.rows,
        "dead": process.done.dead,
    }


def standing_of(report: Report, lag: int | None, now: float) -> Standing:
    """By the processes that the report lists."""
    open_ = [each for each in report.processes.values() if each.ended is None]
    at_work = [each for each in open_ if now - each.at <= LIVE_SECONDS]
    if at_work:
        return Standing("runs", max(0.0, now - min(each.began for each in at_work)))
    ended = max((each for each in report.processes.values() if each.ended is not None), key=_end, default=None)
    quiet = max(open_, key=lambda each: each.at, default=None)
    if quiet is not None and (ended is None or quiet.at > _end(ended)):
        since = max(0.0, now - quiet.at)
        return Standing("silent" if lag and since > SILENT_SECONDS else "idle", since)
    if ended is None:
        return Standing("stopped", max(0.0, now - report.began))
    return Standing("failed" if ended.error else "stopped", max(0.0, now - _end(ended)), ended.error)


def _end(process: Process) -> float:
    return process.ended if process.ended is not None else process.at


def speed(processes: list[Process], now: float) -> float:
    """Rows a second over the last minute, of all processes together."""
    recent: list[Point] = [
        point for each in processes for point in each.recent if now - point.at <= LIVE_SECONDS and each.ended is None
    ]
    if not recent:
        return 0.0
    began = min(point.at - point.seconds for point in recent)
    return round(sum(point.rows for point in recent) / max(1.0, max(point.at for point in recent) - began), 1)


def lag_of(report: Report, seen: Surveyed | None, now: float) -> int | None:
    """Messages that it has not dealt with: by its reader or its subscription, or else as it reported just now. What it
    reported long ago is not about today."""
    if seen is not None and seen.stats is not None:
        for reader in seen.stats.readers:
            if reader.name == report.name:
                return reader.lag
        for each in seen.stats.subscriptions:
            rule = rule_of(each.name) if report.queue in OWN_QUEUES else None
            if report.name in (each.name, rule):
                return each.ready + each.in_flight + each.delayed
    newest = max(report.processes.values(), key=lambda each: each.at, default=None)
    if newest is None or now - newest.at > LIVE_SECONDS or not newest.recent or newest.recent[-1].lag < 0:
        return None
    return newest.recent[-1].lag


def unreported(survey: Survey, caller: Caller, names: set[str]) -> list[dict[str, Any]]:
    """Readers of queues that were looked at, whose programs report nothing."""
    return [
        {"name": reader.name, "queue": seen.name, "lag": reader.lag, "idle_seconds": reader.idle_seconds}
        for seen in survey.all_known()
        if caller.sees(seen.name) and seen.stats is not None
        for reader in seen.stats.readers
        if reader.name not in names
    ]


def pipeline_troubles(rows: list[dict[str, Any]]) -> Iterator[tuple[str, str, str, float, str]]:
    """What is wrong with pipelines: what, why, what to do about it, since when, and whose."""
    for row in rows:
        name, lag, since = row["name"], row["lag"], row["since_seconds"]
        waiting = f", and {lag:,} {'message waits' if lag == 1 else 'messages wait'} for it" if lag else ""
        if row["state"] == "failed":
            cure = "cure that, then start it again; it goes on where it was"
            yield f"pipeline {name} failed{waiting}", row["error"], cure, since, name
        elif row["state"] == "silent":
            why = "it has written no figures since, though there is something to do: it hangs, or was killed"
            yield f"pipeline {name} is silent{waiting}", why, "look at its log, and start it again", since, name
        elif row["state"] == "stopped" and lag:
            yield f"pipeline {name} is stopped{waiting}", "it was ended in order", "start it again", since, name
