"""Telling people of flagged posts: a rule on `flagged/` whose webhook is Slack, PagerDuty or a program of yours.

The log of events is the outbox: the event of the move is durable before anybody is told, and the rule delivers it with
retries, signatures and dead letters like any other. What the messages look like is `events.notices`.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from bucketmq import rulebook
from bucketmq.errors import Invalid, NotFound
from bucketmq.events.rule import Rule, Secrets
from bucketmq.pipelines.moderation.record import FLAGGED
from bucketmq.pipelines.moderation.settings import ModerationSettings
from bucketmq.procedures.bus import BusApi, start_of
from bucketmq.procedures.requests import Procedure
from bucketmq.server.access import is_loopback

NOTICE_RULE = "moderation-notice"
NOTICE_FILTER = f'WHERE `key` REGEXP "^{FLAGGED}" AND kind IN ("created", "changed", "moved")'

LEASE_SECONDS = 15.0
"""How long the notices of a process that died wait for the next one."""

RETRY_SECONDS = (1.0, 2.0, 5.0, 15.0, 30.0, 60.0, 300.0, 1800.0, 7200.0, 18000.0, 36000.0, 36000.0, 36000.0)
"""An alarm: often at first, then for more than a day."""


def set_up(bus: BusApi, settings: ModerationSettings) -> Procedure[Rule | None]:
    """Make the rule, or change it if the settings are others than last time; None without an address to tell.

    A rule that somebody paused stays so, and one that is as it should be keeps its place. Without an address the rule
    is left as it is: another process may have one.
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
    secrets = rulebook.make_secrets(None, settings.review_token, None, sign=False)
    try:
        have = yield from bus.rule(NOTICE_RULE)
    except NotFound:
        return (yield from _make(bus, wanted, secrets))
    same = (have.filter, have.to, have.policy) == (wanted.filter, wanted.to, wanted.policy)
    if same and (secrets is None or (yield from bus.secrets(NOTICE_RULE)).bearer == secrets.bearer):
        return have
    return (yield from bus.add_rule(wanted, secrets, start_of("now"), existing=None, replace=True))


def _make(bus: BusApi, wanted: Rule, secrets: Secrets | None) -> Procedure[Rule]:
    try:
        return (yield from bus.add_rule(wanted, secrets, start_of("now"), existing=None, replace=False))
    except Invalid:  # another process began at the same time and was faster
        return (yield from bus.rule(NOTICE_RULE))
