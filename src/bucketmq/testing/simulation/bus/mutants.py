"""Planted bugs of the event bus: each takes away one thing it relies on. A simulator that does not see them is blind.

How they are planted and looked for is in `bucketmq.testing.simulation.hunting`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import msgspec

from bucketmq import outcomes
from bucketmq.bucket.port import Version
from bucketmq.events import formats, order, window
from bucketmq.events.event import ObjectEvent
from bucketmq.events.inventory import differences
from bucketmq.events.parse import prefix
from bucketmq.events.rule import Rule, Verdict, Webhook, verdict
from bucketmq.procedures.claiming.receive import begin
from bucketmq.procedures.objects import batches, notes, recover, remove, sweep
from bucketmq.procedures.objects import move as move_object
from bucketmq.procedures.objects import report as reporting
from bucketmq.procedures.objects.keys import full_key
from bucketmq.procedures.objects.remove import remove_state
from bucketmq.procedures.objects.report import events_queue, report
from bucketmq.procedures.requests import Call, Delete, NewId, Now, Procedure
from bucketmq.procedures.rules import choice, deliver, notifier, replay, settle, webhook
from bucketmq.procedures.rules import fan_in as gather
from bucketmq.procedures.rules import registry as rules
from bucketmq.procedures.rules.run import Parcel, RuleRun
from bucketmq.procedures.verbs import delete, get_document, list_all
from bucketmq.queue.message import Message
from bucketmq.testing.simulation.bus.plan import FINE, LEVEL, Tilt, Weather, just
from bucketmq.testing.simulation.bus.run import run_seed
from bucketmq.testing.simulation.faults import NONE, Faults, only
from bucketmq.testing.simulation.hunting import Mutant, Plant, both, everywhere, swap

SEEDS_MAX = 400
"""How many seeds a mutant may survive before it counts as missed."""


def bug(name: str, plant: Plant, tilt: Tilt = LEVEL) -> Mutant:
    """A planted bug, and the scene in which it shows soonest."""
    return Mutant(name, plant, partial(run_seed, tilt=tilt))


# Delivery


def _ack_first(run: RuleRun, pieces: list[Any]) -> Procedure[list[object]]:
    """Marks before the work."""
    for piece in pieces:
        piece.lot.ack(piece.offset)
    return (yield from _handle(run, pieces))


def _forgiving(to: Webhook, status: int) -> Verdict:
    return "done" if status == 500 else _verdict(to, status)


def _drop_while_shut(run: RuleRun, to: Webhook, parcels: list[Parcel]) -> Procedure[None]:
    """An open breaker that drops what comes."""
    now = yield from Now()
    if now < run.shut_until:
        for parcel in parcels:
            parcel.outcome = outcomes.Done()
        return
    yield from _to_webhook(run, to, parcels)


def _fresh_ids(run: RuleRun, parcels: Sequence[Parcel], *rest: Any) -> Procedure[dict[str, str]]:
    headers = yield from _headers(run, parcels, *rest)
    attempt = max(parcel.piece.attempt for parcel in parcels)
    return {**headers, "webhook-id": f"{headers['webhook-id']}-{attempt}"} if attempt > 1 else headers


def _one_attempt(run: RuleRun, parcel: Parcel, end: settle.End) -> Procedure[str]:
    """What failed once is not tried again, nor kept."""
    what = yield from _settle(run, parcel, end)
    if what == "retry":
        parcel.outcome = outcomes.Done()
    return what


_handle, _verdict, _to_webhook = deliver.handle, verdict, webhook.to_webhook
_headers, _settle = webhook._headers, settle._settle


# Duplicates


def _same_version(telling: Any, event: ObjectEvent, *, gone: bool) -> bool:
    """A version that was reported is never reported again."""
    return not gone or _echoes(telling, event, gone=gone)


def _forgets_ids(self: window.Window, offset: int, event: ObjectEvent) -> window.Verdict:
    self._ids.clear()
    return _judge(self, offset, event)


_echoes, _judge = window._echoes, window.Window.judge


# Moves and notes


def _create_anyway(*arguments: Any, replace: bool) -> Procedure[Any]:
    return (yield from _make_target(*arguments, replace=True))


def _remove_anyway(full: str, version: Version) -> Procedure[Any]:
    """Deletes the source whatever it is by now."""
    yield from Delete(full)
    return "removed"


def _delete_first(bucket: Any, found: Any, note: Any, *, replace: bool) -> Procedure[Any]:
    yield from remove_state(full_key(bucket, note.key), found.version)
    return (yield from _copy_and_remove(bucket, found, note, replace=replace))


def _no_note(bucket: Any, written: Sequence[notes.Note]) -> Procedure[str]:
    return (yield from NewId())


def _forgotten_early(bucket: Any, events: Sequence[ObjectEvent], name: str | None) -> Procedure[bool]:
    """The note goes before what it announces was reported."""
    if name is not None:
        yield from notes.withdraw(bucket, name)
    return (yield from _report_noted(bucket, events, None))


def _half_reported(bucket: Any, events: Sequence[ObjectEvent], name: str | None) -> Procedure[bool]:
    """Of several events the first half is told."""
    return (yield from _report_noted(bucket, events[: (len(events) + 1) // 2], name))


def _one_by_one(notes_: Sequence[notes.Note], since: float | None = None) -> bytes:
    """A note says the first of several writes alone."""
    return _encode_notes(notes_[:1], since)


def _retold(bucket: Any, note: notes.Note, *rest: Any, **options: Any) -> Procedure[ObjectEvent]:
    """Recovering a note reports what it finds under an id of its own."""
    event = yield from _told(bucket, note, *rest, **options)
    return msgspec.structs.replace(event, id=f"{event.id[:-1]}x")


def _rest_forgotten(*arguments: Any) -> bytes:
    """What has not landed of a batch when the rest is recovered is not waited for."""
    return _encode_notes((), None)


_report_noted, _encode_notes, _told = notes.report_noted, notes.encode_notes, notes.told


def _delete_any(full: str, _: Any) -> Procedure[str]:
    """A delete that takes whatever is there when it lands."""
    yield from delete(full)
    return "removed"


def _no_recovery(bucket: Any) -> Procedure[recover.Recovered]:
    yield from Now()
    return recover.Recovered()


_make_target, _copy_and_remove = move_object._make_target, move_object._copy_and_remove


# The sweep


def _commit_first() -> AbstractContextManager[Any]:
    """The manifest is replaced before its events are reported."""
    waiting: list[tuple[Any, list[ObjectEvent]]] = []

    def later(bucket: Any, events: Sequence[ObjectEvent]) -> Procedure[int]:
        waiting.append((bucket, list(events)))
        yield from Now()
        return len(events)

    def take(bucket: Any, *arguments: Any, **options: Any) -> Procedure[Any]:
        told = [each for each in waiting if each[0] is bucket]
        waiting[:] = [each for each in waiting if each[0] is not bucket]
        work = yield from _take(bucket, *arguments, **options)
        for each in told:
            yield from report(*each)
        return work

    return both(swap(sweep, "report", later), swap(sweep, "take", take))()


def _no_deletions(*arguments: Any, **options: Any) -> list[ObjectEvent]:
    return [event for event in differences(*arguments, **options) if event.kind != "deleted"]


def _clocked_ids(events: list[ObjectEvent]) -> Procedure[list[ObjectEvent]]:
    now = yield from Now()
    return [msgspec.structs.replace(event, id=f"{event.id}{now}") for event in (yield from _dated(events))]


_take, _dated = sweep.take, sweep.dated


# Rules


def _no_heads(queue: Any, name: str, start: Any) -> Procedure[None]:
    """The rule is there, and where it begins is left to who runs it first."""
    yield from Now()


def _resume_at_the_end(bucket: Any, name: str) -> Procedure[Rule]:
    """What came while a rule was paused is forgotten."""
    rule: Rule = yield from _resume_rule(bucket, name)
    queue = yield from events_queue(bucket)
    entries, _ = yield from list_all(f"{queue.keys.heads}{rule.subscription}/")
    for entry in entries:
        yield from delete(entry.key)
    yield from begin(queue, rule.subscription, "latest")
    return rule


def _to_everybody(bucket: Any, events: Sequence[ObjectEvent], *, to: str, headers: dict[str, str]) -> Procedure[int]:
    return (yield from report(bucket, events, headers=headers))


def _no_tidying(bucket: Any) -> Procedure[int]:
    yield from Now()
    return 0


def _overwrite(found: Rule, made: Rule) -> Rule:
    """Who makes a rule last wins, with heads of its own."""
    return made


_resume_rule = rules.resume_rule


# Handlers and sets


def _content(run: RuleRun, parcels: Any, answers: Sequence[object], seconds: float) -> Procedure[None]:
    """A handler that failed is not called again."""
    content = [outcomes.Done() if isinstance(answer, outcomes.Retry) else answer for answer in answers]
    yield from _settle_outcomes(run, parcels, content, seconds)


def _fired_first(run: RuleRun, how: gather.Gather, name: str, why: str, message: Message) -> Procedure[object]:
    """The set counts as fired before its handler has returned."""
    me = yield from NewId()

    def fire(before: gather.Gathering) -> gather.Gathering:
        return before if before.fired is not None else msgspec.structs.replace(before, fired=why, firing=me)

    state = yield from gather._change(run, name, fire)
    if state is not None and state.firing == me and run.handler is not None:
        yield from Call(run.handler, gather.complete_of(how, state))
    return outcomes.Done()


def _fires_at_once(run: RuleRun, how: gather.Gather, name: str, why: str, message: Message) -> Procedure[object]:
    """Every worker that finds a set complete calls the handler, without asking whether another one does."""
    found = yield from get_document(gather.Gathering, gather._register(run, name))
    if found is not None and run.handler is not None:
        yield from Call(run.handler, gather.complete_of(how, found[0]))
    return outcomes.Done()


_settle_outcomes = settle.settle_outcomes


HARSH = Weather(answer_500=0.3, answer_503=0.1, no_answer=0.1)
DEATH = Faults(crash=0.015, lost_reply=0.1)
STUMBLE = just(["handler_error"])
POSTS = Tilt(moderation=True, documents=False)
PAPERS = Tilt(documents=True, moderation=False)
BATCHES = Tilt(documents=True, moderation=True, together=8, notifies=False, sweepers=0, weather=FINE)
"""What writers forget is told by nobody else."""

LATE = Tilt(
    documents=True,
    moderation=False,
    together=8,
    notifies=False,
    weather=FINE,
    content_versions=False,
    faults=Faults(late_landing=0.5),
)
"""Versions are exact: where they are hashes, a late delete can meet the same bytes again, and no writer can tell."""


def _tilted(base: Tilt, **fields: Any) -> Tilt:
    return msgspec.structs.replace(base, **fields)


MUTANTS: tuple[Mutant, ...] = (
    bug(
        "an event is acknowledged before it is delivered",
        swap(deliver, "handle", _ack_first),
        _tilted(PAPERS, weather=HARSH),
    ),
    bug("an answer of 500 counts as delivered", swap(webhook, "verdict", _forgiving), _tilted(PAPERS, weather=HARSH)),
    bug("what failed once is dropped", swap(settle, "_settle", _one_attempt), _tilted(PAPERS, weather=HARSH)),
    bug(
        "failed ids in an answer are ignored",
        swap(formats, "failures", lambda body, sent: None),
        _tilted(PAPERS, weather=just(["answer_partial"]), batch=4),
    ),
    bug(
        "an open breaker drops what comes",
        everywhere(webhook.to_webhook, _drop_while_shut),
        _tilted(PAPERS, weather=just(["answer_500", "vanish"])),
    ),
    bug(
        "a redelivery has a new webhook-id",
        swap(webhook, "_headers", _fresh_ids),
        _tilted(PAPERS, weather=HARSH, batch=1),
    ),
    bug(
        "an ordered rule is given a key's events at once",
        swap(choice.RuleChoice, "ordered", False),
        _tilted(PAPERS, ordered=True, batch=1, weather=HARSH),
    ),
    bug(
        "duplicates are told by the version alone",
        swap(window, "_echoes", _same_version),
        _tilted(PAPERS, content_versions=True),
    ),
    bug(
        "an id that was seen is forgotten",
        swap(window.Window, "judge", _forgets_ids),
        _tilted(PAPERS, faults=NONE, weather=just(["notice_doubled"]), notifies=True),
    ),
    bug(
        "times of two clocks are compared exactly",
        swap(order, "CLOCKS_SECONDS", -1.0),
        _tilted(PAPERS, stale="drop", faults=only(["skew"])),
    ),
    bug(
        "bookkeeping makes events",
        both(swap(reporting, "is_bookkeeping", lambda key: False), swap(prefix, "is_bookkeeping", lambda key: False)),
        Tilt(notifies=True),
    ),
    bug(
        "a move creates its target whatever is there",
        swap(move_object, "_make_target", _create_anyway),
        _tilted(POSTS, moving="aside"),
    ),
    bug(
        "a move deletes its source whatever it is",
        everywhere(remove_state, _remove_anyway),
        _tilted(POSTS, faults=only(["slow"])),
    ),
    bug("a move deletes its source first", swap(move_object, "_copy_and_remove", _delete_first), POSTS),
    bug(
        "a write is not announced",
        everywhere(notes.announce, _no_note),
        _tilted(PAPERS, faults=msgspec.structs.replace(DEATH, crash=0.05), victims="writer"),
    ),
    bug(
        "the note of a batch is forgotten before its events are reported",
        everywhere(notes.report_noted, _forgotten_early),
        _tilted(BATCHES, faults=msgspec.structs.replace(DEATH, crash=0.05), victims="writer"),
    ),
    bug("half a batch is reported", everywhere(notes.report_noted, _half_reported), BATCHES),
    bug(
        "half a batch is announced",
        swap(notes, "encode_notes", _one_by_one),
        _tilted(BATCHES, faults=msgspec.structs.replace(DEATH, crash=0.05), victims="writer"),
    ),
    bug(
        "a batch that was reported is recovered under other ids",
        swap(recover, "told", _retold),
        _tilted(BATCHES, faults=msgspec.structs.replace(DEATH, crash=0.05), victims="writer"),
    ),
    bug(
        "what has not landed of a batch is forgotten when the rest is recovered",
        swap(recover, "encode_notes", _rest_forgotten),
        _tilted(BATCHES, faults=Faults(crash=0.01, late_landing=0.5), victims="writer"),
    ),
    bug(
        "a refusal behind an unanswered request is taken for the end",
        swap(batches, "_left_if_unanswered", lambda act: act),
        LATE,
    ),
    bug("objects are deleted whatever their version", swap(remove, "remove_state", _delete_any), LATE),
    bug(
        "a note is never recovered",
        swap(notifier, "recover", _no_recovery),
        _tilted(PAPERS, faults=DEATH, victims="writer"),
    ),
    bug(
        "a sweep commits before it reports",
        _commit_first,
        Tilt(sweepers=2, faults=DEATH, notifies=False, victims="sweeper"),
    ),
    bug(
        "a sweep ignores deletions",
        swap(sweep, "differences", _no_deletions),
        _tilted(PAPERS, sweepers=2, notifies=False),
    ),
    bug(
        "a sweep's ids have the clock in them",
        swap(sweep, "dated", _clocked_ids),
        Tilt(sweepers=3, faults=DEATH, victims="sweeper"),
    ),
    bug("a rule is made without its heads", swap(rules, "begin", _no_heads), Tilt(temp="late")),
    bug(
        "a paused rule forgets what came meanwhile", swap(rules, "resume_rule", _resume_at_the_end), Tilt(temp="pause")
    ),
    bug("a replay is for everybody", swap(replay, "report", _to_everybody), Tilt(temp="replay")),
    bug(
        "a removed rule runs on",
        both(swap(notifier, "_runs", lambda rule: rule.paused is None), swap(notifier, "tidy_rules", _no_tidying)),
        Tilt(temp="remove", weather=FINE),
    ),
    bug(
        "who makes a rule last wins",
        swap(rules, "_made", _overwrite),
        _tilted(POSTS, watchers=2, faults=only(["slow"]), weather=FINE),
    ),
    bug(
        "a handler that failed is not called again",
        everywhere(settle.settle_outcomes, _content),
        _tilted(POSTS, weather=STUMBLE),
    ),
    bug(
        "a set counts as fired before its handler has returned",
        swap(gather, "_fire", _fired_first),
        Tilt(fan_in=True, weather=STUMBLE),
    ),
    bug(
        "every worker that finds a set complete fires it",
        swap(gather, "_fire", _fires_at_once),
        Tilt(fan_in=True, faults=NONE, weather=FINE, watchers=2),
    ),
    bug(
        "the right to fire is not renewed while the handler runs",
        swap(gather, "_renewed", lambda _me, _until, before: before),
        Tilt(fan_in=True, slow_sets=True, faults=NONE, weather=FINE, watchers=2),
    ),
)
