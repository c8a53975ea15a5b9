"""Telling people of alerts: a rule on `alerts/` whose webhook is PagerDuty, Slack or a program of yours.

An alert that appears in `alerts/open/` is told once, when its object is created; that it changes is not told. When it
is moved to `alerts/resolved/` it is told again, as resolved, with the same key. One that was resolved before it could
be told is not told any more (`gone="drop"`). One that is muted is told as resolved, by an object in `alerts/hushed/`,
and from then on not at all: its object has `muted_at`. What the messages look like is `events.notices`.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from bucketmq import rulebook
from bucketmq.api.bucket import BucketApi
from bucketmq.apps.logs.names import HUSHED, OPEN, RESOLVED, RULE
from bucketmq.apps.logs.settings import LogSettings
from bucketmq.apps.provide import provide_webhook
from bucketmq.events.rule import Rule
from bucketmq.procedures.requests import Procedure
from bucketmq.server.access import is_loopback

FILTER = (
    f'WHERE `key` REGEXP "^({OPEN}|{RESOLVED})" AND kind IN ("created", "moved") AND body.muted_at = "" '
    f'OR `key` LIKE "{HUSHED}%" AND kind IN ("created", "changed")'
)
LEASE_SECONDS = 15.0
RETRY_SECONDS = (1.0, 2.0, 5.0, 15.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 18000.0, 36000.0, 36000.0)
"""An alarm: often at first, then for more than a day."""


def set_up(bus: BucketApi, settings: LogSettings) -> Procedure[Rule | None]:
    """Make the rule, or change it if the settings are others than last time; None without an address to tell."""
    if settings.alert_url is None:
        return None
    wanted = rulebook.make_rule(
        RULE,
        FILTER,
        settings.alert_url,
        format=settings.alert_format,
        retry_seconds=RETRY_SECONDS,
        lease_seconds=LEASE_SECONDS,
        gone="drop",
        private=is_loopback(urlsplit(settings.alert_url).hostname or ""),
    )
    return (yield from provide_webhook(bus, wanted, settings.alert_token, routing_key="LOGS_ALERT_TOKEN"))
