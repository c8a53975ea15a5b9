"""The settings of `logs`: options, variables and lines of a file. What they mean to a detector is `detect`'s."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from bucketmq.apps.page import PageSettings
from bucketmq.apps.settings import SECRET, Variable

ANTHROPIC_API_KEY = "ANTHROPIC_API_KEY"


class LogSettings(PageSettings, frozen=True, kw_only=True):
    """What all parts of `logs` share."""

    alert_url: Annotated[
        str | None, Meta(description="the webhook notified of alerts"), Variable("LOGS_ALERT_URL"), SECRET
    ] = None
    alert_format: Annotated[
        Literal["json", "slack", "pagerduty"],
        Meta(description="the format of its requests"),
        Variable("LOGS_ALERT_FORMAT"),
    ] = "json"
    alert_token: Annotated[
        str | None,
        Meta(description="shown there as a bearer token; PagerDuty's routing key"),
        Variable("LOGS_ALERT_TOKEN"),
        SECRET,
    ] = None
    runbook_url: Annotated[
        str,
        Meta(description="a link in each alert; {service}, {kind} and {template} are filled in"),
        Variable("LOGS_RUNBOOK_URL"),
    ] = ""
    new_pattern_level: Annotated[
        Literal["debug", "info", "notice", "warning", "error", "critical"],
        Meta(description="a new pattern of this level or a worse one is an alert"),
        Variable("LOGS_NEW_PATTERN_LEVEL"),
    ] = "warning"
    learning_minutes: Annotated[
        int, Meta(ge=0, description="so long from its first line a service is only learnt"), Variable("LOGS_LEARNING")
    ] = 60
    late_minutes: Annotated[
        int, Meta(ge=0, description="lines later than this are counted, and alert nobody"), Variable("LOGS_LATE")
    ] = 10
    skew_minutes: Annotated[
        int, Meta(ge=0, description="a line that is from the future by more is counted at its object's time")
    ] = 5
    quiet_minutes: Annotated[
        int, Meta(ge=1, description="an incident is over when it did not go on for so long"), Variable("LOGS_QUIET")
    ] = 15
    silence_minutes: Annotated[
        int, Meta(ge=1, description="a service that is quiet for so long, and five times longer than usual, is silent")
    ] = 15
    sequence_field: Annotated[
        str, Meta(description="the field of JSON lines that says what belongs together; default: trace_id and the like")
    ] = ""
    sequence_pattern: Annotated[
        str, Meta(description="or an expression (RE2) whose group `key` says it: (?P<key>blk_-?[0-9]+)")
    ] = ""
    sequences_learnt: Annotated[
        int, Meta(ge=1, description="so many sequences of a service are learnt before one can be odd")
    ] = 1_000
    unpacked_bytes_max: Annotated[
        int, Meta(ge=1_000, description="an object that unpacks to more is a dead letter")
    ] = 256 << 20
    counts_days: Annotated[
        int, Meta(ge=1, description="counts of objects whose lines are older are removed"), Variable("LOGS_COUNTS_DAYS")
    ] = 40
    summarise: Annotated[
        bool, Meta(description="let Claude write a summary into each new alert"), Variable("LOGS_SUMMARISE")
    ] = False
    anthropic_api_key: Annotated[str | None, Variable(ANTHROPIC_API_KEY), SECRET] = None
