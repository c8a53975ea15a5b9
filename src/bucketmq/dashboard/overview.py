"""The tab Overview: what is stuck, why, since when and what to do about it; and the log of actions.

Made of what is known already (`survey`, `rules`): looking at the overview of many queues is not a request to each.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Literal

import msgspec
from fastapi import APIRouter, Request, Response

from bucketmq import aio
from bucketmq.dashboard.follow import Follower
from bucketmq.dashboard.pipelines import known as pipelines
from bucketmq.dashboard.pipelines import pipeline_row, pipeline_troubles
from bucketmq.dashboard.programs import Programs
from bucketmq.dashboard.rules import Rulebook
from bucketmq.dashboard.site import Kept, Site, json_answer
from bucketmq.dashboard.survey import Survey, Surveyed
from bucketmq.errors import BucketMQError
from bucketmq.events.event import seconds_of
from bucketmq.events.rule import OWN_QUEUES, rule_of
from bucketmq.procedures.queues import ACTIONS, EVENTS
from bucketmq.procedures.upkeep.stats import SubscriptionStats
from bucketmq.queue.settings import MAIN
from bucketmq.server import actions

STUCK_SECONDS = 300.0
"""Ready for so long, a message is late, and its queue is worth a line."""
READER_SECONDS = 600.0
TROUBLES_SHOWN = 100
REASONS_AT_ONCE = 10
"""Dead letters that are read for one answer, to say why they died; the others follow with the next."""
REASON_CHARS = 300
HOW_CHARS = 300
ACTIONS_SHOWN = 50
ACTIONS_BACK_SECONDS = 7 * 86400.0

Level = Literal["bad", "warn"]


class Trouble(msgspec.Struct, frozen=True):
    """Something that needs a person."""

    level: Level
    what: str
    why: str
    cure: str
    since_seconds: float | None
    tab: Literal["queues", "rules", "dead", "pipelines"]
    """Where it can be looked at, and mended."""
    name: str
    """Of the queue, the rule or the pipeline."""


class Reasons:
    """Why the oldest dead letter of each queue died. Read again only when their number has changed."""

    def __init__(self, bucket: aio.Bucket) -> None:
        self._bucket = bucket
        self._known: dict[str, tuple[int, str]] = {}

    async def tell(self, troubles: list[Trouble], known: list[Surveyed]) -> list[Trouble]:
        """The same troubles, with what is known of why letters died. A few requests for each queue that is new."""
        dead = {seen.name: seen.stats.dead for seen in known if seen.stats is not None and seen.stats.dead}
        self._known = {name: each for name, each in self._known.items() if name in dead}
        wanted = [each.name for each in troubles if each.tab == "dead" and self._count(each.name) != dead[each.name]]
        await asyncio.gather(*(self._read(name, dead[name]) for name in wanted[:REASONS_AT_ONCE]))
        return [self._told(each) for each in troubles]

    def _count(self, queue: str) -> int:
        return self._known.get(queue, (0, ""))[0]

    def _told(self, trouble: Trouble) -> Trouble:
        why = self._known.get(trouble.name, (0, ""))[1] if trouble.tab == "dead" else ""
        return msgspec.structs.replace(trouble, why=why) if why else trouble

    async def _read(self, queue: str, dead: int) -> None:
        try:
            letters = await self._bucket.existing_queue(queue).dead_letters.peek(1)
        except BucketMQError:
            letters = []  # the page of dead letters says what is wrong with them
        lines = letters[0].reason.strip().splitlines() if letters else []
        which = "" if dead == 1 else "the oldest: "
        self._known[queue] = dead, f"{which}{lines[-1][:REASON_CHARS]}" if lines else ""


def routes(site: Site, survey: Survey, rulebook: Rulebook, programs: Programs) -> APIRouter:
    router = APIRouter(prefix="/api")
    follower = Follower(site.bucket, ACTIONS, ACTIONS_BACK_SECONDS)
    lines: list[actions.Action] = []

    async def read_actions() -> bool:
        found = actions.read(await follower.read())
        if follower.began_anew:
            lines.clear()
        lines.extend(found)
        del lines[:-ACTIONS_SHOWN]
        return True

    kept = Kept(read_actions)
    reasons = Reasons(site.bucket)

    @router.get("/overview")
    async def overview(request: Request) -> Response:
        """What needs a person, the worst first, and the sums over all queues that the caller sees."""
        caller = site.looker(request)
        names = [name for name in await site.work(survey.names()) if caller.sees(name)]
        known = await site.work(survey.some(names))
        rules = await site.work(rulebook.rules()) if caller.sees(EVENTS) else []
        now = site.bucket.now_seconds
        running = [pipeline_row(each, known, now) for each in await pipelines(site, programs, caller)]
        found = [
            *(each for seen in known for each in queue_troubles(seen)),
            *rule_troubles(rules, now),
            *(unreadable_rule(name) for name in (rulebook.unreadable if caller.sees(EVENTS) else [])),
            *(Trouble("bad", *each[:4], "pipelines", each[4]) for each in pipeline_troubles(running)),
        ]
        found.sort(key=_worst_first)
        return json_answer(
            {
                "troubles": msgspec.to_builtins(await site.work(reasons.tell(found[:TROUBLES_SHOWN], known))),
                "troubles_total": len(found),
                "queues": len(names),
                "seen": len(known),
                "unreadable": sum(seen.stats is None for seen in known),
                "rules": len(rules),
                **sums(known),
                "pipelines": len(running),
                "cost": await site.work(programs.cost()) if "*" in caller.queues else None,
                "now": now,
            }
        )

    @router.get("/badges")
    async def badges(request: Request) -> Response:
        """What the tabs say before anybody opens them."""
        caller = site.looker(request)
        names = [name for name in await site.work(survey.names()) if caller.sees(name)]
        return json_answer({"dead": sums(await site.work(survey.some(names)))["dead"]})

    @router.get("/actions")
    async def recent_actions(request: Request) -> Response:
        """Who changed what lately, the newest first."""
        site.looker(request, ACTIONS)
        await site.work(kept.read())
        newest = sorted(lines, key=lambda each: each.at, reverse=True)
        return json_answer({"actions": [msgspec.to_builtins(_shortened(each)) for each in newest]})

    return router


def _worst_first(trouble: Trouble) -> tuple[bool, bool, float]:
    """What is damaged has no time, and comes before all that does."""
    return trouble.level != "bad", trouble.since_seconds is not None, -(trouble.since_seconds or 0.0)


def _shortened(action: actions.Action) -> actions.Action:
    """As the page shows it: a line may name a thousand dead letters."""
    if len(action.how) <= HOW_CHARS:
        return action
    return msgspec.structs.replace(action, how=f"{action.how[:HOW_CHARS]}…")


def sums(known: list[Surveyed]) -> dict[str, int]:
    readable = [seen.stats for seen in known if seen.stats is not None]
    return {name: sum(getattr(each, name) for each in readable) for name in ("ready", "in_flight", "delayed", "dead")}


def queue_troubles(seen: Surveyed) -> Iterator[Trouble]:
    """What is wrong with one queue."""
    stats, name = seen.stats, seen.name
    if stats is None:
        cure = f"see what is damaged: bucketmq doctor --deep {name}"
        yield Trouble("bad", f"queue {name} cannot be read", seen.trouble, cure, None, "queues", name)
        return
    for damage in stats.damaged:
        cure = f"bucketmq doctor --deep {name}, then --mend"
        yield Trouble("bad", f"queue {name} is damaged", str(damage), cure, None, "queues", name)
    if stats.dead:
        what = f"{stats.dead:,} dead {'letter' if stats.dead == 1 else 'letters'} in queue {name}"
        why = "they ran out of attempts, or were buried"
        yield Trouble("bad", what, why, "look at why, cure that, then redrive", stats.oldest_dead_seconds, "dead", name)
    for each in stats.subscriptions:
        is_main = seen.settings is not None and seen.settings.main
        if each.name != MAIN or is_main:
            yield from _subscription_troubles(name, each)
    for reader in stats.readers:
        if reader.holds and reader.lag and reader.idle_seconds > READER_SECONDS:
            what = f"reader {reader.name} of queue {name} is {reader.lag:,} messages behind"
            why = "it has noted no progress, and what it has not read is kept for it"
            cure = f"start its query again, or forget it: bucketmq spark forget {name} {reader.name}"
            yield Trouble("warn", what, why, cure, reader.idle_seconds, "queues", name)


def _subscription_troubles(queue: str, each: SubscriptionStats) -> Iterator[Trouble]:
    oldest = each.oldest_ready_seconds
    if queue in OWN_QUEUES and rule_of(each.name) is not None:
        return  # `rule_troubles` knows more of it
    if not each.ready:
        return
    if each.paused is not None:
        what = f"subscription {each.name} of queue {queue} is paused, and {_are(each.ready, 'message')} ready"
        yield Trouble("warn", what, each.paused, "resume it", oldest, "queues", queue)
        return
    if oldest is None or oldest < STUCK_SECONDS:
        return
    what = f"{_are(each.ready, 'message')} ready in queue {queue}" + ("" if each.name == MAIN else f", for {each.name}")
    if each.holders:
        why = f"{each.holders} {'process works' if each.holders == 1 else 'processes work'} on it and cannot keep up"
        yield Trouble("warn", what, why, "add workers", oldest, "queues", queue)
    else:
        why = "nobody has received from it in the last ten minutes"
        yield Trouble("bad", what, why, "start a worker", oldest, "queues", queue)


def rule_troubles(rules: list[dict[str, Any]], now: float) -> Iterator[Trouble]:
    """What is wrong with rules."""
    for rule in rules:
        name, oldest = rule["name"], rule["oldest_ready_seconds"]
        if rule["paused"] is not None:
            waiting = rule["ready"] + rule["delayed"]
            if waiting:
                what = f"rule {name} is paused, and {_are(waiting, 'event')} kept for it"
                yield Trouble("warn", what, rule["paused"], "resume it", oldest, "rules", name)
        elif rule["failures_in_a_row"] and rule["failures_in_a_row"] >= min(3, rule["breaker_failures"]):
            what = f"rule {name} failed {rule['failures_in_a_row']:,} times in a row"
            cure = "cure the receiver; what failed is tried again by itself"
            since = max(0.0, now - seconds_of(rule["failing_since"]))
            yield Trouble("bad", what, rule["last_error"], cure, since, "rules", name)
        elif rule["ready"] and oldest is not None and oldest > STUCK_SECONDS:
            what = f"{_are(rule['ready'], 'event')} ready for rule {name}"
            why = "no process runs rules" if not rule["holders"] else "the processes that run rules cannot keep up"
            yield Trouble("bad", what, why, "bucketmq rules run, or bucketmq serve", oldest, "rules", name)


def unreadable_rule(name: str) -> Trouble:
    cure = f"restore rules/{name}.json from a copy; or delete that object, and add the rule again"
    return Trouble("bad", f"rule {name} cannot be read", "nothing is delivered for it", cure, None, "rules", name)


def _are(count: int, noun: str) -> str:
    return f"1 {noun} is" if count == 1 else f"{count:,} {noun}s are"
