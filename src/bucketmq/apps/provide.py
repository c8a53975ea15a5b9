"""What must be in the bucket before an application runs: its queues and rules, made idempotently."""

from __future__ import annotations

from bucketmq import rulebook
from bucketmq.api.bucket import BucketApi
from bucketmq.apps.app import App, WantedRule
from bucketmq.errors import Invalid, NotFound
from bucketmq.events.rule import Rule, Secrets
from bucketmq.procedures.queues import open_queue
from bucketmq.procedures.requests import Procedure


def provide(bus: BucketApi, app: App) -> Procedure[None]:
    """Make what is missing, and change rules that are not as the application says.

    One GET for each queue and rule that is there, which any number of processes may do at once.
    """
    bucket = yield from bus.open()
    for queue in app.queues:
        try:
            yield from open_queue(bucket, queue.name, {}, create=False)
        except NotFound:
            yield from open_queue(bucket, queue.name, queue.settings)
    for rule in app.rules:
        yield from _provide_rule(bus, rule)


def _provide_rule(bus: BucketApi, rule: WantedRule) -> Procedure[Rule]:
    wanted = rulebook.make_rule(rule.name, rule.filter, rule.to, **rule.options)
    try:
        have = yield from bus.rules.get(rule.name)
    except NotFound:
        return (yield from make_rule(bus, wanted, None))
    return (yield from change_rule(bus, have, wanted))


def make_rule(bus: BucketApi, wanted: Rule, secrets: Secrets | None) -> Procedure[Rule]:
    """Make a rule that is not there. If another process was faster, its rule."""
    try:
        return (yield from bus.rules.write(wanted, secrets))
    except Invalid:
        return (yield from bus.rules.get(wanted.name))


def change_rule(bus: BucketApi, have: Rule, wanted: Rule) -> Procedure[Rule]:
    """Change a rule unless it is as it should be: then it keeps its place, and is not written."""
    if (have.filter, have.to, have.policy) == (wanted.filter, wanted.to, wanted.policy):
        return have
    return (yield from bus.rules.write(wanted, replace=True))
