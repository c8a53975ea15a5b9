"""Telling people of flagged posts: a rule on `flagged/` whose webhook is Slack, PagerDuty or a program of yours.

The log of events is the outbox: the event of the move is durable before anybody is told, and the rule delivers it with
retries, signatures and dead letters like any other. What the messages look like is `events.notices`.
"""

from __future__ import annotations

from urllib.parse import urlsplit

import msgspec

from bucketmq import rulebook
from bucketmq.api.bucket import BucketApi
from bucketmq.apps.moderation.record import FLAGGED
from bucketmq.apps.moderation.settings import REVIEW_WEBHOOK_TOKEN, ModerationSettings
from bucketmq.apps.provide import change_rule, make_rule
from bucketmq.errors import Invalid, NotFound
from bucketmq.events.rule import Rule, Webhook
from bucketmq.procedures.requests import Procedure
from bucketmq.server.access import is_loopback

NOTICE_RULE = "moderation-notice"
NOTICE_FILTER = f'WHERE `key` REGEXP "^{FLAGGED}" AND kind IN ("created", "changed", "moved")'

LEASE_SECONDS = 15.0
"""How long the notices of a process that died wait for the next one."""

RETRY_SECONDS = (1.0, 2.0, 5.0, 15.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 18000.0, 36000.0, 36000.0, 36000.0)
"""An alarm: often at first, then for more than a day."""


def set_up(bus: BucketApi, settings: ModerationSettings) -> Procedure[Rule | None]:
    """Make the rule, or change it if the settings are others than last time; None without an address to tell.

    A rule that somebody paused stays so, and one that is as it should be keeps its place. Without an address the rule
    is left as it is: another process may have one. So is its token without another, unless the address is another too:
    what was shown to one is not shown to the next.
    """
    if settings.review_url is None:
        return None
    wanted = rulebook.make_rule(
        NOTICE_RULE,
        NOTICE_FILTER,
        settings.review_url,
        format=settings.review_format,
        retry_seconds=RETRY_SECONDS,
        lease_seconds=LEASE_SECONDS,
        private=is_loopback(urlsplit(settings.review_url).hostname or ""),
    )
    token = settings.review_token
    try:
        have = yield from bus.rules.get(NOTICE_RULE)
    except NotFound:
        _check_token(settings, token)
        return (yield from make_rule(bus, wanted, rulebook.make_secrets(None, token, None, sign=False)))
    same = _same_address(have, wanted)
    _check_token(settings, (yield from bus.rules.secrets(NOTICE_RULE)).bearer if same and token is None else token)
    if token is not None or not same:  # before the rule is changed
        yield from bus.rules.change_secrets(
            NOTICE_RULE, lambda old: msgspec.structs.replace(old, bearer=token, basic=None)
        )
    return (yield from change_rule(bus, have, wanted))


def _check_token(settings: ModerationSettings, token: str | None) -> None:
    """Said before anything is flagged: nobody looks for a notice that does not come."""
    if settings.review_format == "pagerduty" and not token:
        raise Invalid(f"PagerDuty needs the routing key of an integration; set {REVIEW_WEBHOOK_TOKEN} to it")


def _same_address(have: Rule, wanted: Rule) -> bool:
    """Whether the same is told in the same way: PagerDuty's token is a part of what is told."""
    if not isinstance(have.to, Webhook) or not isinstance(wanted.to, Webhook):
        return False
    return (have.to.url, have.to.format) == (wanted.to.url, wanted.to.format)
