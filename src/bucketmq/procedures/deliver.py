"""Delivering a rule's events: to a webhook, to a queue, or to a handler; and what becomes of each.

A rule is run by a worker (`procedures.work`) on the rule's own subscription, so leases, retries, dead letters and many
processes at once are as for any queue, and a slow or dead endpoint holds up nobody else. This module says what is done
with what the worker hands over. An event stays on the rule's hands until it is delivered, deliberately dropped, or a
dead letter with every attempt: the acknowledgement after success is the only mark there is.
"""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Sequence
from email.utils import parsedate_to_datetime
from typing import Any, assert_never

import msgspec

from bucketmq import outcomes
from bucketmq.bucket.port import Found, Missing, Object
from bucketmq.errors import BucketMQError, Invalid, Unavailable
from bucketmq.events import filters, formats, notices, signing
from bucketmq.events.event import ObjectEvent, event_id, plain_version, seconds_of, time_text
from bucketmq.events.filters import NO_JSON, UNFETCHED, Decision, Known
from bucketmq.events.rule import Policy, Rule, Secrets, ToQueue, ToWatcher, Webhook, verdict, wait_seconds
from bucketmq.log.layout import is_bookkeeping
from bucketmq.procedures.events import Attempt, events_queue, full_key, message_key, record
from bucketmq.procedures.keeper import Keeper
from bucketmq.procedures.opened import OpenBucket
from bucketmq.procedures.queues import check_queue_name, open_queue
from bucketmq.procedures.reading import RuleChoice, event_of
from bucketmq.procedures.receive import Lot
from bucketmq.procedures.requests import Answer, Call, Chance, NewId, NoAnswer, Now, Pause, Post, Procedure
from bucketmq.procedures.rules import get_secrets, pause_rule
from bucketmq.procedures.send import send_messages
from bucketmq.procedures.stamps import hops_of
from bucketmq.procedures.subscription import OpenSubscription
from bucketmq.procedures.verbs import get, look
from bucketmq.procedures.work import Piece, Work, failure_text
from bucketmq.queue.message import Message

PREFETCH = 4
PREFETCH_MAX = 2_000
QUEUE_BATCH = 100
BREAKER_STEP_SECONDS = 0.5
ANSWER_CHARS_MAX = 1_024
SECRETS_SECONDS = 30.0
"""How long secrets are believed before they are read again, so that a rotation is noticed."""

log = logging.getLogger("bucketmq")

Environment = Callable[[str], str | None]
Wrap = Callable[[Callable[[Any], Any], ObjectEvent, int], Any]
"""Makes what a watcher's handler is given, of the handler, the event and the number of the attempt."""


class Counts:
    """What a rule came to in this process, since it started."""

    def __init__(self) -> None:
        self.done = 0
        self.failed = 0
        self.buried = 0
        self.dropped = 0


class RuleRun:
    """One rule as one process runs it."""

    def __init__(
        self,
        bucket: OpenBucket,
        rule: Rule,
        *,
        environment: Environment = lambda _: None,
        handler: Callable[[Any], Any] | None = None,
        wrap: Wrap | None = None,
    ) -> None:
        self.bucket = bucket
        self.rule = rule
        self.filter = filters.parse(rule.filter)
        self.choice = RuleChoice(rule, self.filter)
        self.environment = environment
        self.handler = handler
        self.wrap = wrap
        self.counts = Counts()
        self.lock = threading.Lock()
        """Over what follows: a rule's requests run on several threads."""
        self.failures_in_a_row = 0
        self.shut_until = 0.0
        """The breaker: nothing is sent before this time."""
        self.shut_seconds = rule.policy.breaker.seconds
        self.trying = False
        """Whether one request is out to see if the endpoint is back."""
        self.next_send_at = 0.0
        self.work: Work | None = None
        self.control: Callable[[Message, Piece], Procedure[object]] | None = None
        """What to do with a message to this rule that is no event (see `procedures.gather`)."""
        self.act: Callable[[Parcel], Procedure[None]] | None = None
        """What to do with an event instead of calling the handler with it (see `procedures.gather`)."""
        self._secrets: tuple[Secrets, float] | None = None

    @property
    def stopping(self) -> bool:
        return self.work is not None and self.work.ending

    def secrets(self) -> Procedure[Secrets]:
        now: float = yield Now()
        if self._secrets is None or now - self._secrets[1] > SECRETS_SECONDS:
            self._secrets = (yield from get_secrets(self.bucket, self.rule.name)), now
        return self._secrets[0]


