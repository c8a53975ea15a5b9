"""Fan-in: fire once when a set of objects is complete, or at a deadline with what is missing.

A set is made by key templates such as `results/{job}/a.json` and `results/{job}/b.json`: keys whose placeholders have
the same values belong to one set. What has come of a set is gathered in a register, one object for each set, replaced
with a condition. Whoever finds the set complete takes the right to fire in the register, for as long as a lease lasts,
calls the handler, and marks the set as fired only after the handler returned. A handler that failed is called again.

The deadline is a delayed message to the rule itself, sent before the register is made; so is the message that has the
register deleted long after. Neither is lost when this process is.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Any

import msgspec

from bucketmq import outcomes
from bucketmq.errors import Invalid
from bucketmq.events.event import ObjectEvent, time_text
from bucketmq.log import segment as lines
from bucketmq.log.layout import EventKeys
from bucketmq.procedures.events import events_queue
from bucketmq.procedures.later import put_later
from bucketmq.procedures.requests import Call, NewId, Now, Procedure
from bucketmq.procedures.rule_run import Parcel, RuleRun
from bucketmq.procedures.settle import settle_outcome
from bucketmq.procedures.verbs import delete, get_document, update_document
from bucketmq.procedures.work import Piece, failure_text
from bucketmq.queue.message import Message

FIRING_SECONDS = 120.0
FORGET_SECONDS = 7 * 86400.0
TEMPLATES_MAX = 1_000
EXPRESSIONS_MAX = 50
FILTER_CHARS_MAX = 4_000
_HOLE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Member(msgspec.Struct, frozen=True):
    """One object of a set, as its event told it."""

    key: str
    version: str | None
    event: str


class Gathering(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """`inventory/sets/<subscription>/<name>.json`: what has come of one set."""

    values: dict[str, str] = {}
    """The values of the placeholders."""
    members: dict[str, Member] = {}
    """By template."""
    began_at: str = ""
    firing: str | None = None
    """Who has the right to fire."""
    firing_until: float = 0.0
    fired: str | None = None
    """complete or deadline, once the handler has returned."""
    revision: int = 0
    format: int = 1


class Deadline(msgspec.Struct, frozen=True, tag="deadline", tag_field="gather"):
    """A message to the rule itself: the time of a set is over."""

    name: str


class Forget(msgspec.Struct, frozen=True, tag="forget", tag_field="gather"):
    """A message to the rule itself: nobody needs the register of a set any more."""

    name: str


class Complete(msgspec.Struct, frozen=True):
    """What a `when_all` handler is given."""

    values: dict[str, str]
    keys: tuple[str, ...]
    missing: tuple[str, ...]
    """Keys that did not come before the deadline; empty if the set is complete."""
    versions: dict[str, str | None]


class Gather:
    """The templates of one fan-in, and how long a set may take."""

    def __init__(self, templates: Sequence[str], deadline_seconds: float | None) -> None:
        if not templates or len(set(templates)) != len(templates) or len(templates) > TEMPLATES_MAX:
            raise Invalid(f"when_all needs 1 to {TEMPLATES_MAX} different keys or key templates")
        holes = {frozenset(_HOLE.findall(template)) for template in templates}
        if len(holes) != 1:
            raise Invalid("all templates of a set must have the same placeholders, as in 'a/{id}.json', 'b/{id}.json'")
        if deadline_seconds is not None and not 0 < deadline_seconds <= 366 * 86400:
            raise Invalid("deadline_seconds must be more than 0, at most a year")
        self.templates = tuple(templates)
        self.deadline_seconds = deadline_seconds
        self._patterns = [(template, _pattern(template)) for template in templates]

    def filter(self) -> str:
        """A filter that lets through what may belong to a set: new objects under one of the templates."""
        kinds = "`kind` IN ('created', 'changed', 'moved')"
        expressions = sorted({_expression(template) for template in self.templates})
        keys = " OR ".join(f"`key` REGEXP {_quoted(each)}" for each in expressions)
        if len(expressions) > EXPRESSIONS_MAX or len(keys) > FILTER_CHARS_MAX:
            # Too many to spell out: what they have in common will do, `match` sees to the rest.
            keys = f"`key` REGEXP {_quoted('^' + _escaped(_common_prefix(self.templates)))}"
        return f"WHERE {kinds} AND ({keys})"

    def match(self, key: str) -> list[tuple[str, dict[str, str]]]:
        """The templates that a key fits, with the values of their placeholders."""
        found = ((template, pattern.fullmatch(key)) for template, pattern in self._patterns)
        return [(template, each.groupdict()) for template, each in found if each is not None]


def _pattern(template: str) -> re.Pattern[str]:
    # Our own pattern of plain text and `[^/]+`, so the time it takes is bounded; not one a user wrote.
    seen: set[str] = set()
    parts = []
    for place, part in enumerate(_HOLE.split(template)):
        if place % 2 == 0:
            parts.append(re.escape(part))
        else:
            parts.append(f"(?P={part})" if part in seen else f"(?P<{part}>[^/]+)")
            seen.add(part)
    return re.compile("".join(parts))


def _expression(template: str) -> str:
    return "^" + "[^/]+".join(_escaped(part) for part in _HOLE.split(template)[::2]) + "$"


def _common_prefix(templates: Sequence[str]) -> str:
    """What all keys of a set begin with, whatever the placeholders stand for."""
    heads = [_HOLE.split(template)[0] for template in templates]
    first, last = min(heads), max(heads)
    length = next((place for place, c in enumerate(first) if place >= len(last) or c != last[place]), len(first))
    return first[:length]


def _escaped(text: str) -> str:
    return re.sub(r"([.^$*+?()\[\]{}|\\])", r"\\\1", text)


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "''") + "'"


def set_name(values: dict[str, str]) -> str:
    text = "\0".join(f"{name}\0{value}" for name, value in sorted(values.items()))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def gathering_run(run: RuleRun, gather: Gather) -> RuleRun:
    """A run that gathers instead of calling its handler for every event."""
    run.act = lambda parcel: _act(run, gather, parcel)
    run.control = lambda message, piece: _control(run, gather, message, piece)
    return run


def _act(run: RuleRun, gather: Gather, parcel: Parcel) -> Procedure[None]:
    began: float = yield Now()
    outcome: object = outcomes.Done()
    for template, values in gather.match(parcel.event.key):
        outcome = yield from _gathered(run, gather, template, values, parcel.event)
        if not isinstance(outcome, outcomes.Done):
            break
    yield from settle_outcome(run, parcel, outcome, (yield Now()) - began)


def _gathered(
    run: RuleRun, gather: Gather, template: str, values: dict[str, str], event: ObjectEvent
) -> Procedure[object]:
    name = set_name(values)
    key = EventKeys(run.bucket.prefix).gathering(run.rule.subscription, name)
    member = Member(event.key, event.version, event.id)
    now: float = yield Now()
    if (yield from get_document(Gathering, key)) is None and gather.deadline_seconds is not None:
        yield from _send_later(run, Deadline(name), now + gather.deadline_seconds)

    def add(before: Gathering) -> Gathering:
        if before.fired is not None or before.members.get(template) == member:
            return before
        members = {**before.members, template: member}
        return msgspec.structs.replace(before, members=members, revision=before.revision + 1)

    empty = Gathering(values=values, began_at=time_text(now))
    state = yield from update_document(Gathering, key, empty, add)
    if state.fired is not None or len(state.members) < len(gather.templates):
        return outcomes.Done()
    return (yield from _fire(run, gather, key, name, "complete"))


def _control(run: RuleRun, gather: Gather, message: Message, piece: Piece) -> Procedure[object]:
    try:
        order: Deadline | Forget = msgspec.convert(message.body, Deadline | Forget)
    except msgspec.ValidationError:
        return outcomes.Bury("this is neither an event nor a message of this rule to itself")
    key = EventKeys(run.bucket.prefix).gathering(run.rule.subscription, order.name)
    if isinstance(order, Forget):
        yield from delete(key)
        return outcomes.Done()
    found = yield from get_document(Gathering, key)
    if found is None or found[0].fired is not None:
        return outcomes.Done()
    return (yield from _fire(run, gather, key, order.name, "deadline"))


def _fire(run: RuleRun, gather: Gather, key: str, name: str, why: str) -> Procedure[object]:
    """Take the right to fire, call the handler, mark the set as fired."""
    me: str = yield NewId()
    now: float = yield Now()

    def take(before: Gathering) -> Gathering:
        if before.fired is not None or before.firing == me or (before.firing and before.firing_until > now):
            return before
        return msgspec.structs.replace(
            before, firing=me, firing_until=now + FIRING_SECONDS, revision=before.revision + 1
        )

    state = yield from update_document(Gathering, key, Gathering(), take)
    if state.fired is not None:
        return outcomes.Done()
    if state.firing != me:
        return outcomes.Retry("another worker is firing this set", max(0.1, state.firing_until - now))
    assert run.handler is not None
    try:
        outcome: Any = yield Call(run.handler, complete_of(gather, state))
    except (Exception, SystemExit) as error:
        outcome = outcomes.Retry(failure_text(error))
    finished = not isinstance(outcome, outcomes.Retry | outcomes.Release | outcomes.Bury)

    def leave(before: Gathering) -> Gathering:
        if before.firing != me:
            return before
        return msgspec.structs.replace(
            before,
            firing=None,
            firing_until=0.0,
            fired=why if finished else None,
            revision=before.revision + 1,
        )

    yield from update_document(Gathering, key, state, leave)
    if finished:
        yield from _send_later(run, Forget(name), now + FORGET_SECONDS)
    return outcomes.Done() if finished else outcome


def complete_of(gather: Gather, state: Gathering) -> Complete:
    present = [template for template in gather.templates if template in state.members]
    missing = tuple(
        _HOLE.sub(lambda hole: state.values[hole[1]], template)
        for template in gather.templates
        if template not in state.members
    )
    members = [state.members[template] for template in present]
    return Complete(
        state.values, tuple(each.key for each in members), missing, {each.key: each.version for each in members}
    )


def _send_later(run: RuleRun, order: Deadline | Forget, due: float) -> Procedure[None]:
    queue = yield from events_queue(run.bucket)
    name: str = yield NewId()
    message = Message(name, time_text((yield Now())), "set:" + order.name, None, order, to=run.rule.subscription)
    yield from put_later(queue, lines.encode([message]), due, name)
