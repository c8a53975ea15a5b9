"""Telling people of flagged posts: a rule on `flagged/` whose webhook is Slack, PagerDuty or a program of yours.

The log of events is the outbox: the event of the move is durable before anybody is told, and the rule delivers it with
retries, signatures and dead letters like any other. What the messages look like is `events.notices`.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from bucketmq import rulebook
from bucketmq.api.bucket import BucketApi
from bucketmq.apps.moderation.record import FLAGGED
from bucketmq.apps.moderation.settings import REVIEW_WEBHOOK_TOKEN, ModerationSettings
from bucketmq.apps.provide import provide_webhook
from bucketmq.events.rule import Rule
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

    Without an address the rule is left as it is: another process may have one.
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
    return (yield from provide_webhook(bus, wanted, settings.review_token, routing_key=REVIEW_WEBHOOK_TOKEN))