def begin_run(run: RuleRun, keeper: Keeper, *, stop_when_empty: bool = False) -> Procedure[Work]:
    """A worker for the rule, ready to go."""
    queue = yield from events_queue(run.bucket)
    queue.choices[run.rule.subscription] = run.choice
    sub = OpenSubscription(queue, run.rule.subscription)
    for shard in range(queue.settings.shards):
        sub.desk(shard).choice = run.choice  # a desk may be left from an earlier run in this process
    keeper.watch(sub)
    policy, batch = run.rule.policy, batch_of(run.rule)
    run.work = Work(
        sub,
        keeper,
        lambda pieces: handle(run, pieces),
        _as_they_are,
        concurrency=policy.concurrency,
        prefetch=min(PREFETCH_MAX, PREFETCH * policy.concurrency * batch),
        lease_seconds=policy.lease_seconds,
        stop_when_empty=stop_when_empty,
        batch=batch,
        trims=False,
    )
    return run.work


def batch_of(rule: Rule) -> int:
    match rule.to:
        case Webhook(batch=batch):
            return batch
        case ToQueue():
            return QUEUE_BATCH
        case ToWatcher():
            return 1
        case _:
            assert_never(rule.to)


def _as_they_are(lot: Lot) -> Procedure[list[Message]]:
    yield Now()  # a procedure asks for something
    return lot.messages


class End(msgspec.Struct, frozen=True):
    """How an attempt ended."""

    what: str
    """done, retry, bury or pause"""
    reason: str = ""
    status: int | None = None
    seconds: float = 0.0
    after: float | None = None
    """When the other side would like the next attempt, in seconds from now."""
    exactly: bool = False
    """Whether that is an order rather than a wish."""


class Parcel(msgspec.Struct):
    """One event on its way, and what becomes of it."""

    piece: Piece
    event: ObjectEvent
    outcome: object = None


def handle(run: RuleRun, pieces: list[Piece]) -> Procedure[list[object]]:
    """What becomes of each of these, after everything that can be done for it now was done."""
    results: dict[int, object] = {}
    parcels: list[Parcel] = []
    for place, piece in enumerate(pieces):
        message: Message = piece.delivery
        event = event_of(message)
        if event is None:
            results[place] = yield from _control(run, message, piece)
            continue
        outcome = yield from _examine(run, piece, event)
        if outcome is None:
            parcels.append(Parcel(piece, event))
            results[place] = parcels[-1]
        else:
            run.counts.buried += isinstance(outcome, outcomes.Bury)
            run.counts.dropped += isinstance(outcome, outcomes.Done)
            results[place] = outcome
    if parcels:
        yield from _send(run, parcels)
    return [each.outcome if isinstance(each, Parcel) else each for _, each in sorted(results.items())]


def _control(run: RuleRun, message: Message, piece: Piece) -> Procedure[object]:
    if run.control is None:
        return outcomes.Bury("this is no event; only events belong into the queue `events`")
    return (yield from run.control(message, piece))


def _examine(run: RuleRun, piece: Piece, event: ObjectEvent) -> Procedure[object]:
    """None if the event is to be delivered, otherwise what becomes of it instead."""
    if run.choice.drops_stale and run.choice.is_superseded(piece.lot.desk, event):
        return outcomes.Done()
    return (yield from examine(run.bucket, run.rule.name, run.filter, run.rule.policy, event))


