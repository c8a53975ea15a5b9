"""To a webhook: the request, signed, and what its answer says of the events in it.

When a request may be sent is `rules.breaker`; what becomes of its events is `rules.settle`; the bodies are
`bucketmq.events.formats` and `notices`.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from email.utils import parsedate_to_datetime

from bucketmq import outcomes
from bucketmq.errors import BucketMQError, Invalid
from bucketmq.events import formats, notices, signing
from bucketmq.events.event import ObjectEvent, event_id
from bucketmq.events.filters import NO_JSON
from bucketmq.events.rule import Webhook, verdict
from bucketmq.procedures.requests import Answer, NoAnswer, Now, Post, Procedure
from bucketmq.procedures.rules.breaker import hold_off, may_send, not_tried, note_failure, note_success
from bucketmq.procedures.rules.examine import json_body
from bucketmq.procedures.rules.registry import pause_rule
from bucketmq.procedures.rules.run import Environment, Parcel, RuleRun
from bucketmq.procedures.rules.settle import End, settle_all

ANSWER_CHARS_MAX = 1_024

logger = logging.getLogger("bucketmq")


def to_webhook(run: RuleRun, to: Webhook, parcels: list[Parcel]) -> Procedure[None]:
    """One request. Its answer's status decides for all, unless a 2xx names the events that failed."""
    leave = yield from may_send(run)
    if leave is None:
        for parcel in parcels:
            parcel.outcome = outcomes.Release()
        return
    try:
        answer = yield from _post(run, to, parcels)
    except BaseException:
        not_tried(run, leave)
        raise
    if isinstance(answer, NoAnswer):
        note_failure(run, leave, (yield from Now()))
        yield from settle_all(run, parcels, End("retry", answer.reason, None, answer.seconds))
        return
    now = yield from Now()
    what = verdict(to, answer.status)
    if what == "done":
        note_success(run)
        failed = formats.failures(answer.body, [parcel.event.id for parcel in parcels]) or {}
        named = [parcel for parcel in parcels if parcel.event.id in failed]
        others = [parcel for parcel in parcels if parcel.event.id not in failed]
        yield from settle_all(run, others, End("done", "", answer.status, answer.seconds))
        for parcel in named:
            why = f"the answer names it as failed: {failed[parcel.event.id] or 'no reason given'}"
            yield from settle_all(run, [parcel], End("retry", why, answer.status, answer.seconds))
        return
    if what == "retry":
        note_failure(run, leave, now)
    else:
        note_success(run)  # it is there and answers; what it says is about this event
    reason = f"HTTP {answer.status} after {answer.seconds:.2f} s\n{_text(answer.body)}"
    after = retry_after(answer.headers.get("retry-after"), now)
    if after is not None and what == "retry":
        hold_off(run, after, now)
    if what == "pause":
        yield from _pause(run, f"{to.url} answered {answer.status}")
    yield from settle_all(run, parcels, End(what, reason, answer.status, answer.seconds, after))


def _post(run: RuleRun, to: Webhook, parcels: Sequence[Parcel]) -> Procedure[Answer | NoAnswer]:
    try:
        body, content_type = yield from _encoded(run, to, [parcel.event for parcel in parcels])
        headers = yield from _headers(run, parcels, body, content_type)
    except Invalid as error:
        return NoAnswer(str(error), 0.0, refused=True)
    answer: Answer | NoAnswer = yield from Post(to.url, headers, body, to.timeout_seconds, to.private)
    return answer


def _encoded(run: RuleRun, to: Webhook, events: list[ObjectEvent]) -> Procedure[tuple[bytes, str]]:
    """The body and its content type. A notice shows what the object says: one GET."""
    match to.format:
        case "slack" | "json" | "pagerduty":
            content = yield from json_body(run.bucket, events[0], run.rule.policy.body_bytes_max)
            secrets = yield from run.secrets()
            routing_key = None if secrets.bearer is None else resolve(secrets.bearer, run.environment)
            shown = None if content is NO_JSON else content
            return notices.encode(to.format, events[0], shown, routing_key=routing_key), formats.JSON
        case _:
            return formats.encode(to.format, events)


def _headers(run: RuleRun, parcels: Sequence[Parcel], body: bytes, content_type: str) -> Procedure[dict[str, str]]:
    """Which rule and attempt, and the proof that it is us. The same batch has the same id again: it is made of its
    events' ids."""
    secrets = yield from run.secrets()
    now = yield from Now()
    ids = [parcel.event.id for parcel in parcels]
    message_id = ids[0] if len(ids) == 1 else event_id("batch", "", *ids)
    headers = {
        "content-type": content_type,
        "user-agent": "bucketmq",
        "bucketmq-rule": run.rule.name,
        "bucketmq-attempt": str(max(parcel.piece.attempt for parcel in parcels)),
    }
    signing_secrets = [resolve(each, run.environment) for each in secrets.signing]
    if signing_secrets:
        headers |= signing.sign(signing_secrets, message_id, int(now), body)
    else:
        headers |= {"webhook-id": message_id, "webhook-timestamp": str(int(now))}
    in_body = isinstance(run.rule.to, Webhook) and run.rule.to.format == "pagerduty"
    bearer = None if secrets.bearer is None or in_body else resolve(secrets.bearer, run.environment)
    basic = None if secrets.basic is None else resolve(secrets.basic, run.environment)
    authorization = signing.authorization(bearer=bearer, basic=basic)
    return headers if authorization is None else {**headers, "authorization": authorization}


def resolve(secret: str, environment: Environment) -> str:
    """A secret as given, or from the environment if it is written `env:NAME`."""
    if not secret.startswith("env:"):
        return secret
    found = environment(secret.removeprefix("env:"))
    if not found:
        raise Invalid(f"the secret {secret} is not in the environment of the process that delivers; set it there")
    return found


def retry_after(text: str | None, now: float) -> float | None:
    """What a `Retry-After` header asks for, in seconds from now; None for none or nonsense."""
    if text is None:
        return None
    text = text.strip()
    if text.isascii() and text.isdigit() and len(text) < 10:
        return float(text)
    try:
        seconds = parsedate_to_datetime(text).timestamp() - now
    except (TypeError, ValueError, OverflowError, IndexError):
        return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def _text(body: bytes) -> str:
    return body[:ANSWER_CHARS_MAX].decode("utf-8", "replace")


def _pause(run: RuleRun, why: str) -> Procedure[None]:
    """Stop the whole rule, for every process that runs it; what it has in hand goes back."""
    logger.warning("action=rule_paused rule=%s %s", run.rule.name, why)
    try:
        yield from pause_rule(run.bucket, run.rule.name, why)
    except BucketMQError as error:
        logger.warning("action=pause_failed rule=%s kind=%s %s", run.rule.name, error.kind, error)
    if run.work is not None:
        run.work.stop()
