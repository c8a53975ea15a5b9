"""The router agent: watches `pending/`, moves each record where it belongs, and sees to it that it stays there.

Two rules of the event bus drive it, so what it has not done yet outlives it, a failing record holds up no other, and
any number of routers may run. `moderation-route` decides on what appears below `pending/`. `moderation-settle` looks at
what appears below the outcomes: a router that died in the midst of a move may have left a copy that its post's register
does not want there. A third task does the chores that reviewers left behind.

`Webhook` is for buckets whose provider posts notifications: it makes events durable and answers at once; the rules
above do the rest, however long it takes. What is decided, and how, is `posts`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from bucketmq import aio
from bucketmq.api.bucket import BucketApi
from bucketmq.apps.moderation import notice, posts, register
from bucketmq.apps.moderation.ids import id_at
from bucketmq.apps.moderation.queues import CHORES
from bucketmq.apps.moderation.record import OUTCOMES, PENDING
from bucketmq.apps.moderation.routing import STANDARD, Thresholds
from bucketmq.apps.moderation.settings import ModerationSettings
from bucketmq.changes import AsyncChanges
from bucketmq.errors import Invalid
from bucketmq.events.parse.fields import decode
from bucketmq.outcomes import Done, Outcome, Retry
from bucketmq.procedures.abreast import abreast, kept_apart
from bucketmq.procedures.objects.metadata import Cause
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.rules.notifier import Notifier
from bucketmq.procedures.working.work import failure_text
from bucketmq.server.access import Guard, make_access
from bucketmq.server.background import Tasks, wait_for
from bucketmq.server.callers import proxies_of
from bucketmq.server.metrics import Counters
from bucketmq.server.place import bus_of, run
from bucketmq.server.receive import Receiver
from bucketmq.server.settings import ServerSettings
from bucketmq.server.wire import (
    Receive,
    Refusal,
    Scope,
    Send,
    answer,
    check_content,
    headers_of,
    leaves_unread,
    read_body,
    refuse,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from fastapi import FastAPI

    from bucketmq.server.run import Listening

ROUTE_RULE = "moderation-route"
SETTLE_RULE = "moderation-settle"
_APPEARED = 'kind IN ("created", "changed", "moved")'
ROUTE_FILTER = f'WHERE `key` REGEXP "^{PENDING}" AND {_APPEARED}'
SETTLE_FILTER = f'WHERE `key` REGEXP "^({"|".join(OUTCOMES)})" AND {_APPEARED}'

RETRY_SECONDS = (1.0, 5.0, 30.0, 120.0, 600.0, 3600.0, 7200.0, 14400.0, 28800.0)
"""Half a day and more; what has not worked by then is a dead letter, to be redriven when its cause is cured."""

BATCH = 100
"""Posts that are routed together."""
CONCURRENCY = 2
LEASE_SECONDS = 15.0
"""Routing a post takes a second at most; what a router that died had in hand should not wait for a minute."""
CHORES_SECONDS = 10.0
CHORES_AT_A_TIME = 100

logger = logging.getLogger("bucketmq")

Told = Callable[[posts.RoutedPost], None]
"""Called with each record that was routed."""


def watch(
    bucket: aio.Bucket, *, thresholds: Thresholds = STANDARD, counters: Counters | None = None, told: Told | None = None
) -> None:
    """Register the two handlers on a bucket, for `run_watchers`; begins with what was told before."""
    bus, counted = bus_of(bucket), counters or Counters()
    # Whether the object is still there is seen when it is read: asking before would be one request more.
    options: dict[str, Any] = {
        "start": "beginning",
        "gone": "deliver",
        "retry_seconds": RETRY_SECONDS,
        "concurrency": CONCURRENCY,
        "lease_seconds": LEASE_SECONDS,
    }

    @bucket.watch(ROUTE_FILTER, name=ROUTE_RULE, batch=BATCH, **options)
    async def route(changes: AsyncChanges) -> list[Outcome]:
        records = [posts.Appeared(change.key, change.cause) for change in changes]
        routed = await run(bucket, posts.route_many(bus, records, thresholds=thresholds))
        for each in routed:
            if isinstance(each, Exception):
                continue
            counted.add("posts_routed_total", outcome="gone" if each is None else each.outcome or "superseded")
            if each is not None and told is not None:
                told(each)
        return [_outcome(each) for each in routed]

    @bucket.watch(SETTLE_FILTER, name=SETTLE_RULE, batch=BATCH, **options)
    async def settle(changes: AsyncChanges) -> list[Outcome]:
        settling = [kept_apart(settle_where(bus, change.key, cause=change.cause)) for change in changes]
        return [_outcome(each) for each in await run(bucket, abreast(settling))]


def _outcome(end: object) -> Outcome:
    """One that failed is tried again by itself."""
    return Retry(failure_text(end)) if isinstance(end, Exception) else Done()


def settle_where(bus: BucketApi, key: str, *, cause: Cause) -> Procedure[None]:
    """See whether an object belongs where it appeared. One GET if it does."""
    id = next((id for prefix in OUTCOMES if (id := id_at(prefix, key)) is not None), None)
    if id is None:
        return  # an object of another program, which no post has
    bucket = yield from bus.open()
    found = yield from register.read_register(bucket, id)
    if found is not None and found.outcome is not None and not key.startswith(found.outcome):
        yield from posts.settle(bus, id, cause=cause)


class Router:
    """What one process runs: the two watchers, the notices, and the chores."""

    def __init__(
        self,
        bucket: aio.Bucket,
        settings: ModerationSettings,
        *,
        counters: Counters | None = None,
        told: Told | None = None,
        stop_seconds: float = 30.0,
    ) -> None:
        self._bucket = bucket
        self._settings = settings
        self._tasks = Tasks(counters or Counters(), stop_seconds)
        self._notifiers: dict[str, Notifier] = {}
        watch(bucket, thresholds=settings.thresholds, counters=counters, told=told)

    async def start(self) -> None:
        """Make the rules and begin. The rule of the notices first, so that nothing is flagged before it is there."""
        await self._set_up()
        self._tasks.spawn("watchers", self._watch)
        self._tasks.spawn("chores", self._do_chores)
        if self._settings.review_url is not None:
            self._tasks.spawn("notices", self._notify)

    async def stop(self) -> None:
        """Finish what is in hand; the rest waits in the bucket."""
        self._tasks.stopping.set()
        for notifier in list(self._notifiers.values()):
            notifier.stop()
        await self._tasks.end()

    async def run_once(self) -> None:
        """Route, settle and report everything that is there now, then end."""
        await self._set_up()
        await self._bucket.run_watchers(ROUTE_RULE, SETTLE_RULE, stop_when_empty=True, signals=False)
        await self._chores()
        if self._settings.review_url is not None:
            await self._bucket.notify(only=[notice.NOTICE_RULE], stop_when_empty=True, signals=False)

    async def _set_up(self) -> None:
        await run(self._bucket, notice.set_up(bus_of(self._bucket), self._settings))

    async def _watch(self) -> None:
        await self._bucket.run_watchers(ROUTE_RULE, SETTLE_RULE, signals=False, started=self._started("watchers"))

    async def _notify(self) -> None:
        await self._bucket.notify(only=[notice.NOTICE_RULE], signals=False, started=self._started("notices"))

    def _started(self, name: str) -> Callable[[Notifier], None]:
        def started(notifier: Notifier) -> None:
            self._notifiers[name] = notifier
            if self._tasks.stopping.is_set():
                notifier.stop()

        return started

    async def _do_chores(self) -> None:
        while not await wait_for(self._tasks.stopping, CHORES_SECONDS):
            await self._chores()

    async def _chores(self) -> None:
        """Settle the posts whose reviewers may have died before they did so."""
        queue, bus = self._bucket.queue(CHORES), bus_of(self._bucket)
        while deliveries := list(await queue.receive(CHORES_AT_A_TIME)):
            for delivery in deliveries:
                try:
                    await run(self._bucket, posts.settle(bus, delivery.body["settle"]))
                except (Invalid, KeyError, TypeError) as error:
                    await delivery.bury(f"no chore of moderation: {error}")
                except Exception as error:
                    logger.warning("action=chore_failed id=%s", delivery.id, exc_info=True)
                    await delivery.retry(f"{type(error).__name__}: {error}"[:500])
                else:
                    await delivery.ack()
            await queue.flush()


class Webhook:
    """`POST /webhook` as the demo has it, an ASGI app to mount: events are durable before it answers.

    200 `{"status": "ok"}`; 400 for what cannot be read; 401 `{"error": "unauthorized"}`; 500
    `{"error": "processing failed"}` if the events could not be stored, for the sender to repeat them. Repeats are
    harmless. It answers within eight seconds, whatever the bucket does: Tigris gives up after ten.
    """

    def __init__(
        self,
        bucket: aio.Bucket,
        *,
        bearer: Sequence[str] = (),
        basic: Sequence[str] = (),
        no_auth: bool = False,
        buckets: Sequence[str] = (),
        trusted_proxies: Sequence[str] = (),
        counters: Counters | None = None,
    ) -> None:
        access = make_access(bearer=bearer, basic=basic, no_auth=no_auth)
        self._settings = ServerSettings(access=access, buckets=tuple(buckets), notify=False, files=False)
        self._guard = Guard(access, proxies=proxies_of(trusted_proxies))
        self._counters = counters or Counters()
        self._receiver = Receiver(bucket, self._settings, self._counters)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise Invalid(f"a webhook speaks HTTP, not {scope['type']}")
        try:
            await self.respond(scope, receive)
            await answer(send, 200, {"status": "ok"})
        except Refusal as refusal:
            await refuse(receive, send, refusal, {"error": refusal.error})

    async def respond(self, scope: Scope, receive: Receive) -> None:
        """Store what is posted, or raise a `Refusal`."""
        headers, settings = headers_of(scope), self._settings
        if scope["method"] != "POST":
            raise Refusal(405, "method not allowed", headers={"allow": "POST"})
        if settings.access.no_auth:
            self._guard.check_local(scope)
        await self._guard.admit(scope, close=leaves_unread(headers, settings.body_bytes_max))
        check_content(headers)
        body = await read_body(headers, receive, bytes_max=settings.body_bytes_max, seconds=settings.body_seconds)
        try:
            await self._receiver.take("auto", headers, body)
        except Refusal as refusal:
            if refusal.status >= 500:
                raise Refusal(500, "processing failed") from None
            raise Refusal(400, refusal.error if _is_json(body) else "invalid json") from None

    def close(self) -> None:
        self._receiver.close()


def _is_json(body: bytes) -> bool:
    try:
        decode(body)
    except Invalid:
        return False
    return True


def make_app(
    bucket: aio.Bucket, settings: ModerationSettings, *, buckets: Sequence[str] = (), told: Told | None = None
) -> FastAPI:
    """The router with its webhook, health and metrics, for one bucket, which the caller closes when the app has ended.

    Without webhook secrets only this machine may post to it.
    """
    from bucketmq.apps.moderation.ingest import server_settings
    from bucketmq.server.app import Parts, add_pages, bare_app

    secrets = settings.webhook_secrets
    proxies = settings.trusted_proxies
    parts = Parts(bucket, server_settings(secrets, trusted_proxies=proxies))
    webhook = Webhook(
        bucket,
        bearer=secrets,
        no_auth=not secrets,
        buckets=buckets,
        trusted_proxies=proxies,
        counters=parts.counters,
    )
    router = Router(bucket, settings, counters=parts.counters, told=told, stop_seconds=parts.settings.stop_seconds)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with parts.lifespan(app):
            await router.start()
            try:
                yield
            finally:
                await router.stop()
                webhook.close()

    app = bare_app("BucketMQ moderation: router", "Moves judged posts where they belong.", lifespan)
    app.state.parts = parts
    add_pages(app, parts)
    app.add_route("/webhook", webhook, methods=["POST"])  # type: ignore[arg-type]  # an ASGI app is one too
    return app


async def serve(
    bucket: aio.Bucket,
    settings: ModerationSettings,
    *,
    host: str = "127.0.0.1",
    buckets: Sequence[str] = (),
    told: Told | None = None,
    listening: Listening = lambda _: None,
) -> None:
    """Route until SIGTERM or SIGINT, then finish what is in hand. Closing the bucket is the caller's."""
    from bucketmq.server.run import check_host, listen, server_of

    app = make_app(bucket, settings, buckets=buckets, told=told)
    own = app.state.parts.settings
    check_host(own, host)
    await bucket.open()
    with listen(host, settings.port_router) as listener:
        server = server_of(app, own.stop_seconds, listening, proxies=proxies_of(own.trusted_proxies))
        await server.serve(sockets=[listener])
