"""A watcher's handler as a webhook endpoint: the same function that pulls, called by posted events.

```python
@bucket.watch('WHERE `key` REGEXP "^pending/"')
async def route(change): ...

app.mount("/hooks/route", endpoint(route, bucket, bearer=[token]))        # POST to /hooks/route/, with the last slash
app.add_route("/hooks/route", endpoint(route, bucket, bearer=[token]))    # or under exactly this path
```

The handler is given the same `change`, after the same filter and the same look whether the object is still there. What
is different is who keeps count: the sender repeats what failed, and may repeat what did not, so a handler must bear
being called twice with one `change.id`; `seen="bucket"` makes that rare.

Plain ASGI: needs no framework. Reports no events; `bucketmq serve` does that.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Callable, Sequence
from typing import Any, Literal, get_args
from urllib.parse import quote
from weakref import WeakValueDictionary

from bucketmq import outcomes
from bucketmq.api.bucket import BucketApi
from bucketmq.errors import BucketMQError, Invalid
from bucketmq.events import filters
from bucketmq.events.event import ObjectEvent
from bucketmq.events.filters import Filter
from bucketmq.events.formats import ERROR_CHARS_MAX
from bucketmq.events.parse import Parsed, below, parse
from bucketmq.events.parse.fields import decode
from bucketmq.events.rule import Policy
from bucketmq.events.signing import ID_HEADER
from bucketmq.log.layout import is_bookkeeping
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.rules.examine import examine
from bucketmq.queue.settings import check_name
from bucketmq.rulebook import WATCHER_POLICY
from bucketmq.server.access import Access, Guard, make_access
from bucketmq.server.place import AnyBucket, bus_of, now_of, run
from bucketmq.server.seen import SeenIds
from bucketmq.server.settings import BODY_BYTES_MAX, BODY_SECONDS
from bucketmq.server.wire import (
    Receive,
    Refusal,
    Scope,
    Send,
    answer,
    check_content,
    headers_of,
    leaves_unread,
    loggable,
    refuse,
)

RULE_HEADER = "bucketmq-rule"
"""What our own notifier says about itself; its events already have the keys that users see."""

DONE: tuple[int, object] = (200, {"status": "ok"})

NAME_CHARS_MAX = 200
"""Of a part of a key."""

IdsKept = Literal["nowhere", "bucket"]
"""Where the ids of requests that were done are kept."""

logger = logging.getLogger("bucketmq")

Handler = Callable[[Any], Any]


def endpoint(
    handler: Handler,
    bucket: AnyBucket,
    *,
    signing: Sequence[str] = (),
    bearer: Sequence[str] = (),
    basic: Sequence[str] = (),
    no_auth: bool = False,
    seen: IdsKept = "nowhere",
    name: str | None = None,
) -> Endpoint:
    """An ASGI app that calls `handler` with a change for each event that is posted to it.

    It reads what our rules send (`tigris`, `s3`, `cloudevents`) and what Tigris and others send themselves. A caller
    shows one of the secrets; with `no_auth` you must make sure yourself that nobody else can call.

    Answers 200 `{"status": "ok"}` when all is done, 500 `{"error": "processing failed"}` when something failed, 400 for
    a body that cannot be read, 401 for anybody else. Our own rules are told more: 200 `{"failed": [{"id", "error"}]}`
    when some of several failed, and repeat only these. Tigris and others would take any 200 for the whole batch.
    Returning `Retry` or `Release` counts as failed. `Bury` counts as done: there are no dead letters here, so it is
    only logged. An exception after the object was found to be gone or changed counts as done too.

    With `seen="bucket"` the `webhook-id` of a request that was done is kept in the bucket for two to four days, and a
    repeat is answered without calling the handler, also after a restart: two GETs and one PUT more for each request.
    A process that dies between the handler's end and that PUT still has it called again. `name` tells handlers of one
    bucket apart; a watcher has one, and so has a function of a module.
    """
    access = make_access(signing=signing, bearer=bearer, basic=basic, no_auth=no_auth)
    return Endpoint(handler, bucket, access, seen, name)


class Endpoint:
    """An ASGI app. Make one with `endpoint`."""

    def __init__(self, handler: Handler, bucket: AnyBucket, access: Access, seen: IdsKept, name: str | None) -> None:
        if not callable(handler):
            raise Invalid(f"an endpoint calls a function that takes one change, not {handler!r}")
        self._access = access
        self._guard = Guard(self._access)
        if seen not in get_args(IdsKept):
            raise Invalid(f"seen is one of {', '.join(get_args(IdsKept))}, not {seen!r}")
        self._seen = SeenIds(_name(bucket, handler, name)) if seen == "bucket" else None
        self._busy: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Ids that are being dealt with: a sender that lost patience repeats while the handler still works."""
        self._handler = handler
        self._bucket = bucket
        self._filter, self._policy = _watched(bucket, handler)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise Invalid(f"a webhook endpoint speaks HTTP, not {scope['type']}")
        try:
            status, body = await self._respond(scope, receive)
            await answer(send, status, body)
        except Refusal as refusal:
            shown = {"error": refusal.error} if refusal.hint is None else refusal.body()
            await refuse(receive, send, refusal, shown)

    async def _respond(self, scope: Scope, receive: Receive) -> tuple[int, object]:
        headers = headers_of(scope)
        if scope["method"] != "POST":
            raise Refusal(405, "method not allowed", headers={"allow": "POST"})
        known = await self._guard.admit(scope, close=leaves_unread(headers, BODY_BYTES_MAX))
        check_content(headers)
        body = await self._guard.read(scope, receive, known=known, bytes_max=BODY_BYTES_MAX, seconds=BODY_SECONDS)
        parsed = await self._parse(headers, body)
        id = headers.get(ID_HEADER, "")
        if self._seen is None or not id:
            return await self._handle(headers, parsed)
        return await self._handle_once(self._seen, id, headers, parsed)

    async def _handle_once(self, seen: SeenIds, id: str, headers: dict[str, str], parsed: Parsed) -> tuple[int, object]:
        bus = bus_of(self._bucket)
        lock = self._busy.setdefault(id, asyncio.Lock())
        try:
            async with lock:
                if await run(self._bucket, seen.has(bus, id)):
                    return DONE
                answered = await self._handle(headers, parsed)
                if answered == DONE:
                    await run(self._bucket, seen.note(bus, id))
                return answered
        except BucketMQError as error:
            logger.warning("action=seen_failed kind=%s error=%s", error.kind, loggable(error))
            raise Refusal(503, "the bucket cannot be used", headers={"retry-after": "5"}) from None
        finally:
            del lock  # or an error's traceback would keep it

    async def _parse(self, headers: dict[str, str], body: bytes) -> Parsed:
        own, received_at = not self._access.no_auth, now_of(self._bucket)
        try:
            return await asyncio.to_thread(parse, "auto", headers, body, own=own, received_at=received_at)
        except Invalid as error:
            if not _is_json(body):
                raise Refusal(400, "invalid json") from None
            raise Refusal(400, "not a known notification", str(error)) from None

    async def _handle(self, headers: dict[str, str], parsed: Parsed) -> tuple[int, object]:
        if parsed.bad and not parsed.events:
            raise Refusal(400, "none of the events can be read", parsed.bad[0].reason)
        ours = RULE_HEADER in headers and not self._access.no_auth
        prefix = self._bucket.prefix
        failed: list[dict[str, str]] = []
        tried = 0
        for told in parsed.events:
            event = told if ours else below(prefix, told)
            if event is None or is_bookkeeping(event.key):
                continue
            tried += 1
            error = await self._call(event)
            if error is not None:
                failed.append({"id": event.id, "error": error})
        if not failed:
            return DONE
        if ours and len(failed) < tried:
            return 200, {"failed": failed}
        return 500, {"error": "processing failed"}

    async def _call(self, event: ObjectEvent) -> str | None:
        """What went wrong; None if it is done."""
        change = self._bucket.change_for(self._handler, event)
        try:
            name = getattr(self._handler, "__name__", "endpoint")
            instead = await run(self._bucket, _examined(bus_of(self._bucket), name, self._filter, self._policy, event))
            if isinstance(instead, outcomes.Bury):
                _log_buried(event, instead.reason)
            if instead is not None:
                return None
            outcome = await _called(self._handler, change)
        except Exception as error:
            if change.is_over and self._policy.gone == "drop":
                return None
            logger.warning(
                "action=handler_failed event=%s key=%s", loggable(event.id), loggable(event.key), exc_info=True
            )
            return _why(error)
        if isinstance(outcome, type) and issubclass(outcome, outcomes.Outcome):
            outcome = outcome()
        match outcome:
            case outcomes.Retry(reason):
                return reason[:ERROR_CHARS_MAX]
            case outcomes.Release():
                return "the handler gave it back"
            case outcomes.Bury(reason):
                _log_buried(event, reason)
        return None


