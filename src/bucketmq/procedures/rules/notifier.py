"""The notifier: runs the rules of a bucket, each on its own, and notices when they are added, changed or removed.

Any number of processes may run the same rules; leases keep them apart. It also does the bus's chores: finishing what
writers that died had begun, and clearing away what removed rules left.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from bucketmq.bucket.port import Version
from bucketmq.errors import BucketMQError
from bucketmq.events.rule import Rule, ToWatcher
from bucketmq.procedures.objects.recover import recover
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.queues import DELIVERIES, EVENTS, open_queue
from bucketmq.procedures.requests import IfAbandoned, Latch, Now, Procedure, Spawn, Wait
from bucketmq.procedures.rules.deliver import begin_run
from bucketmq.procedures.rules.registry import Kept, list_rules, tidy_rules
from bucketmq.procedures.rules.run import Environment, RuleRun
from bucketmq.procedures.upkeep.trim import trim_all
from bucketmq.procedures.working.keeper import Keeper
from bucketmq.procedures.working.work import work

RULES_SECONDS = 5.0
RULES_SECONDS_LOCAL = 1.0
"""How often the rules are looked at: how soon a new one runs and a paused one stops."""

NOTES_SECONDS = 30.0
TIDY_SECONDS = 300.0
"""How often the queues of the bus are trimmed and what removed rules left is cleared away."""

FAULT_SECONDS = 5.0

logger = logging.getLogger("bucketmq")

MakeRun = Callable[[Rule], RuleRun | None]
"""A run for a rule, or None if this process does not run it."""


class Running:
    """A rule that is being run."""

    def __init__(self, run: RuleRun, version: Version) -> None:
        self.run = run
        self.version = version
        self.ended = Latch()

    def stop(self) -> None:
        if self.run.work is not None:
            self.run.work.stop()


class Notifier:
    """What one process runs."""

    def __init__(self, bucket: OpenBucket, keeper: Keeper, make_run: MakeRun, *, stop_when_empty: bool = False) -> None:
        self.bucket = bucket
        self.keeper = keeper
        self.make_run = make_run
        self.stop_when_empty = stop_when_empty
        self.running: dict[str, Running] = {}
        self.stop_latch = Latch()
        self.ready = Latch()
        """Opens when the rules that were there at the beginning run."""

    def stop(self) -> None:
        """End: what is in hand is finished, the rest given back."""
        self.stop_latch.open()
        for each in list(self.running.values()):
            each.stop()

    def abandon(self) -> Procedure[None]:
        """End without waiting for async handlers of watchers."""
        self.stop()
        for run in self.runs():
            if run.work is not None:
                yield from run.work.abandon()

    def runs(self) -> list[RuleRun]:
        return [each.run for each in list(self.running.values())]


def plain_runs(bucket: OpenBucket, environment: Environment, only: frozenset[str] | None) -> MakeRun:
    """Runs for rules to webhooks and queues: all of them, or those named."""

    def make(rule: Rule) -> RuleRun | None:
        if isinstance(rule.to, ToWatcher) or (only is not None and rule.name not in only):
            return None
        return RuleRun(bucket, rule, environment=environment)

    return make


def notify(notifier: Notifier) -> Procedure[None]:
    """Run the rules until told to stop, or with `stop_when_empty` until each has nothing more to do now."""
    bucket = notifier.bucket
    known: dict[str, Kept] = {}
    tidy_at = notes_at = 0.0
    pause = RULES_SECONDS_LOCAL if bucket.local else RULES_SECONDS
    notifier.keeper.closing.on_open(notifier.stop)
    yield from IfAbandoned(notifier.abandon)
    try:
        while not notifier.stop_latch.is_open:
            try:
                known = yield from list_rules(bucket, known)
                yield from _keep_up(notifier, known)
                notifier.ready.open()
                if notifier.stop_when_empty:
                    break
                now = yield from Now()
                if now >= notes_at:
                    yield from recover(bucket)
                    notes_at = now + NOTES_SECONDS
                if now >= tidy_at:
                    yield from _tidy(bucket)
                    tidy_at = now + TIDY_SECONDS
            except BucketMQError as error:
                logger.warning("action=notifier_failed kind=%s %s", error.kind, error)
                yield from Wait(notifier.stop_latch, FAULT_SECONDS)
            yield from Wait(notifier.stop_latch, pause)
    finally:
        if not notifier.stop_when_empty:
            notifier.stop()
        notifier.keeper.closing.forget(notifier.stop)
    for running in list(notifier.running.values()):
        yield from Wait(running.ended)


def _keep_up(notifier: Notifier, rules: dict[str, Kept]) -> Procedure[None]:
    """Start what is new, stop what is paused, removed or changed; a changed one starts again when it has ended."""
    for name, running in list(notifier.running.items()):
        kept = rules.get(name)
        if running.ended.is_open:
            del notifier.running[name]
        elif kept is None or not _runs(kept.rule) or kept.version != running.version:
            running.stop()
    for name, kept in rules.items():
        if name in notifier.running or not _runs(kept.rule) or notifier.stop_latch.is_open:
            continue
        try:
            run = notifier.make_run(kept.rule)
        except BucketMQError as error:
            logger.warning("action=rule_broken rule=%s kind=%s %s", name, error.kind, error)
            continue
        if run is None:
            continue
        running = Running(run, kept.version)
        yield from begin_run(run, notifier.keeper, stop_when_empty=notifier.stop_when_empty)
        notifier.running[name] = running
        yield from Spawn(_run(notifier, running), f"rule-{name}")


def _tidy(bucket: OpenBucket) -> Procedure[None]:
    yield from tidy_rules(bucket)
    for name in (EVENTS, DELIVERIES):
        yield from trim_all((yield from open_queue(bucket, name, {})))


def _runs(rule: Rule) -> bool:
    return rule.paused is None and rule.removed_at is None


def _run(notifier: Notifier, running: Running) -> Procedure[None]:
    assert running.run.work is not None
    try:
        yield from work(running.run.work)
    except BucketMQError as error:
        logger.warning("action=rule_failed rule=%s kind=%s %s", running.run.rule.name, error.kind, error)
    finally:
        running.ended.open()
