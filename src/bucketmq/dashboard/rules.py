"""The tab Rules: where events go, what became of them, what is tried again when; pausing, resuming, replaying.

Attempts come from the journal (the queue `deliveries`), which every process that runs rules writes: so the page shows
the same whoever delivers. Whether a breaker is open is only known to the process that delivers; from outside it shows
as failures in a row, as many as open it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
from fastapi import APIRouter, Request, Response

from bucketmq import aio
from bucketmq.dashboard.follow import Follower
from bucketmq.dashboard.site import Kept, Site, json_answer
from bucketmq.dashboard.survey import Survey
from bucketmq.events.rule import Destination, Rule, ToQueue, ToWatcher, Webhook
from bucketmq.procedures.queues import DELIVERIES, EVENTS
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.rules import registry
from bucketmq.procedures.rules.journal import Attempt
from bucketmq.procedures.upkeep.stats import SubscriptionStats
from bucketmq.server.place import bus_of, run

WINDOW_SECONDS = 3600.0
"""How far back the journal is read when somebody looks for the first time."""
RULES_MAX = 1_000
ATTEMPTS_KEPT = 50
REPLAY_SECONDS = 5.0
"""A replay that takes longer than this goes on in the background."""


class Tried(msgspec.Struct):
    """What the journal says of a rule since the window began."""

    done: int = 0
    failed: int = 0
    buried: int = 0
    failures_in_a_row: int = 0
    failing_since: str = ""
    """When the first of these failed; empty if none did."""
    last_error: str = ""
    last_error_at: str = ""
    last_done_at: str = ""
    attempts: deque[Attempt] = msgspec.field(default_factory=lambda: deque(maxlen=ATTEMPTS_KEPT))


class Rulebook:
    """What is known of the rules of one bucket. Belongs to one event loop."""

    def __init__(self, bucket: aio.Bucket, survey: Survey) -> None:
        self._bucket = bucket
        self._survey = survey
        self._tried: OrderedDict[str, Tried] = OrderedDict()
        self._journal = Follower(bucket, DELIVERIES, WINDOW_SECONDS)
        self._read = Kept(self._read_journal)
        self._rules = Kept(self._read_rules)
        self._known: dict[str, registry.Kept] = {}
        self.unreadable: list[str] = []
        """Rules that are damaged, or of a later format, when they were last read."""
        self.since = 0.0
        """When the first attempt may have been made that is counted, by the store's clock."""

    async def rules(self) -> list[dict[str, Any]]:
        """Every rule, how its subscription stands, and what its deliveries came to."""
        await self._read.read()
        rules = await self._rules.read()
        standing = await self._standing() if rules else {}
        return [rule_row(rule, standing.get(rule.subscription), self._tried.get(rule.name)) for rule in rules]

    async def attempts(self, rule: str) -> list[dict[str, Any]]:
        """The last attempts of a rule, the newest first."""
        await self._read.read()
        tried = self._tried.get(rule)
        return [] if tried is None else [msgspec.to_builtins(each) for each in reversed(tried.attempts)]

    def forget(self) -> None:
        self._rules.forget()
        self._survey.forget(EVENTS)

    async def _read_rules(self) -> list[Rule]:
        """One LIST, and a GET for each rule that has changed."""
        unreadable: set[str] = set()

        def work() -> Procedure[dict[str, registry.Kept]]:
            opened = yield from bus_of(self._bucket).open()
            return (yield from registry.list_rules(opened, self._known, unreadable=unreadable))

        self._known = await run(self._bucket, work())
        self.unreadable = sorted(unreadable)
        return [each.rule for each in self._known.values() if each.rule.removed_at is None]

    async def _standing(self) -> dict[str, SubscriptionStats]:
        (seen,) = await self._survey.fresh([EVENTS])
        return {} if seen.stats is None else {each.name: each for each in seen.stats.subscriptions}

    async def _read_journal(self) -> bool:
        bodies = await self._journal.read()
        if self._journal.began_anew:
            self._tried.clear()
            self.since = self._bucket.now_seconds - WINDOW_SECONDS
        for body in bodies:
            try:
                self._note(msgspec.convert(body, Attempt))
            except msgspec.ValidationError:
                continue
        return True

    def _note(self, attempt: Attempt) -> None:
        tried = self._tried.setdefault(attempt.rule, Tried())
        while len(self._tried) > RULES_MAX:
            self._tried.popitem(last=False)
        tried.attempts.append(attempt)
        if attempt.outcome == "done":
            tried.done += 1
            tried.failures_in_a_row = 0
            tried.failing_since = ""
            tried.last_done_at = max(tried.last_done_at, attempt.at)
            return
        tried.failed += 1
        tried.failures_in_a_row += 1
        tried.failing_since = tried.failing_since or attempt.at
        tried.buried += attempt.outcome == "bury"
        if attempt.at >= tried.last_error_at:
            tried.last_error = said(attempt)
            tried.last_error_at = attempt.at


