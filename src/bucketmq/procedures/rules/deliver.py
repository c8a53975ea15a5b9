"""Delivering a rule's events: what is done with what a worker hands over, and where it goes.

A rule is run by a worker (`working.work`) on the rule's own subscription, so leases, retries, dead letters and many
processes at once are as for any queue, and a slow or dead endpoint holds up nobody else. An event stays on the rule's
hands until it is delivered, deliberately dropped, or a dead letter with every attempt: the acknowledgement after
success is the only mark there is.

Whether an event is to be delivered is `rules.examine`; a webhook is `rules.webhook`; what becomes of each is
`procedures.rules.settle`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import assert_never

from bucketmq import outcomes
from bucketmq.errors import BucketMQError, Invalid, Unavailable
from bucketmq.events.event import ObjectEvent, time_text
from bucketmq.events.rule import Rule, ToQueue, ToWatcher, Webhook
from bucketmq.log.layout import is_bookkeeping
from bucketmq.procedures.abreast import abreast
from bucketmq.procedures.claiming.claim import Lot
from bucketmq.procedures.claiming.receive import open_subscription
from bucketmq.procedures.objects.report import events_queue, message_key
from bucketmq.procedures.queues import check_queue_name, open_queue
from bucketmq.procedures.requests import Call, NewId, Now, Procedure
from bucketmq.procedures.rules.choice import event_of
from bucketmq.procedures.rules.examine import examine
from bucketmq.procedures.rules.run import Parcel, RuleRun
from bucketmq.procedures.rules.settle import End, settle_all, settle_outcomes
from bucketmq.procedures.rules.webhook import to_webhook
from bucketmq.procedures.sending.send import send_messages
from bucketmq.procedures.working.keeper import Keeper
from bucketmq.procedures.working.work import Piece, Work, failure_text
from bucketmq.queue.message import Message

PREFETCH = 4
PREFETCH_MAX = 2_000
QUEUE_BATCH = 100


def begin_run(run: RuleRun, keeper: Keeper, *, stop_when_empty: bool = False) -> Procedure[Work]:
    """A worker for the rule, ready to go."""
    queue = yield from events_queue(run.bucket)
    queue.choices[run.rule.subscription] = run.choice
    sub = open_subscription(queue, run.rule.subscription)
    for shard in range(queue.settings.shards):
        sub.desk(shard).choice = run.choice  # a desk may be left from an earlier run in this process
    policy, batch = run.rule.policy, run.batch or batch_of(run.rule)
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
        apart=run.batch is not None,
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
    yield from Now()  # a procedure asks for something
    return lot.messages


def handle(run: RuleRun, pieces: list[Piece]) -> Procedure[list[object]]:
    """What becomes of each of these, after everything that can be done for it now was done."""
    events = [event_of(piece.delivery) for piece in pieces]
    verdicts = yield from abreast(
        [
            _examine(run, piece, event) if event is not None else _control(run, piece.delivery)
            for piece, event in zip(pieces, events, strict=True)
        ]
    )
    parcels: list[Parcel] = []
    results: list[object] = []
    for piece, event, outcome in zip(pieces, events, verdicts, strict=True):
        if isinstance(outcome, BucketMQError):
            raise outcome
        if event is not None and outcome is None:
            parcels.append(Parcel(piece, event))
            results.append(parcels[-1])
            continue
        results.append(outcome)
        if event is not None:
            run.counts.buried += isinstance(outcome, outcomes.Bury)
            run.counts.dropped += isinstance(outcome, outcomes.Done)
    if parcels:
        yield from _send(run, parcels)
    return [each.outcome if isinstance(each, Parcel) else each for each in results]


def _control(run: RuleRun, message: Message) -> Procedure[object]:
    if run.control is None:
        return outcomes.Bury("this is not an event; only events belong into the queue `events`")
    return (yield from run.control(message))


def _examine(run: RuleRun, piece: Piece, event: ObjectEvent) -> Procedure[object]:
    """None if the event is to be delivered, otherwise what becomes of it instead."""
    if run.choice.drops_stale and run.choice.is_superseded(piece.lot.desk, event):
        return outcomes.Done()
    return (yield from examine(run.bucket, run.rule.name, run.filter, run.rule.policy, event))


def _send(run: RuleRun, parcels: list[Parcel]) -> Procedure[None]:
    match run.rule.to:
        case Webhook() as to:
            yield from to_webhook(run, to, parcels)
        case ToQueue(queue=name):
            yield from _to_queue(run, name, parcels)
        case ToWatcher():
            if run.act is None:
                yield from _to_handler(run, parcels)
                return
            for parcel in parcels:
                yield from run.act(parcel)
        case _:
            assert_never(run.rule.to)


def _to_queue(run: RuleRun, name: str, parcels: list[Parcel]) -> Procedure[None]:
    """One PUT for all of them."""
    began = yield from Now()
    try:
        queue = yield from open_queue(run.bucket, check_queue_name(name), {})
        at, id_ = time_text(began), (yield from NewId())
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
        yield from settle_all(run, parcels, End("retry", str(error), None, (yield from Now()) - began))
        return
    yield from settle_all(run, parcels, End("done", "", None, (yield from Now()) - began))


def _to_handler(run: RuleRun, parcels: list[Parcel]) -> Procedure[None]:
    """Call the watcher's function, with one change or with a batch of them."""
    handler, wrap = run.handler, run.wrap
    assert handler is not None and wrap is not None, "a watcher's rule is run by the process that has its handler"
    began = yield from Now()
    for parcel in parcels:
        parcel.outcome = outcomes.Done()  # what is ours is for nobody
    parcels = [parcel for parcel in parcels if not is_bookkeeping(parcel.event.key)]
    if not parcels:
        return
    changes = [wrap(handler, parcel.event, parcel.piece.attempt) for parcel in parcels]
    try:
        if run.batch is None:
            (change,) = changes
            answers: Sequence[object] = [(yield from Call(handler, change, parcels[0].piece.crew))]
        else:
            given = run.together(changes)
            answers = _answers((yield from Call(handler, given, parcels[0].piece.crew)), len(changes))
    except (Exception, SystemExit) as error:
        # Moved, deleted or changed between our look and the handler's: a newer event reports it, this one is over.
        drops, reason = run.rule.policy.gone == "drop", failure_text(error)
        answers = [outcomes.Done() if drops and change.is_over else outcomes.Retry(reason) for change in changes]
    yield from settle_outcomes(run, parcels, answers, (yield from Now()) - began)


def _answers(returned: object, count: int) -> Sequence[object]:
    """For each change of a batch what becomes of it, as its handler says: nothing for all of them, or a list."""
    if returned is None:
        return [None] * count
    what = repr(returned)[:200]
    if isinstance(returned, list | tuple):
        odd = [each for each in returned if each is not None and not _is_outcome(each)]
        if len(returned) == count and not odd:
            return returned
        what = f"{odd[0]!r:.200} among them" if odd else f"{len(returned)} outcomes"
    raise Invalid(
        f"the handler was given {count} changes and returned {what}; return nothing if all are done, or a list with "
        "Done(), Retry(...), Bury(...), Release() or None for each, in their order"
    )


def _is_outcome(answer: object) -> bool:
    kind = answer if isinstance(answer, type) else type(answer)
    return issubclass(kind, outcomes.Outcome)
