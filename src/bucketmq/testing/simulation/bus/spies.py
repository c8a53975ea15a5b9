"""Counts what can only be seen inside the production code: which rule of the window collapsed an echo, and the like.

A spy looks and passes on; it changes nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

from bucketmq.events import window
from bucketmq.events.event import OBSERVED, ObjectEvent
from bucketmq.procedures.objects import notes, recover, sweep
from bucketmq.procedures.objects.notes import Note
from bucketmq.procedures.requests import Procedure
from bucketmq.procedures.rules import breaker, fan_in, webhook
from bucketmq.procedures.rules.run import RuleRun


@contextmanager
def spying(covered: Counter[str]) -> Iterator[None]:
    """Count into `covered` while the block runs."""
    with ExitStack() as stack:
        stack.enter_context(patch.object(window, "_echoes", _echoes(window._echoes, covered)))
        stack.enter_context(patch.object(window.Window, "judge", _judge(window.Window.judge, covered)))
        stack.enter_context(patch.object(sweep, "take", _superseded(sweep.take, covered)))
        stack.enter_context(patch.object(recover, "_what_happened", _recovered(recover._what_happened, covered)))
        stack.enter_context(patch.object(recover, "encode_notes", _shortened(notes.encode_notes, covered)))
        stack.enter_context(patch.object(webhook, "note_failure", _failed(breaker.note_failure, covered)))
        stack.enter_context(patch.object(webhook, "note_success", _succeeded(breaker.note_success, covered)))
        stack.enter_context(patch.object(fan_in, "_is_for_another", _left(fan_in._is_for_another, covered)))
        stack.enter_context(patch.object(fan_in, "_renewed", _renewed(fan_in._renewed, covered)))
        yield


def _judge(original: Callable[..., Any], covered: Counter[str]) -> Callable[..., Any]:
    def judge(self: window.Window, offset: int, event: ObjectEvent) -> Any:
        covered["echo by id (1)"] += event.id in self._ids
        verdict = original(self, offset, event)
        covered["stale"] += verdict.stale
        return verdict

    return judge


def _echoes(original: Callable[..., bool], covered: Counter[str]) -> Callable[..., bool]:
    def echoes(telling: Any, event: ObjectEvent, *, gone: bool) -> bool:
        found = original(telling, event, gone=gone)
        if found:
            covered[_rule(telling, event, gone=gone)] += 1
        return found

    return echoes


def _rule(telling: Any, event: ObjectEvent, *, gone: bool) -> str:
    if gone:
        return "echo of a deletion"
    if event.exact:
        return "echo of an exact version (2a)"
    if event.source in OBSERVED or telling.observed is not None:
        return "echo of an observed state (2b)"
    return "echo of a telling (2c)"


def _superseded(original: Callable[..., Procedure[Any]], covered: Counter[str]) -> Callable[..., Procedure[Any]]:
    def take(bucket: Any, work: sweep.Work, compared: list[sweep.Compared], **options: Any) -> Procedure[sweep.Work]:
        after: sweep.Work = yield from original(bucket, work, compared, **options)
        named = {chunk.name for chunk in after.manifest.chunks}
        covered["sweep superseded"] += any(sweep.names_of(each.successors) - named for each in compared)
        return after

    return take


def _recovered(original: Callable[..., Procedure[Any]], covered: Counter[str]) -> Callable[..., Procedure[Any]]:
    def what_happened(bucket: Any, note: Note, *rest: Any, **options: Any) -> Procedure[Any]:
        event = yield from original(bucket, note, *rest, **options)
        covered[f"{note.verb} {'recovered from' if event is not None else 'not seen behind'} a note"] += 1
        return event

    return what_happened


def _shortened(original: Callable[..., bytes], covered: Counter[str]) -> Callable[..., bytes]:
    def encode_notes(*arguments: Any) -> bytes:
        covered["part of a batch recovered"] += 1
        return original(*arguments)

    return encode_notes


def _failed(original: Callable[..., None], covered: Counter[str]) -> Callable[..., None]:
    def note_failure(run: RuleRun, *rest: Any) -> None:
        covered["breaker tried and failed"] += run.failures_in_a_row >= run.rule.policy.breaker.failures
        original(run, *rest)
        covered["breaker opened"] += run.failures_in_a_row == run.rule.policy.breaker.failures

    return note_failure


def _succeeded(original: Callable[..., None], covered: Counter[str]) -> Callable[..., None]:
    def note_success(run: RuleRun, *rest: Any) -> None:
        covered["breaker closed again"] += run.failures_in_a_row >= run.rule.policy.breaker.failures
        original(run, *rest)

    return note_success


def _left(original: Callable[..., bool], covered: Counter[str]) -> Callable[..., bool]:
    def is_for_another(*arguments: Any) -> bool:
        found = original(*arguments)
        covered["set left to another worker"] += found
        return found

    return is_for_another


def _renewed(original: Callable[..., Any], covered: Counter[str]) -> Callable[..., Any]:
    def renewed(*arguments: Any) -> Any:
        covered["right to fire renewed"] += 1
        return original(*arguments)

    return renewed