class Change(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    do: Literal["pause", "resume"]
    why: str = ""


class Replay(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which events to deliver again: of objects below a prefix as they are now, or of the last so many seconds."""

    name: str
    prefix: str | None = None
    since_seconds: float | None = None
    dry_run: bool = False

    def __post_init__(self) -> None:
        if (self.prefix is None) == (self.since_seconds is None):
            raise ValueError("say either prefix or since_seconds")
        if self.since_seconds is not None and not 0 < self.since_seconds <= 31 * 86400:
            raise ValueError("since_seconds must be more than 0 and at most 31 days")


def routes(site: Site, rulebook: Rulebook) -> APIRouter:
    router = APIRouter(prefix="/api/rules")

    @router.get("")
    async def rules(request: Request) -> Response:
        site.looker(request, EVENTS)
        found = await site.work(rulebook.rules())
        now = site.bucket.now_seconds
        return json_answer({"rules": found, "unreadable": rulebook.unreadable, "since": rulebook.since, "now": now})

    @router.get("/attempts")
    async def attempts(request: Request) -> Response:
        site.looker(request, EVENTS)
        return json_answer({"attempts": await site.work(rulebook.attempts(request.query_params.get("name", "")))})

    @router.post("/change")
    async def change(request: Request) -> Response:
        """Pause or resume a rule. What happens meanwhile is kept."""
        given = await site.body(request, Change)
        await site.changer(request, "operate", given.do, f"rule {given.name}", how=given.why, queue=EVENTS)
        rules = site.bucket.rules
        if given.do == "pause":
            rule = await site.work(rules.pause(given.name, given.why))
        else:
            rule = await site.work(rules.resume(given.name))
        rulebook.forget()
        return json_answer({"name": rule.name, "paused": rule.paused})

    @router.post("/replay")
    async def replay(request: Request) -> Response:
        """Deliver events again, to this rule alone. One that takes long goes on after the answer."""
        given = await site.body(request, Replay)
        how = f"below {given.prefix!r}" if given.prefix is not None else f"of the last {given.since_seconds:g} s"
        if given.dry_run:
            site.looker(request, EVENTS)
        else:
            await site.changer(request, "operate", "replay", f"rule {given.name}", how=how, queue=EVENTS)
        since = None if given.since_seconds is None else site.bucket.now_seconds - given.since_seconds
        await site.work(site.bucket.rules.get(given.name))
        work = site.bucket.rules.replay(given.name, prefix=given.prefix, since=since, dry_run=given.dry_run)
        done = await site.long_work(work, REPLAY_SECONDS, "replay", f"rule={given.name}")
        return json_answer({"goes_on": True} if done is None else {"goes_on": False, **msgspec.to_builtins(done)})

    return router


def rule_row(rule: Rule, standing: SubscriptionStats | None, tried: Tried | None) -> dict[str, Any]:
    tried = tried or Tried()
    row: dict[str, Any] = {
        "name": rule.name,
        "filter": rule.filter,
        "to": where(rule.to),
        "paused": rule.paused,
        **{name: getattr(standing, name, 0) for name in ("ready", "in_flight", "delayed", "holders")},
        **{name: getattr(standing, name, None) for name in ("oldest_ready_seconds", "next_due_seconds")},
        "breaker_open": isinstance(rule.to, Webhook) and tried.failures_in_a_row >= rule.policy.breaker.failures,
        "breaker_failures": rule.policy.breaker.failures,
    }
    counted = msgspec.structs.asdict(tried)
    del counted["attempts"]
    return row | counted


def where(to: Destination) -> str:
    """A destination as it may be shown: the path of a webhook is often a secret."""
    match to:
        case Webhook(url=url, format=format):
            parts = urlsplit(url)
            port = f":{parts.port}" if parts.port is not None else ""
            return f"{parts.scheme}://{parts.hostname}{port}/… ({format})"
        case ToQueue(queue=queue):
            return f"queue {queue}"
        case ToWatcher():
            return "a watcher"


def said(attempt: Attempt) -> str:
    """Why an attempt failed, in a line."""
    lines = [line for line in attempt.reason.splitlines() if line.strip()]
    return lines[-1][:500] if lines else f"status {attempt.status}"
