"""The tab Queues: what is ready, in flight, delayed and dead, by subscription; looking in, sending, purging."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from fastapi import APIRouter, Request, Response

from bucketmq import aio
from bucketmq.dashboard.site import Site, json_answer, query_of
from bucketmq.dashboard.survey import Flow, Survey, Surveyed
from bucketmq.deliveries import PeekedMessage
from bucketmq.errors import Invalid, NotFound
from bucketmq.events.rule import OWN_QUEUES, rule_of
from bucketmq.metrics.families import subscription_label
from bucketmq.procedures.queues import ACTIONS
from bucketmq.procedures.upkeep.stats import SubscriptionStats
from bucketmq.queue.settings import MAIN
from bucketmq.server.wire import Refusal

PAGE = 50
MESSAGES_MAX = 100
PREVIEW_CHARS = 2_000
SEND_BYTES_MAX = 256 << 10


QUEUE_FIGURES = (
    *("ready", "in_flight", "delayed", "delayed_is_at_least", "dead", "sent", "shards", "advice"),
    *("oldest_ready_seconds", "oldest_dead_seconds"),
)
SUBSCRIPTION_FIGURES = (
    *("name", "ready", "in_flight", "delayed", "holders", "conflict_rate", "advice", "paused"),
    *("oldest_ready_seconds", "next_due_seconds", "idle_seconds"),
)
"""What the page shows as `stats` has it."""

_OWN = (*OWN_QUEUES, ACTIONS)
"""Queues that only BucketMQ itself sends to."""


class Page(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Which queues somebody wants to see."""

    q: str = ""
    """A part of their names."""
    after: str = ""
    """The last name of the page before."""
    limit: int = PAGE

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= PAGE:
            raise Invalid(f"limit must be 1 to {PAGE}, not {self.limit}")