def examine(
    bucket: OpenBucket, name: str, chosen: filters.Filter, policy: Policy, event: ObjectEvent
) -> Procedure[outcomes.Done | outcomes.Bury | None]:
    """What the filter and the policy of the rule `name` make of an event: None if it is to be delivered. A HEAD if the
    policy wants to know whether the object is gone, and what the filter needs."""
    if not (yield from matches(bucket, chosen, event, body_bytes_max=policy.body_bytes_max)):
        return outcomes.Done()
    hops = event.hops
    if policy.gone != "deliver" and event.kind in ("created", "changed", "moved"):
        found = yield from look_at(bucket, event.key)
        if isinstance(found, Missing) or is_newer(found, event):
            state = "gone" if isinstance(found, Missing) else "in another version"
            return outcomes.Done() if policy.gone == "drop" else outcomes.Bury(f"{event.key!r} is {state} by now")
        hops = max(hops, hops_of(found.attributes))  # native notifications do not tell
    if hops > policy.hops_max:
        chain = " -> ".join(event.lineage[-4:]) or "which ones is not known"
        return outcomes.Bury(
            f"loop guard: {event.key!r} was written in the {hops}th hop of a chain of events ({chain}), and rule "
            f"{name} allows {policy.hops_max}; break the loop, or raise hops_max"
        )
    return None


def is_newer(found: Found | Object, event: ObjectEvent) -> bool:
    """Whether the object was written again since. The version alone does not tell: a source may write it otherwise than
    the store does."""
    if event.version is None or plain_version(found.version) == event.version:
        return False
    return found.stored_at > seconds_of(event.at)


def look_at(bucket: OpenBucket, key: str) -> Procedure[Found | Missing]:
    """The object's state; missing too if it has a key that no object of ours can have."""
    try:
        return (yield from look(full_key(bucket, key)))
    except Invalid:
        return Missing()


def matches(bucket: OpenBucket, chosen: filters.Filter, event: ObjectEvent, *, body_bytes_max: int) -> Procedure[bool]:
    """Whether the filter holds, fetching what it needs of the object: nothing, a HEAD, or a GET of the body, once."""
    decision = chosen.decide(event)
    known: Any = UNFETCHED
    body: Any = UNFETCHED
    while decision not in (Decision.MATCH, Decision.NO_MATCH):
        if decision is Decision.NEEDS_ATTRIBUTES:
            found = yield from look_at(bucket, event.key)
            known = Known()
            if isinstance(found, Found):
                attributes = found.attributes
                known = Known(
                    content_type=attributes.content_type or None,
                    metadata=attributes.metadata,
                    size_bytes=found.size_bytes,
                )
        else:
            body = yield from json_body(bucket, event, body_bytes_max)
        decision = chosen.decide(event, known, body)
    return decision is Decision.MATCH


