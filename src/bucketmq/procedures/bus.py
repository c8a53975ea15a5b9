"""What a user can ask of the event bus, each as one procedure. The facades run these and add nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from bucketmq.bucket.port import Found
from bucketmq.errors import Invalid, NotFound
from bucketmq.events import filters
from bucketmq.events.event import ObjectEvent, event_id, time_text
from bucketmq.events.rule import Policy, Rule, Secrets, ToWatcher
from bucketmq.procedures import audit, move_object, objects, recover, replay, rules, sweep
from bucketmq.procedures.api import BucketApi, seconds_of
from bucketmq.procedures.events import full_key, report
from bucketmq.procedures.gather import Gather, gathering_run
from bucketmq.procedures.notifier import MakeRun, Notifier, notify, plain_runs
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.requests import Now, Procedure
from bucketmq.procedures.rule_run import Environment, RuleRun, Wrap
from bucketmq.procedures.subscription import Start
from bucketmq.procedures.verbs import look

STARTS = {"now": "latest", "latest": "latest", "beginning": "earliest", "earliest": "earliest"}


class Watcher(msgspec.Struct, frozen=True):
    """A handler that was registered with `watch` or `when_all`."""

    name: str
    filter: str
    handler: Callable[[Any], Any]
    policy: Policy
    start: Start
    gather: Gather | None = None


def start_of(start: object) -> Start:
    """Where a rule begins, as users say it: now, beginning, or a time."""
    if isinstance(start, str):
        if start in STARTS:
            return STARTS[start]
        try:
            at = datetime.fromisoformat(start)
        except ValueError:
            raise Invalid(f"start must be now, beginning or a time like 2026-11-16T08:00:00Z, not {start!r}") from None
        return (at if at.tzinfo is not None else at.replace(tzinfo=UTC)).timestamp()
    return seconds_of(start)


class BusApi:
    """The objects, events and rules of one bucket."""

    def __init__(self, bucket: BucketApi) -> None:
        self.bucket = bucket

    def _open(self) -> Procedure[OpenBucket]:
        return (yield from self.bucket.open())

    # Objects

    def put(self, key: str, body: bytes, **options: Any) -> Procedure[objects.Stored]:
        return (yield from objects.put((yield from self._open()), key, body, **options))

    def get(self, key: str) -> Procedure[objects.Read]:
        return (yield from objects.read_object((yield from self._open()), key))

    def look(self, key: str) -> Procedure[Found | None]:
        bucket = yield from self._open()
        found = yield from look(full_key(bucket, objects.check_object_key(key)))
        return found if isinstance(found, Found) else None

    def delete(self, key: str, **options: Any) -> Procedure[bool]:
        return (yield from objects.remove((yield from self._open()), key, **options))

    def move(self, key: str, target: str, **options: Any) -> Procedure[objects.Stored]:
        return (yield from move_object.move((yield from self._open()), key, target, **options))

    def recover(self) -> Procedure[recover.Recovered]:
        return (yield from recover.recover((yield from self._open())))

    # Events

    def report(self, events: Sequence[ObjectEvent]) -> Procedure[int]:
        return (yield from report((yield from self._open()), events))

    def trigger(self, key: str, kind: str) -> Procedure[ObjectEvent]:
        """Report a made-up event for a key, with what is known of the object if it is there."""
        if kind not in ("created", "changed", "deleted"):
            raise Invalid(f"an event to try things with is created, changed or deleted, not {kind!r}")
        found = yield from self.look(key)
        now: float = yield Now()
        event = ObjectEvent(
            id=event_id("trigger", "", key, kind, time_text(now)),
            kind=kind,  # type: ignore[arg-type]  # one of those above
            key=key,
            at=time_text(now),
            source="trigger",
            size_bytes=found.size_bytes if found is not None else None,
            content_type=found.attributes.content_type or None if found is not None else None,
        )
        yield from self.report([event])
        return event

    def sweep(self, **options: Any) -> Procedure[sweep.Swept]:
        return (yield from sweep.sweep((yield from self._open()), **options))

    # Rules

    def add_rule(
        self, rule: Rule, secrets: Secrets | None, start: Start, *, existing: str | None, replace: bool
    ) -> Procedure[Rule]:
        bucket = yield from self._open()
        made = yield from rules.add_rule(bucket, rule, secrets, start, replace=replace)
        if existing is not None:
            yield from replay.replay_existing(bucket, made, existing)
        return made

    def rule(self, name: str) -> Procedure[Rule]:
        return (yield from rules.get_rule((yield from self._open()), name))

    def rules(self) -> Procedure[list[Rule]]:
        found = yield from rules.list_rules((yield from self._open()))
        return [kept.rule for kept in found.values() if kept.rule.removed_at is None]

    def secrets(self, name: str) -> Procedure[Secrets]:
        return (yield from rules.get_secrets((yield from self._open()), name))

    def change_secrets(self, name: str, change: Callable[[Secrets], Secrets]) -> Procedure[Secrets]:
        return (yield from rules.change_secrets((yield from self._open()), name, change))

    def pause_rule(self, name: str, why: str) -> Procedure[Rule]:
        return (yield from rules.pause_rule((yield from self._open()), name, why))

    def resume_rule(self, name: str) -> Procedure[Rule]:
        return (yield from rules.resume_rule((yield from self._open()), name))

    def remove_rule(self, name: str) -> Procedure[Rule]:
        return (yield from rules.remove_rule((yield from self._open()), name))

    def tidy_rules(self) -> Procedure[int]:
        return (yield from rules.tidy_rules((yield from self._open())))

    def test(
        self, text: str, key: str, kind: str = "created", body_bytes_max: int = 1 << 20
    ) -> Procedure[replay.Tested]:
        return (yield from replay.test_key((yield from self._open()), filters.parse(text), key, kind, body_bytes_max))

    def matching(self, text: str, prefix: str, limit: int) -> Procedure[replay.Matching]:
        return (yield from replay.matching((yield from self._open()), filters.parse(text), prefix, limit))

    def replay(self, name: str, **options: Any) -> Procedure[replay.Replayed]:
        bucket = yield from self._open()
        return (yield from replay.replay(bucket, (yield from rules.get_rule(bucket, name)), **options))

    def audit(self, name: str, **options: Any) -> Procedure[audit.Audited]:
        bucket = yield from self._open()
        return (yield from audit.audit(bucket, (yield from rules.get_rule(bucket, name)), **options))

    # Running

    def notify(
        self,
        started: Callable[[Notifier], None],
        *,
        environment: Environment,
        only: Iterable[str] | None = None,
        stop_when_empty: bool = False,
    ) -> Procedure[None]:
        """Run the rules to webhooks and queues."""
        bucket = yield from self._open()
        chosen = None if only is None else frozenset(only)
        yield from self._run(bucket, plain_runs(bucket, environment, chosen), started, stop_when_empty=stop_when_empty)

    def watch(
        self,
        watchers: Mapping[str, Watcher],
        wrap: Wrap,
        started: Callable[[Notifier], None],
        *,
        stop_when_empty: bool = False,
    ) -> Procedure[None]:
        """Make the watchers' rules, where they are not there as they should be, and run them."""
        bucket = yield from self._open()
        for watcher in watchers.values():
            yield from _settle_rule(bucket, watcher)

        def make(rule: Rule) -> RuleRun | None:
            watcher = watchers.get(rule.name)
            if watcher is None:
                return None
            run = RuleRun(bucket, rule, handler=watcher.handler, wrap=wrap)
            return run if watcher.gather is None else gathering_run(run, watcher.gather)

        yield from self._run(bucket, make, started, stop_when_empty=stop_when_empty)

    def _run(
        self, bucket: OpenBucket, make: MakeRun, started: Callable[[Notifier], None], *, stop_when_empty: bool
    ) -> Procedure[None]:
        yield from self.bucket.start_keeper()
        notifier = Notifier(bucket, self.bucket.keeper, make, stop_when_empty=stop_when_empty)
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
