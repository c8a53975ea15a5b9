"""What must be in the bucket before an application runs: its queues and rules, made idempotently."""

from __future__ import annotations

from typing import Any

import msgspec

from bucketmq import rulebook
from bucketmq.api.bucket import BucketApi
from bucketmq.apps.app import App, WantedRule
from bucketmq.errors import Invalid, NotFound
from bucketmq.events.rule import Rule, Secrets, Webhook
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.queues import open_queue
from bucketmq.procedures.requests import Procedure


def provide(bus: BucketApi, app: App) -> Procedure[None]:
    """Make what is missing, and change rules that are not as the application says.

    One GET for each queue and rule that is there, which any number of processes may do at once.
    """
    bucket = yield from bus.open()
    for queue in app.queues:
        yield from provide_queue(bucket, queue.name, queue.settings)
    for rule in app.rules:
        yield from _provide_rule(bus, rule)


def provide_queue(bucket: OpenBucket, name: str, settings: dict[str, Any]) -> Procedure[None]:
    """Make a queue with these settings; one that is there is left as it was tuned."""
    try:
        yield from open_queue(bucket, name, {}, create=False)
    except NotFound:
        yield from open_queue(bucket, name, settings)


def _provide_rule(bus: BucketApi, rule: WantedRule) -> Procedure[Rule]:
    wanted = rulebook.make_rule(rule.name, rule.filter, rule.to, **rule.options)
    try:
        have = yield from bus.rules.get(rule.name)
    except NotFound:
        return (yield from make_rule(bus, wanted, None))
    return (yield from change_rule(bus, have, wanted))


def provide_webhook(bus: BucketApi, wanted: Rule, token: str | None, *, routing_key: str) -> Procedure[Rule]:
    """Make the rule of an application that tells a webhook, or change it if the settings are others than last time.

    A rule that somebody paused stays so, and one that is as it should be keeps its place. Its token is left as it is
    without another, unless the address is another too: what was shown to one is not shown to the next. PagerDuty needs
    one; `routing_key` names the setting to say it in.
    """
    try:
        have = yield from bus.rules.get(wanted.name)
    except NotFound:
        _check_token(wanted, token, routing_key)
        return (yield from make_rule(bus, wanted, rulebook.make_secrets(None, token, None, sign=False)))
    same = _same_address(have, wanted)
    kept = (yield from bus.rules.secrets(wanted.name)).bearer if same and token is None else token
    _check_token(wanted, kept, routing_key)
    if token is not None or not same:  # before the rule is changed
        yield from bus.rules.change_secrets(
            wanted.name, lambda old: msgspec.structs.replace(old, bearer=token, basic=None)
        )
    return (yield from change_rule(bus, have, wanted))


def _check_token(wanted: Rule, token: str | None, routing_key: str) -> None:
    """Said before there is anything to tell: nobody looks for a notice that does not come."""
    if isinstance(wanted.to, Webhook) and wanted.to.format == "pagerduty" and not token:
        raise Invalid(f"PagerDuty needs the routing key of an integration; set {routing_key} to it")


def _same_address(have: Rule, wanted: Rule) -> bool:
    """Whether the same is told in the same way: PagerDuty's token is a part of what is told."""
    if not isinstance(have.to, Webhook) or not isinstance(wanted.to, Webhook):
        return False
    return (have.to.url, have.to.format) == (wanted.to.url, wanted.to.format)


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
