"""What the dashboard shows, as plain values: the flow, the queues, the rules and the dead letters of a bucket.

Each figure is made at most once at a time, however many people look, and the dearer it is the less often.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar
from urllib.parse import urlsplit

import msgspec

from bucketmq import aio
from bucketmq.api.bucket import BucketApi
from bucketmq.apps.moderation.desk.flow import MINUTES, WINDOW_SECONDS, Flow
from bucketmq.apps.moderation.desk.follow import Follower
from bucketmq.apps.moderation.places import ESCALATED
from bucketmq.apps.moderation.queues import AUDIT, submitted
from bucketmq.apps.moderation.record import OUTCOMES, PENDING, REVIEWED
from bucketmq.deliveries import DeadLetter
from bucketmq.errors import NotFound
from bucketmq.events.rule import Destination, Rule, ToQueue, ToWatcher, Webhook
from bucketmq.procedures.claiming.redrive import Redriven
from bucketmq.procedures.objects.keys import full_key
from bucketmq.procedures.queues import DELIVERIES, EVENTS
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.rules.journal import Attempt
from bucketmq.procedures.upkeep.stats import QueueStats, SubscriptionStats
from bucketmq.procedures.verbs import list_all
from bucketmq.queue.settings import MAIN
from bucketmq.server.place import bus_of, run, seconds_now

COUNT_PAGES_MAX = 20
"""Objects are counted by listing them; beyond so many pages a count is told as "at least"."""
FRESH_SECONDS = 2.0
COST_FACTOR = 10.0
"""What took a second to find out is good for ten."""
LETTERS_SHOWN = 200
PREVIEW_CHARS = 2_000
ERROR_CHARS = 4_000
RULES_MAX = 1_000

Result = TypeVar("Result")


class Kept(Generic[Result]):
    """A figure that is made again when it is old, by one caller for all."""

    def __init__(self, make: Callable[[], Awaitable[Result]]) -> None:
        self._make = make
        self._lock = asyncio.Lock()
        self._until = 0.0
        self._result: Result | None = None

    async def read(self) -> Result:
        async with self._lock:
            began = time.monotonic()
            if self._result is None or began >= self._until:
                self._result = await self._make()
                ended = time.monotonic()
                self._until = ended + max(FRESH_SECONDS, COST_FACTOR * (ended - began))
            return self._result

    def forget(self) -> None:
        self._until = 0.0


class _Tried(msgspec.Struct):
    """What the journal says of a rule since the window began."""

    done: int = 0
    failed: int = 0
    buried: int = 0
    last_error: str = ""
    last_error_at: str = ""
    last_done_at: str = ""


class Figures:
    """The figures of one bucket."""

    def __init__(self, bucket: aio.Bucket) -> None:
        self._bucket = bucket
        self._flow = Flow()
        self._tried: OrderedDict[str, _Tried] = OrderedDict()
        self._audit = Follower(bucket, AUDIT, WINDOW_SECONDS)
        self._events = Follower(bucket, EVENTS, WINDOW_SECONDS)
        self._journal = Follower(bucket, DELIVERIES, WINDOW_SECONDS)
        self._logs = Kept(self._read_logs)
        self._counts = Kept(self._count)
        self._stats = Kept(self._queue_stats)
        self._rules = Kept(bucket.rules.list)

    async def flow(self) -> dict[str, Any]:
        """Counts, rates and latencies."""
        await self._logs.read()
        counts = await self._counts.read()
        now = seconds_now(self._bucket)
        return {
            **counts,
            "minutes": MINUTES,
            "rates": self._flow.rates(now),
            "latencies": msgspec.to_builtins(self._flow.latencies(now)),
        }

    async def queues(self) -> list[dict[str, Any]]:
        """Every queue with its subscriptions and readers."""
        return [_queue_row(stats, main) for stats, main in await self._stats.read()]

    async def rules(self) -> list[dict[str, Any]]:
        """Every rule, how its subscription stands, and what its deliveries came to."""
        await self._logs.read()
        rules = await self._rules.read()
        stats = next((stats for stats, _ in await self._stats.read() if stats.queue == EVENTS), None)
        standing = {each.name: each for each in stats.subscriptions} if stats is not None else {}
        return [_rule_row(rule, standing.get(rule.subscription), self._tried.get(rule.name)) for rule in rules]

    async def badges(self) -> dict[str, int]:
        """What the tabs say before anybody opens them."""
        return {"dead": sum(stats.dead for stats, _ in await self._stats.read())}

    async def dead(self) -> list[dict[str, Any]]:
        """The queues that have dead letters, with the oldest of these."""
        found = []
        for stats, _ in await self._stats.read():
            if stats.dead:
                letters = await self._bucket.existing_queue(stats.queue).dead_letters.peek(LETTERS_SHOWN)
                found.append({"queue": stats.queue, "dead": stats.dead, "letters": [_letter_row(x) for x in letters]})
        return found

    async def redrive(self, queue: str, ids: list[str] | None) -> Redriven:
        """Send dead letters again: these, or all that there are now."""
        if queue not in await self._bucket.queues():
            raise NotFound(f"there is no queue {queue[:100]!r}")
        done = await self._bucket.existing_queue(queue).dead_letters.redrive(ids=ids)
        self._stats.forget()
        return done

    async def _read_logs(self) -> bool:
        lines = await self._audit.read()
        # Read after the lines: the event that led to one of them is there by then.
        self._flow.add(lines, await self._events.read())
        for body in await self._journal.read():
            try:
                attempt = msgspec.convert(body, Attempt)
            except msgspec.ValidationError:
                continue
            self._flow.add_attempt(attempt)
            self._note(attempt)
        return True

    def _note(self, attempt: Attempt) -> None:
        tried = self._tried.setdefault(attempt.rule, _Tried())
        while len(self._tried) > RULES_MAX:
            self._tried.popitem(last=False)
        if attempt.outcome == "done":
            tried.done += 1
            tried.last_done_at = max(tried.last_done_at, attempt.at)
            return
        tried.failed += 1
        tried.buried += attempt.outcome == "bury"
        if attempt.at >= tried.last_error_at:
            tried.last_error = _last_line(attempt.reason)[:500] or f"status {attempt.status}"
            tried.last_error_at = attempt.at

    async def _count(self) -> dict[str, Any]:
        return await run(self._bucket, _counts(bus_of(self._bucket)))

    async def _queue_stats(self) -> list[tuple[QueueStats, bool]]:
        names = await self._bucket.queues()
        return list(await asyncio.gather(*(self._one_queue(name) for name in names)))

    async def _one_queue(self, name: str) -> tuple[QueueStats, bool]:
        queue = self._bucket.existing_queue(name)
        stats = await queue.stats()
        return stats, (await queue.settings()).main


def _counts(bus: BucketApi) -> Procedure[dict[str, Any]]:
    """One LIST for each 999 objects, up to a limit, and a few requests more."""
    bucket = yield from bus.open()
    sent, unjudged = yield from submitted(bucket)
    counts, at_least = {}, []
    for prefix in (PENDING, *OUTCOMES, REVIEWED, ESCALATED):
        entries, more = yield from list_all(full_key(bucket, prefix), pages_max=COUNT_PAGES_MAX)
        counts[prefix] = len(entries)
        if more:
            at_least.append(prefix)
    return {"submitted": sent, "unjudged": unjudged, "objects": counts, "at_least": at_least}


def _queue_row(stats: QueueStats, main: bool) -> dict[str, Any]:
    return {
        "name": stats.queue,
        "sent": stats.sent,
        "dead": stats.dead,
        "delayed": stats.delayed,
        "delayed_is_at_least": stats.delayed_is_at_least,
        "shards": stats.shards,
        "subscriptions": [_standing(each) for each in stats.subscriptions if main or each.name != MAIN],
        "readers": [
            {"name": each.name, "lag": each.lag, "idle_seconds": each.idle_seconds, "holds": each.holds}
            for each in stats.readers
        ],
    }


def _standing(each: SubscriptionStats) -> dict[str, Any]:
    return {
        "name": each.name,
        "ready": each.ready,
        "in_flight": each.in_flight,
        "delayed": each.delayed,
        "oldest_ready_seconds": each.oldest_ready_seconds,
        "advice": each.advice,
    }


def _rule_row(rule: Rule, standing: SubscriptionStats | None, tried: _Tried | None) -> dict[str, Any]:
    return {
        "name": rule.name,
        "filter": rule.filter,
        "to": _where(rule.to),
        "paused": rule.paused,
        "ready": standing.ready if standing is not None else 0,
        "in_flight": standing.in_flight if standing is not None else 0,
        "delayed": standing.delayed if standing is not None else 0,
        "oldest_ready_seconds": standing.oldest_ready_seconds if standing is not None else None,
        **msgspec.to_builtins(tried or _Tried()),
    }


def _where(to: Destination) -> str:
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


def _letter_row(letter: DeadLetter) -> dict[str, Any]:
    at = letter.message.body_at
    body = letter.body if at is None else f"a large body, which lies in {at.key}"
    return {
        "id": letter.id,
        "key": letter.key,
        "sent_at": letter.message.at,
        "subscription": letter.subscription,
        "reason": letter.reason[:500],
        "failures": [{**each, "error": each["error"][-ERROR_CHARS:]} for each in letter.failures[-10:]],
        "body": _preview(body),
    }


def _preview(body: Any) -> str:
    if isinstance(body, bytes):
        return f"{len(body):,} bytes: {body[: PREVIEW_CHARS // 4].hex(' ')}"
    text = body if isinstance(body, str) else msgspec.json.format(msgspec.json.encode(body)).decode()
    return text if len(text) <= PREVIEW_CHARS else f"{text[:PREVIEW_CHARS]}…"


def _last_line(text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