def _name(bucket: AnyBucket, handler: Handler, given: str | None) -> str:
    """What tells handlers of one bucket apart, as a part of a key: one would take another's events for repeats of its
    own."""
    watcher = next((each for each in bucket.watchers.by_name.values() if each.handler is handler), None)
    if given is not None:
        return quote(f"name:{check_name(given, 'name')}", safe="")
    if watcher is not None:
        return quote(f"watcher:{watcher.name}", safe="")
    if not inspect.isfunction(handler) or "<" in handler.__qualname__:
        raise Invalid(f"{handler!r:.100} has no name of its own to keep ids by; give it one: name=...")
    own = quote(f"{handler.__module__}.{handler.__qualname__}", safe="")
    if len(own) > NAME_CHARS_MAX:
        raise Invalid(f"{own[:100]}... is too long a name to keep ids by; give it another: name=...")
    return own


def _log_buried(event: ObjectEvent, reason: str) -> None:
    logger.warning("action=buried event=%s key=%s why=%s", loggable(event.id), loggable(event.key), loggable(reason))


def _is_json(body: bytes) -> bool:
    try:
        decode(body)
    except Invalid:
        return False
    return True


async def _called(handler: Handler, change: Any) -> Any:
    """An async handler on the loop, a plain one on a thread."""
    if inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(type(handler).__call__):
        return await handler(change)
    result = await asyncio.to_thread(handler, change)
    return await result if inspect.isawaitable(result) else result


def _watched(bucket: AnyBucket, handler: Handler) -> tuple[Filter, Policy]:
    """What the handler was registered with; everything, for one that was not."""
    for watcher in bucket.watchers.by_name.values():
        if watcher.handler is handler:
            if watcher.gather is not None:
                raise Invalid(f"{watcher.name!r} waits for sets of keys and can only pull; run it with run_watchers")
            if watcher.batch is not None:
                raise Invalid(f"{watcher.name!r} takes batches of changes and can only pull; run it with run_watchers")
            return filters.parse(watcher.filter), watcher.policy
    return filters.parse(""), WATCHER_POLICY


def _examined(bus: BucketApi, name: str, chosen: Filter, policy: Policy, event: ObjectEvent) -> Procedure[object]:
    """What becomes of it instead of being handed over, by the same measures as when the handler pulls; or None."""
    return (yield from examine((yield from bus.open()), name, chosen, policy, event))


def _why(error: Exception) -> str:
    """For the sender's journal: what kind of error, and the words of ours; another's words may hold anything."""
    text = str(error) if isinstance(error, BucketMQError) else ""
    return f"{type(error).__name__}: {text}"[:ERROR_CHARS_MAX] if text else type(error).__name__
