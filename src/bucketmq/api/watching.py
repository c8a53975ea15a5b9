"""What a user can ask of rules at work: run those to webhooks and queues, register watchers and run them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, Unpack

import msgspec

from bucketmq.api.opening import Opening
from bucketmq.api.options import PolicyOptions
from bucketmq.api.times import start_of
from bucketmq.changes import AsyncChange, Change, changes_of
from bucketmq.errors import Invalid, NotFound
from bucketmq.events import filters
from bucketmq.events.event import ObjectEvent
from bucketmq.events.rule import Policy, Rule, ToWatcher, check_rule
from bucketmq.procedures.claiming.receive import Start
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.rules import registry as rules
from bucketmq.procedures.rules.fan_in import Gather, gathering_run
from bucketmq.procedures.rules.notifier import MakeRun, Notifier, notify, plain_runs
from bucketmq.procedures.rules.run import RuleRun
from bucketmq.rulebook import WATCHER_POLICY, ignore, make_policy

BATCH_MAX = 1_000
"""Changes that a handler is given at a time, at most."""

Handler = TypeVar("Handler", bound=Callable[[Any], Any])


class Watcher(msgspec.Struct, frozen=True):
    """A handler that was registered with `watch` or `when_all`."""

    name: str
    filter: str
    handler: Callable[[Any], Any]
    policy: Policy
    start: Start
    gather: Gather | None = None
    batch: int | None = None
    """How many changes the handler is given at a time; None if it takes them one by one."""


class Watchers:
    """The handlers that were registered on a bucket, by the names of their rules."""

    def __init__(self) -> None:
        self.by_name: dict[str, Watcher] = {}

    def add(
        self,
        handler: Callable[[Any], Any],
        *,
        name: str | None,
        filter: str,
        start: object,
        options: dict[str, Any],
        gather: Gather | None = None,
        batch: int | None = None,
    ) -> None:
        """Make a function the handler of every change that the filter lets through."""
        if not callable(handler):
            raise Invalid(f"a watcher is a function that takes one change, not {handler!r}")
        chosen = name or getattr(handler, "__name__", "").strip("_<>")
        policy = make_policy(WATCHER_POLICY, options)
        check_rule(Rule(name=chosen, filter=filter, to=ToWatcher(), policy=policy))
        if chosen in self.by_name and self.by_name[chosen].handler is not handler:
            raise Invalid(f"there is a watcher {chosen!r} on this bucket already; give this one name=...")
        self.by_name[chosen] = Watcher(chosen, filter, handler, policy, start_of(start), gather, batch)

    def chosen(self, names: Sequence[str] | None) -> dict[str, Watcher]:
        if names is None:
            return dict(self.by_name)
        unknown = [name for name in names if name not in self.by_name]
        if unknown:
            raise Invalid(f"there is no watcher {unknown[0]!r} here; there are {', '.join(self.by_name) or 'none'}")
        return {name: self.by_name[name] for name in names}


class WatchingApi(Opening):
    """The rules and watchers of one bucket, at work."""

    def __init__(self, prefix: str, **options: Any) -> None:
        super().__init__(prefix, **options)
        self.watchers = Watchers()

    def notify(
        self,
        *,
        only: Iterable[str] | None = None,
        stop_when_empty: bool = False,
        signals: bool = True,
        started: Callable[[Notifier], None] = ignore,
    ) -> Procedure[None]:
        """Run the rules to webhooks and queues until SIGTERM or SIGINT, or until there is nothing more to do now."""
        bucket = yield from self.open()
        make = plain_runs(bucket, self.lent.environment, None if only is None else frozenset(only))
        yield from self._run_rules(bucket, make, started, signals=signals, stop_when_empty=stop_when_empty)

    def watch(
        self,
        filter: str = "",
        *,
        batch: int | None = None,
        name: str | None = None,
        start: object = "now",
        **options: Unpack[PolicyOptions],
    ) -> Callable[[Handler], Handler]:
        """A decorator: call the function with every change that the filter lets through, once `run_watchers` runs.

        With `batch` it is given a list of up to so many changes of different objects, whatever is there, and returns
        nothing if all are done, or a list with what becomes of each. If it raises, each is tried again.

        Its rule is named after the function, or `name`, and keeps its place while nothing runs. `start` counts when
        the rule is first made: "now", "beginning" or a time. `options` are those of a rule's policy.
        """
        filters.parse(filter)
        if batch is not None and (not isinstance(batch, int) or not 1 <= batch <= BATCH_MAX):
            raise Invalid(f"batch must be 1 to {BATCH_MAX} changes at a time, not {batch!r}")

        def register(handler: Handler) -> Handler:
            self.watchers.add(handler, name=name, filter=filter, start=start, options=dict(options), batch=batch)
            return handler

        return register

    def when_all(
        self,
        *keys: str,
        deadline_seconds: float | None = None,
        name: str | None = None,
        start: object = "now",
        **options: Unpack[PolicyOptions],
    ) -> Callable[[Handler], Handler]:
        """A decorator: call the function once when all `keys` are there, or at the deadline with what is missing.

        Keys may have placeholders, as in `"a/{id}.json", "b/{id}.json"`: then once for each value.
        """
        gather = Gather(keys, deadline_seconds)

        def register(handler: Handler) -> Handler:
            chosen = {"gone": "deliver", **options}
            self.watchers.add(handler, name=name, filter=gather.filter(), start=start, options=chosen, gather=gather)
            return handler

        return register

    def run_watchers(
        self,
        *names: str,
        stop_when_empty: bool = False,
        signals: bool = True,
        started: Callable[[Notifier], None] = ignore,
    ) -> Procedure[None]:
        """Run the handlers until SIGTERM or SIGINT, or until there is nothing more to do now."""
        chosen = self.watchers.chosen(names or None)
        yield from self.run_chosen(chosen, started, signals=signals, stop_when_empty=stop_when_empty)

    def run_chosen(
        self,
        watchers: Mapping[str, Watcher],
        started: Callable[[Notifier], None] = ignore,
        *,
        signals: bool = True,
        stop_when_empty: bool = False,
    ) -> Procedure[None]:
        """Make the watchers' rules, where they are not there as they should be, and run them."""
        bucket = yield from self.open()
        for watcher in watchers.values():
            yield from _settle_rule(bucket, watcher)

        def make(rule: Rule) -> RuleRun | None:
            watcher = watchers.get(rule.name)
            if watcher is None:
                return None
            handler, batch = watcher.handler, watcher.batch
            run = RuleRun(bucket, rule, handler=handler, wrap=self.change_for, batch=batch, together=changes_of)
            return run if watcher.gather is None else gathering_run(run, watcher.gather)

        yield from self._run_rules(bucket, make, started, signals=signals, stop_when_empty=stop_when_empty)

    def change_for(self, handler: Callable[[Any], Any], event: ObjectEvent, attempt: int = 1) -> Change | AsyncChange:
        """The change that a handler is given: awaitable for an async one."""
        if self.lent.change is None:
            raise Invalid("this bucket was opened without a facade, which gives handlers their changes")
        made: Change | AsyncChange = self.lent.change(self, handler, event, attempt)
        return made

    def _run_rules(
        self,
        bucket: OpenBucket,
        make: MakeRun,
        started: Callable[[Notifier], None],
        *,
        signals: bool,
        stop_when_empty: bool,
    ) -> Procedure[None]:
        with self.lent.stops(signals) as stop:
            yield from self.start_keeper()
            notifier = Notifier(bucket, self.keeper, make, stop_when_empty=stop_when_empty)
            stop.watch(notifier)
            started(notifier)
            yield from notify(notifier)


def _settle_rule(bucket: OpenBucket, watcher: Watcher) -> Procedure[None]:
    """Make a watcher's rule, or change it if its filter or policy is another than the code says. Pauses stay."""
    wanted = Rule(name=watcher.name, filter=watcher.filter, to=ToWatcher(), policy=watcher.policy)
    try:
        have = yield from rules.get_rule(bucket, watcher.name)
    except NotFound:
        try:
            yield from rules.add_rule(bucket, wanted, None, watcher.start)
            return
        except Invalid:  # another process begins the same watchers, and was faster
            have = yield from rules.get_rule(bucket, watcher.name)
    if not isinstance(have.to, ToWatcher):
        raise Invalid(f"rule {watcher.name!r} goes to {have.to}, not to a watcher; give the watcher another name")
    if (have.filter, have.policy) != (wanted.filter, wanted.policy):
        yield from rules.add_rule(bucket, wanted, None, watcher.start, replace=True)