class Look(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Whose messages somebody wants to see."""

    queue: str
    subscription: str = MAIN
    limit: int = 20
    after: str = ""

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= MESSAGES_MAX:
            raise Invalid(f"limit must be 1 to {MESSAGES_MAX}, not {self.limit}")


class Send(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A message to send. The body is text, and JSON if `json` says so."""

    queue: str
    body: str
    json: bool = True
    key: str | None = None
    delay_seconds: float | None = None
    dedup_key: str | None = None


class Purge(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to forget. `confirm` is the queue's name once more: there is no way back."""

    queue: str
    subscription: str
    confirm: str


class Pause(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What to pause or resume: one subscription, or all if it is None."""

    queue: str
    do: Literal["pause", "resume"]
    subscription: str | None = None
    why: str = ""


def routes(site: Site, survey: Survey) -> APIRouter:
    router = APIRouter(prefix="/api")

    @router.get("/queues")
    async def queues(request: Request) -> Response:
        """A page of queues, by name. Only those shown are looked at."""
        caller = site.looker(request)
        page = query_of(request, Page)
        names = [name for name in await site.work(survey.names()) if caller.sees(name) and page.q in name]
        shown = [name for name in names if name > page.after][: page.limit]
        rows = [queue_row(seen, survey.flow(seen.name)) for seen in await site.work(survey.fresh(shown))]
        more = bool(shown) and shown[-1] != names[-1]
        return json_answer(
            {
                "queues": rows,
                "total": len(names),
                "next": shown[-1] if more else None,
                "now": site.bucket.now_seconds,
            }
        )

    @router.get("/queue")
    async def queue(request: Request) -> Response:
        """One queue with its subscriptions, shards, readers and settings."""
        name = request.query_params.get("name", "")
        site.looker(request, name)
        (seen,) = await site.work(survey.fresh([await _existing(site, survey, name)]))
        return json_answer({**queue_row(seen, survey.flow(name), whole=True), "now": site.bucket.now_seconds})

    @router.get("/messages")
    async def messages(request: Request) -> Response:
        """What a subscription has not settled, oldest first, without claiming it."""
        look = query_of(request, Look)
        site.looker(request, look.queue)
        name = await _existing(site, survey, look.queue)
        after = place_of(look.after)
        subscription = await site.work(_subscribed(site.bucket, name, look.subscription))
        found: list[PeekedMessage] = await site.work(subscription.peek(look.limit, after=after))
        return json_answer(
            {
                "messages": [message_row(each) for each in found],
                "next": place_text(found[-1]) if len(found) == look.limit else None,
            }
        )

    @router.post("/send")
    async def send(request: Request) -> Response:
        """Send one message, to a queue that exists."""
        given = await site.body(request, Send, bytes_max=SEND_BYTES_MAX)
        body = _body(given)
        await site.changer(request, "operate", "send", f"queue {given.queue}", queue=given.queue)
        name = await _existing(site, survey, given.queue)
        if name in _OWN:
            raise Refusal(400, f"the queue {name!r} is BucketMQ's own", "send to another one")
        sent = await site.work(
            site.bucket.existing_queue(name).send(
                body, key=given.key or None, delay_seconds=given.delay_seconds, dedup_key=given.dedup_key or None
            )
        )
        survey.forget(name)
        return json_answer({"id": sent.id})

    @router.post("/queues/change")
    async def change(request: Request) -> Response:
        """Pause or resume. Sends go on, and so does what is in flight."""
        given = await site.body(request, Pause)
        how = f"{'all' if given.subscription is None else given.subscription}: {given.why}".removesuffix(": ")
        await site.changer(request, "operate", given.do, f"queue {given.queue}", how=how, queue=given.queue)
        name = await _existing(site, survey, given.queue)
        queue = site.bucket.existing_queue(name)
        if given.do == "pause":
            settings = await site.work(queue.pause(given.why, subscription=given.subscription))
        else:
            settings = await site.work(queue.resume(subscription=given.subscription))
        survey.forget(name)
        return json_answer({"paused": settings.paused or {}})

    @router.post("/purge")
    async def purge(request: Request) -> Response:
        """Forget everything that a subscription has not settled."""
        given = await site.body(request, Purge)
        what = f"queue {given.queue}"
        await site.changer(
            request, "administer", "purge", what, how=f"subscription {given.subscription}", queue=given.queue
        )
        name = await _existing(site, survey, given.queue)
        if given.confirm != name:
            raise Refusal(400, "the name that confirms it is not the queue's", f"write {name}")
        subscription = await site.work(_subscribed(site.bucket, name, given.subscription))
        purged: int = await site.work(subscription.purge())
        survey.forget(name)
        return json_answer({"purged": purged})

    return router


async def _existing(site: Site, survey: Survey, name: str) -> str:
    """The name of a queue that there is. A name that is made up by somebody makes no queue."""
    if name not in await site.work(survey.names()):
        survey.forget_names()
        if name not in await site.work(survey.names()):
            raise Refusal(404, f"there is no queue {name[:100]!r}")
    return name


async def _subscribed(bucket: aio.Bucket, queue: str, subscription: str) -> Any:
    """A subscription that there is: naming one must not make it."""
    found = bucket.existing_queue(queue)
    if subscription == MAIN:
        if not (await found.settings()).main:
            raise NotFound(f"queue {queue} has no subscription main; choose another")
        return found
    if subscription not in {each.name for each in await found.subscriptions()}:
        raise NotFound(f"queue {queue} has no subscription {subscription[:100]!r}")
    return await found.subscription(subscription)


def _body(given: Send) -> Any:
    if not given.json:
        return given.body
    try:
        return msgspec.json.decode(given.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refusal(400, f"the body is not JSON: {error}", "send it as text, or correct it") from None


def queue_row(seen: Surveyed, flow: Flow | None = None, *, whole: bool = False) -> dict[str, Any]:
    """A queue for the page. Rates are per second, and None where nobody has looked before."""
    row: dict[str, Any] = {"name": seen.name, "trouble": seen.trouble, "seen_at": seen.at}
    stats, settings = seen.stats, seen.settings
    if stats is None or settings is None:
        return row
    row |= {
        **{name: getattr(stats, name) for name in QUEUE_FIGURES},
        "rate_in": None if flow is None else round(flow.sent, 3),
        "rate_out": None if flow is None else round(sum(flow.settled.values()), 3),
        "rate_seconds": None if flow is None else round(flow.seconds, 1),
        "damaged": [str(each) for each in stats.damaged],
        "paused": settings.paused or {},
        "subscriptions": [
            _subscription(seen.name, each, None if flow is None else flow.settled.get(each.name), whole=whole)
            for each in stats.subscriptions
            if settings.main or each.name != MAIN
        ],
        "readers": [
            {name: getattr(each, name) for name in ("name", "lag", "idle_seconds", "holds")} for each in stats.readers
        ],
    }
    if whole:
        row["own"] = seen.name in _OWN
        row["settings"] = {
            name: value
            for name, value in msgspec.to_builtins(settings).items()
            if name not in ("format", "fences", "paused")
        }
    return row


def _subscription(queue: str, each: SubscriptionStats, rate: float | None, *, whole: bool) -> dict[str, Any]:
    row = {
        **{name: getattr(each, name) for name in SUBSCRIPTION_FIGURES},
        "series": subscription_label(queue, each.name),
        "rate_out": None if rate is None else round(rate, 3),
        "rule": rule_of(each.name) if queue in OWN_QUEUES else None,
    }
    if whole:
        row["shards"] = msgspec.to_builtins(each.shards)
    return row


def message_row(message: PeekedMessage) -> dict[str, Any]:
    """A message for the page. Its body is a preview: text, whatever is in it."""
    at = message.message.body_at
    body = message.body if at is None else f"a large body of {at.size_bytes:,} bytes, which lies in {at.key}"
    return {
        "id": message.id,
        "key": message.key,
        "headers": dict(message.headers or {}),
        "sent_at": message.message.at,
        "state": message.state,
        "attempts": message.attempts,
        "shard": message.shard,
        "offset": message.offset,
        "body": preview(body),
    }


def preview(body: Any) -> str:
    if isinstance(body, bytes):
        return f"{len(body):,} bytes: {body[: PREVIEW_CHARS // 4].hex(' ')}"
    text = body if isinstance(body, str) else msgspec.json.format(msgspec.json.encode(body)).decode()
    return text if len(text) <= PREVIEW_CHARS else f"{text[:PREVIEW_CHARS]}…"


def place_text(message: PeekedMessage) -> str:
    """Where a page ends, for the request for the next one."""
    return ".".join(str(part) for part in message.place)


def place_of(text: str) -> tuple[int, int, int] | None:
    if not text:
        return None
    parts = text.split(".")
    if len(parts) != 3 or not all(part.isascii() and part.isdecimal() and len(part) <= 16 for part in parts):
        raise Refusal(400, f"{text[:60]!r} is not the end of a page")
    shard, offset, base = (int(part) for part in parts)
    if not shard < 1024 or base > offset:
        raise Refusal(400, f"{text[:60]!r} is not the end of a page")
    return shard, offset, base
