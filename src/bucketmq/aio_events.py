"""The asyncio facade of the event bus: the same names as `bucketmq.client_events`, awaited."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from bucketmq.bucket.port import Found, Store
from bucketmq.changes import AsyncChange, Change, decode_json, encode_object
from bucketmq.engines.asynchronous import Asynchronous
from bucketmq.engines.signals import StopOnSignal
from bucketmq.events import filters
from bucketmq.events.event import ObjectEvent
from bucketmq.events.filters import Explanation
from bucketmq.events.rule import Rule, Secrets
from bucketmq.procedures.api import BucketApi
from bucketmq.procedures.audit import Audited
from bucketmq.procedures.bus import BusApi, start_of
from bucketmq.procedures.notifier import Notifier
from bucketmq.procedures.objects import Read, Stored
from bucketmq.procedures.recover import Recovered
from bucketmq.procedures.replay import Matching, Replayed, Tested
from bucketmq.procedures.sweep import Progress, Swept
from bucketmq.rulebook import Handler, Watchers, environment, ignore, is_async, make_rule, make_secrets


class EventBus:
    """What a bucket is besides its queues. A base of `Bucket`."""

    def __init__(self, engine: Asynchronous, api: BucketApi) -> None:
        self._engine = engine
        self._bus = BusApi(api)
        self.watchers = Watchers()
        """The handlers registered with `watch` and `when_all`."""

    async def put(
        self,
        key: str,
        body: object,
        *,
        content_type: str | None = None,
        metadata: Mapping[str, str] | None = None,
        only_new: bool = False,
        if_version: str | None = None,
    ) -> Stored:
        """Write an object (bytes, text, or anything else as JSON) and report the change, whatever dies in between."""
        data, kind = encode_object(key, body, content_type)
        return await self._engine.run(
            self._bus.put(key, data, content_type=kind, metadata=metadata, only_new=only_new, if_version=if_version)
        )

    async def get(self, key: str) -> Read:
        """The object: body, version, content type, metadata. `NotFound` if there is none. One GET."""
        return await self._engine.run(self._bus.get(key))

    async def get_json(self, key: str) -> Any:
        return decode_json(await self.get(key))

    async def look(self, key: str) -> Found | None:
        """What the store knows of the object without its body; None if there is none. One HEAD."""
        return await self._engine.run(self._bus.look(key))

    async def delete(self, key: str, *, if_version: str | None = None) -> bool:
        """Delete an object and report it; False if there was none."""
        return await self._engine.run(self._bus.delete(key, if_version=if_version))

    async def move(self, key: str, target: str, *, if_version: str | None = None, replace: bool = False) -> Stored:
        """Move an object and report one `moved` event. Never destroys another object at the target unless `replace`;
        may be repeated after a crash at any point."""
        return await self._engine.run(self._bus.move(key, target, if_version=if_version, replace=replace))

    async def report(self, events: Sequence[ObjectEvent]) -> int:
        """Make events durable, wherever they come from; returns how many. One PUT."""
        return await self._engine.run(self._bus.report(events))

    async def trigger(self, key: str, *, kind: str = "created") -> ObjectEvent:
        """Report a made-up event, to try rules and watchers with."""
        return await self._engine.run(self._bus.trigger(key, kind))

    async def sweep(
        self,
        prefix: str = "",
        *,
        baseline: bool = False,
        name: str | None = None,
        progress: Progress = ignore,
    ) -> Swept:
        """List, compare with the inventory, report what is new, changed or gone since the last sweep.

        The first sweep reports what is there already, or with `baseline` only notes it.
        """
        return await self._engine.run(self._bus.sweep(prefix=prefix, baseline=baseline, name=name, progress=progress))

    async def recover(self) -> Recovered:
        """Report what writers that died had written and not reported. `notify` and watchers do this by themselves."""
        return await self._engine.run(self._bus.recover())

    @property
    def rules(self) -> Rules:
        return Rules(self._engine, self._bus)

    async def audit(self, rule: str, *, prefix: str = "", late_seconds: float = 60.0, repair: bool = False) -> Audited:
        """Compare what a rule was told and delivered with a listing of the bucket."""
        return await self._engine.run(self._bus.audit(rule, prefix=prefix, late_seconds=late_seconds, repair=repair))

    async def notify(
        self,
        *,
        only: Iterable[str] | None = None,
        stop_when_empty: bool = False,
        signals: bool = True,
        started: Callable[[Notifier], None] = ignore,
    ) -> None:
        """Run the rules to webhooks and queues until SIGTERM or SIGINT, or until there is nothing more to do now."""
        with StopOnSignal(active=signals) as stop:

            def begun(notifier: Notifier) -> None:
                stop.watch(notifier)
                started(notifier)

            await self._engine.run(
                self._bus.notify(begun, environment=environment, only=only, stop_when_empty=stop_when_empty)
            )

    def watch(
        self, filter: str = "", *, name: str | None = None, start: object = "now", **options: Any
    ) -> Callable[[Handler], Handler]:
        """A decorator: call the function with every change that the filter lets through, once `run_watchers` runs.

        Its rule is named after the function, or `name`, and keeps its place while nothing runs. `start` counts when
        the rule is first made: "now", "beginning" or a time. `options` are those of a rule's policy.
        """
        return self.watchers.watch(filter, name=name, start=start, **options)

    def when_all(
        self, *keys: str, deadline_seconds: float | None = None, name: str | None = None, **options: Any
    ) -> Callable[[Handler], Handler]:
        """A decorator: call the function once when all `keys` are there, or at the deadline with what is missing.

        Keys may have placeholders, as in `"a/{id}.json", "b/{id}.json"`: then once for each value.
        """
        return self.watchers.when_all(*keys, deadline_seconds=deadline_seconds, name=name, **options)

    async def run_watchers(
        self,
        *names: str,
        stop_when_empty: bool = False,
        signals: bool = True,
        started: Callable[[Notifier], None] = ignore,
    ) -> None:
        """Run the handlers until SIGTERM or SIGINT, or until there is nothing more to do now."""
        chosen = self.watchers.chosen(names or None)
        with StopOnSignal(active=signals) as stop:

            def begun(notifier: Notifier) -> None:
                stop.watch(notifier)
                started(notifier)

            await self._engine.run(self._bus.watch(chosen, self.change_for, begun, stop_when_empty=stop_when_empty))

    def change_for(self, handler: Callable[[Any], Any], event: ObjectEvent, attempt: int = 1) -> Change | AsyncChange:
        """The change that a handler is given: awaitable for an async one."""
        if is_async(handler):
            return AsyncChange(self._bus, event, self._engine.run, attempt)
        return Change(self._bus, event, _on(asyncio.get_running_loop(), self._engine), attempt)

    @property
    def prefix(self) -> str:
        """What every key of this bucket begins with in its store; empty if its URL names no prefix."""
        return self._bus.bucket.prefix

    @property
    def store(self) -> Store:
        """Where the bucket lies. What is asked of it directly is not counted in `requests`."""
        return self._engine.hands.store

    @property
    def now_seconds(self) -> float:
        """The time by the store's clock, in seconds since 1970."""
        return self._engine.hands.clock.now()

    @property
    def bus(self) -> BusApi:
        """What can be asked of objects, events and rules, as procedures that `engine` carries out."""
        return self._bus

    @property
    def engine(self) -> Asynchronous:
        """Carries out procedures on this bucket, those of other programs too: `await engine.run(procedure)`."""
        return self._engine