def json_body(bucket: OpenBucket, event: ObjectEvent, bytes_max: int) -> Procedure[Any]:
    """The object's JSON, or `NO_JSON` if it is gone, too large or something else. One GET, after a HEAD if the event
    does not tell the size."""
    if event.kind == "deleted":
        return NO_JSON
    size = event.size_bytes
    if size is None:
        found = yield from look_at(bucket, event.key)
        size = bytes_max + 1 if isinstance(found, Missing) else found.size_bytes
    if size > bytes_max:
        return NO_JSON
    try:
        whole = yield from get(full_key(bucket, event.key))
    except Invalid:
        return NO_JSON
    if isinstance(whole, Missing) or len(whole.body) > bytes_max:
        return NO_JSON
    try:
        return msgspec.json.decode(whole.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return NO_JSON


def _send(run: RuleRun, parcels: list[Parcel]) -> Procedure[None]:
    match run.rule.to:
        case Webhook() as to:
            yield from _to_webhook(run, to, parcels)
        case ToQueue(queue=name):
            yield from _to_queue(run, name, parcels)
        case ToWatcher():
            for parcel in parcels:
                yield from (run.act(parcel) if run.act is not None else _to_handler(run, parcel))
        case _:
            assert_never(run.rule.to)


def _to_webhook(run: RuleRun, to: Webhook, parcels: list[Parcel]) -> Procedure[None]:
    """One request. Its answer's status decides for all, unless a 2xx names the events that failed."""
    leave = yield from _may_send(run)
    if leave is None:
        for parcel in parcels:
            parcel.outcome = outcomes.Release()
        return
    try:
        answer = yield from _post(run, to, parcels)
    except BaseException:
        with run.lock:
            run.trying = run.trying and not leave.trial
        raise
    if isinstance(answer, NoAnswer):
        _note_failure(run, leave, (yield Now()))
        yield from _settle_all(run, parcels, End("retry", answer.reason, None, answer.seconds))
        return
    now: float = yield Now()
    what = verdict(to, answer.status)
    if what == "done":
        _note_success(run)
        failed = formats.failures(answer.body, [parcel.event.id for parcel in parcels]) or {}
        named = [parcel for parcel in parcels if parcel.event.id in failed]
        others = [parcel for parcel in parcels if parcel.event.id not in failed]
        yield from _settle_all(run, others, End("done", "", answer.status, answer.seconds))
        for parcel in named:
            why = f"the answer names it as failed: {failed[parcel.event.id] or 'no reason given'}"
            yield from _settle_all(run, [parcel], End("retry", why, answer.status, answer.seconds))
        return
    if what == "retry":
        _note_failure(run, leave, now)
    else:
        _note_success(run)  # it is there and answers; what it says is about this event
    reason = f"HTTP {answer.status} after {answer.seconds:.2f} s\n{_text(answer.body)}"
    after = retry_after(answer.headers.get("retry-after"), now)
    if after is not None and what == "retry":
        run.shut_until = max(run.shut_until, now + min(after, run.rule.policy.breaker.seconds_max))
    if what == "pause":
        yield from _pause(run, f"{to.url} answered {answer.status}")
    yield from _settle_all(run, parcels, End(what, reason, answer.status, answer.seconds, after))


def _post(run: RuleRun, to: Webhook, parcels: Sequence[Parcel]) -> Procedure[Answer | NoAnswer]:
    try:
        body, content_type = yield from _encoded(run, to, [parcel.event for parcel in parcels])
        headers = yield from _headers(run, parcels, body, content_type)
    except Invalid as error:
        return NoAnswer(str(error), 0.0, refused=True)
    answer: Answer | NoAnswer = yield Post(to.url, headers, body, to.timeout_seconds, to.private)
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
    """Who we are and that it is us. A batch's id is made of its events', so the same batch has the same id again."""
    secrets = yield from run.secrets()
    now: float = yield Now()
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


class _Leave(msgspec.Struct, frozen=True):
    """That one request may be sent now."""

    trial: bool
    """Whether it is the one that sees if the endpoint is back."""


def _may_send(run: RuleRun) -> Procedure[_Leave | None]:
    """Wait for the breaker and the rate; None if the rule is to stop before that."""
    while not run.stopping:
        now: float = yield Now()
        with run.lock:
            found = _turn(run, now)
        if isinstance(found, _Leave):
            return found
        yield Pause(min(found, BREAKER_STEP_SECONDS))
    return None


def _turn(run: RuleRun, now: float) -> _Leave | float:
    """Leave to send, or how long to wait before asking again."""
    policy = run.rule.policy
    if now < run.shut_until or run.trying:
        return max(run.shut_until - now, 0.05)
    if policy.rate_per_second > 0:
        if now < run.next_send_at:
            return run.next_send_at - now
        run.next_send_at = max(now, run.next_send_at) + 1 / policy.rate_per_second
    run.trying = run.failures_in_a_row >= policy.breaker.failures
    return _Leave(run.trying)


def _note_failure(run: RuleRun, leave: _Leave, now: float) -> None:
    breaker = run.rule.policy.breaker
    with run.lock:
        run.failures_in_a_row += 1
        if leave.trial:
            run.trying = False
            run.shut_seconds = min(run.shut_seconds * 2, breaker.seconds_max)
            run.shut_until = max(run.shut_until, now + run.shut_seconds)
        elif run.failures_in_a_row == breaker.failures:  # those that were out by then open it no further
            run.shut_until = max(run.shut_until, now + run.shut_seconds)
            log.warning("action=breaker_open rule=%s failures=%d", run.rule.name, run.failures_in_a_row)


def _note_success(run: RuleRun) -> None:
    with run.lock:
        run.failures_in_a_row, run.trying = 0, False
        run.shut_seconds = run.rule.policy.breaker.seconds


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
    log.warning("action=rule_paused rule=%s %s", run.rule.name, why)
    try:
        yield from pause_rule(run.bucket, run.rule.name, why)
    except BucketMQError as error:
        log.warning("action=pause_failed rule=%s kind=%s %s", run.rule.name, error.kind, error)
    if run.work is not None:
        run.work.stop()


def _settle_all(run: RuleRun, parcels: Sequence[Parcel], end: End) -> Procedure[None]:
    """Say what becomes of these, and note it in the journal."""
    attempts = []
    at = time_text((yield Now()))
    for parcel in parcels:
        final = yield from _settle(run, parcel, end)
        attempts.append(
            Attempt(
                rule=run.rule.name,
                event=parcel.event.id,
                key=parcel.event.key,
                attempt=parcel.piece.attempt,
                outcome=final,
                at=at,
                happened_at=parcel.event.at,
                seconds=round(end.seconds, 3),
                status=end.status,
                reason=end.reason[:200],
            )
        )
    yield from record(run.bucket, attempts)


def _settle(run: RuleRun, parcel: Parcel, end: End) -> Procedure[str]:
    counts = run.counts
    match end.what:
        case "done":
            counts.done += 1
            parcel.outcome = outcomes.Done()
        case "pause":
            parcel.outcome = outcomes.Release()
        case "bury":
            counts.buried += 1
            parcel.outcome = outcomes.Bury(end.reason)
        case _:
            wait = wait_seconds(run.rule.policy, parcel.piece.attempt, (yield Chance()), end.after)
            counts.failed += 1
            if wait is None:
                counts.buried += 1
                parcel.outcome = outcomes.Bury(end.reason)
                return "bury"
            wanted = end.after if end.exactly and end.after is not None else wait
            parcel.outcome = outcomes.Retry(end.reason, delay_seconds=wanted)
    return end.what


def _to_queue(run: RuleRun, name: str, parcels: list[Parcel]) -> Procedure[None]:
    """One PUT for all of them."""
    began: float = yield Now()
    try:
        queue = yield from open_queue(run.bucket, check_queue_name(name), {})
        at, id_ = time_text(began), (yield NewId())
        headers = {"bucketmq-rule": run.rule.name}
        messages = [
            Message(
                f"{id_}-{place}",
                at,
                message_key(parcel.event.key),
                {**headers, "event-id": parcel.event.id},
                parcel.event,
            )
            for place, parcel in enumerate(parcels)
        ]
        yield from send_messages(queue, messages)
    except Unavailable as error:
        yield from _settle_all(run, parcels, End("retry", str(error), None, (yield Now()) - began))
        return
    yield from _settle_all(run, parcels, End("done", "", None, (yield Now()) - began))


def _to_handler(run: RuleRun, parcel: Parcel) -> Procedure[None]:
    assert run.handler is not None and run.wrap is not None, "a watcher's rule is run by who has its handler"
    began: float = yield Now()
    if is_bookkeeping(parcel.event.key):
        parcel.outcome = outcomes.Done()
        return
    change = run.wrap(run.handler, parcel.event, parcel.piece.attempt)
    try:
        outcome = yield Call(run.handler, change)
    except (Exception, SystemExit) as error:
        # Moved, deleted or changed between our look and the handler's: a newer event tells of it, this one is over.
        over = run.rule.policy.gone == "drop" and getattr(change, "is_over", False)
        outcome = outcomes.Done() if over else outcomes.Retry(failure_text(error))
    yield from settle_outcome(run, parcel, outcome, (yield Now()) - began)


def settle_outcome(run: RuleRun, parcel: Parcel, outcome: object, seconds: float) -> Procedure[None]:
    """What a handler returned, by the rule's policy."""
    if isinstance(outcome, type) and issubclass(outcome, outcomes.Outcome):
        outcome = outcome()
    match outcome:
        case outcomes.Retry(reason, delay_seconds):
            yield from _settle_all(run, [parcel], End("retry", reason, None, seconds, delay_seconds, exactly=True))
        case outcomes.Bury(reason):
            yield from _settle_all(run, [parcel], End("bury", reason, None, seconds))
        case outcomes.Release():
            parcel.outcome = outcome
        case _:
            yield from _settle_all(run, [parcel], End("done", "", None, seconds))