def _on(loop: asyncio.AbstractEventLoop, engine: Asynchronous) -> Callable[[Any], Any]:
    """Runs a procedure on the loop for a plain handler, which is on a thread."""
    return lambda procedure: asyncio.run_coroutine_threadsafe(engine.run(procedure), loop).result()


class Rules:
    """The rules of a bucket."""

    def __init__(self, engine: Asynchronous, bus: BusApi) -> None:
        self._engine = engine
        self._bus = bus

    async def add(
        self,
        name: str,
        *,
        to: str,
        filter: str = "",
        start: object = "now",
        existing: str | None = None,
        signing: str | Sequence[str] | None = None,
        bearer: str | None = None,
        basic: str | None = None,
        sign: bool = False,
        replace: bool = False,
        **options: Any,
    ) -> Rule:
        """Make a rule: which events go where (`https://...` or `queue:NAME`), and how.

        `start` is "now", "beginning" or a time; `existing` is a prefix whose objects are sent to it first. `options`
        are those of a webhook (format, batch, timeout_seconds, private, statuses) and of the policy (retry_seconds,
        rate_per_second, concurrency, ordered, stale, gone, hops_max, ...).
        """
        rule = make_rule(name, filter, to, **options)
        secrets = make_secrets(signing, bearer, basic, sign=sign)
        return await self._engine.run(
            self._bus.add_rule(rule, secrets, start_of(start), existing=existing, replace=replace)
        )

    async def list(self) -> list[Rule]:
        return await self._engine.run(self._bus.rules())

    async def get(self, name: str) -> Rule:
        return await self._engine.run(self._bus.rule(name))

    async def secrets(self, name: str) -> Secrets:
        """The secrets of a rule. Do not log them."""
        return await self._engine.run(self._bus.secrets(name))

    async def change_secrets(self, name: str, change: Callable[[Secrets], Secrets]) -> Secrets:
        """Replace a rule's secrets by `change` of them, as `rulebook.rotated` does."""
        return await self._engine.run(self._bus.change_secrets(name, change))

    async def pause(self, name: str, why: str = "") -> Rule:
        """Stop delivering; what happens meanwhile waits."""
        return await self._engine.run(self._bus.pause_rule(name, why))

    async def resume(self, name: str) -> Rule:
        return await self._engine.run(self._bus.resume_rule(name))

    async def remove(self, name: str) -> Rule:
        """Remove a rule and what it has not delivered."""
        return await self._engine.run(self._bus.remove_rule(name))

    async def tidy(self) -> int:
        """Delete what removed rules left behind; `notify` does this by itself."""
        return await self._engine.run(self._bus.tidy_rules())

    def explain(self, filter: str) -> Explanation:
        """How a filter is understood and what it costs. No request."""
        return filters.explain(filters.parse(filter))

    async def test(self, filter: str, key: str, *, kind: str = "created") -> Tested:
        """Whether a filter matches a key as it is in the bucket now, and why not. A HEAD, and a GET if it is needed."""
        return await self._engine.run(self._bus.test(filter, key, kind))

    async def matching(self, filter: str, prefix: str = "", *, limit: int = 1_000) -> Matching:
        """Which objects of the live bucket a filter matches."""
        return await self._engine.run(self._bus.matching(filter, prefix, limit))

    async def replay(self, name: str, **options: Any) -> Replayed:
        """Send events again to this rule alone, under the same ids: `prefix=...` for what is there now, or `since=`
        and `until=` (seconds since 1970) for what happened then; `rate_per_second`, `dry_run`."""
        return await self._engine.run(self._bus.replay(name, **options))
