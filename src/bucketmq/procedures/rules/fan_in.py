"""Fan-in: fire once when a set of objects is complete, or at a deadline with what is missing.

A set is made by key templates such as `results/{job}/a.json` and `results/{job}/b.json`: keys whose placeholders have
the same values belong to one set. Its members are entered in a register, one object for each set, replaced with a
condition. The worker that finds the set complete takes the right to fire in the register, calls the handler, and marks
the set as fired after the handler returned. A handler that failed is called again.

The right to fire is a lease: it lasts as long as the rule's leases do, names the message that its holder has in hand,
and is renewed while the handler runs. So a set fires once, however long its handler takes; twice only if a process is
frozen for longer than the lease, or dies before it could say that the handler had returned. That message stays
unsettled until the set has fired, so other workers that find the set complete meanwhile have nothing left to do.

The deadline is a delayed message to the rule itself, sent before the register is made; so is the message that has the
register deleted when nothing has happened to it for long. Neither is lost when this process is.
"""

from __future__ import annotations

import functools
import hashlib
import logging
import re
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from bucketmq import outcomes
from bucketmq.errors import BucketMQError, Invalid
from bucketmq.events.event import time_text
from bucketmq.log import segment as lines
from bucketmq.log.layout import EventKeys
from bucketmq.procedures.objects.remove import remove_state
from bucketmq.procedures.objects.report import events_queue
from bucketmq.procedures.requests import Call, Latch, NewId, Now, Pause, Procedure, Spawn, Wait
from bucketmq.procedures.rules.run import Parcel, RuleRun
from bucketmq.procedures.rules.settle import settle_outcomes
from bucketmq.procedures.sending.delayed import put_later
from bucketmq.procedures.verbs import get_document, update_document
from bucketmq.procedures.working.work import failure_text
from bucketmq.queue.message import Message
from bucketmq.values import Value

FORGET_SECONDS = 7 * 86400.0
"""A set to which nothing has happened for this long, since its deadline if it has one, is forgotten, fired or not."""

RENEW_AFTER = 1 / 3
"""The right to fire is renewed when this part of it has passed."""

WAIT_SECONDS = 2.0
TEMPLATES_MAX = 1_000
EXPRESSIONS_MAX = 50
FILTER_CHARS_MAX = 4_000

logger = logging.getLogger("bucketmq")

_HOLE = re.compile(r"\{([A-Za-z_][A-Za-z0-9_]*)\}")


class Member(msgspec.Struct, frozen=True, omit_defaults=True):
    """One object of a set, as its event told it."""

    key: str
    version: str | None
    event: str
    at: str = ""
    """When it came, as the event tells; empty in sets that an earlier release began."""


class Gathering(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """`inventory/sets/<subscription>/<name>.json`: the members of one set so far, and whether it has fired."""

    values: dict[str, str] = {}
    """The values of the placeholders."""
    members: dict[str, Member] = {}
    """By template."""
    began_at: str = ""
    firing: str | None = None
    """The right to fire: the message that its holder has in hand, a slash, and an id of its own."""
    firing_until: float = 0.0
    fired: str | None = None
    """complete or deadline, once the handler has returned."""
    revision: int = 0
    format: int = 1


class Deadline(msgspec.Struct, frozen=True, tag="deadline", tag_field="gather"):
    """A message to the rule itself: the time of a set is over."""

    name: str


class Forget(msgspec.Struct, frozen=True, tag="forget", tag_field="gather"):
    """A message to the rule itself: the register of a set may not be needed any more."""

    name: str


class Complete(Value, msgspec.Struct, frozen=True):
    """What a `when_all` handler is given."""

    values: dict[str, str]
    keys: tuple[str, ...]
    missing: tuple[str, ...]
    """Keys without an object when the deadline came; empty if the set is complete."""
    versions: dict[str, str | None]
    name: str = ""
    """The name of the set: the same for the same values."""
    began_at: str = ""
    """When its first object was entered. The name and this tell one set from a later one with the same values."""
    first_at: str = ""
    """When the first of its objects came, as their events tell."""
    last_at: str = ""


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
    run.control = lambda message: _control(run, gather, message)
    return run


def _act(run: RuleRun, gather: Gather, parcel: Parcel) -> Procedure[None]:
    began = yield from Now()
    outcome: object = outcomes.Done()
    for template, values in gather.match(parcel.event.key):
        member = Member(parcel.event.key, parcel.event.version, parcel.event.id, parcel.event.at)
        state = yield from _enter(run, gather, template, values, member)
        if state.fired is None and all(each in state.members for each in gather.templates):
            outcome = yield from _fire(run, gather, set_name(values), "complete", parcel.piece.delivery)
        if not isinstance(outcome, outcomes.Done):
            break
    yield from settle_outcomes(run, [parcel], [outcome], (yield from Now()) - began)


class _Absent(Exception):
    """There is no register, and this change must not make one. Never leaves this module."""


def _enter(run: RuleRun, gather: Gather, template: str, values: dict[str, str], member: Member) -> Procedure[Gathering]:
    """Enter a member in the register of its set. One GET and one PUT; two PUTs more for the first member."""
    name = set_name(values)
    now = yield from Now()
    empty = Gathering(values=values, began_at=time_text(now))
    begun = False

    def add(before: Gathering) -> Gathering:
        if before is empty and not begun:
            raise _Absent
        if before.fired is not None or before.members.get(template) == member:
            return before
        members = {**before.members, template: member}
        return msgspec.structs.replace(before, members=members, revision=before.revision + 1)

    while True:
        try:
            return (yield from update_document(Gathering, _register(run, name), empty, add))
        except _Absent:
            if gather.deadline_seconds is not None:
                yield from _send_later(run, Deadline(name), now + gather.deadline_seconds)
            yield from _send_later(run, Forget(name), now + (gather.deadline_seconds or 0.0) + FORGET_SECONDS)
            begun = True


def _register(run: RuleRun, name: str) -> str:
    return EventKeys(run.bucket.prefix).gathering(run.rule.subscription, name)


def _control(run: RuleRun, gather: Gather, message: Message) -> Procedure[object]:
    try:
        order: Deadline | Forget = msgspec.convert(message.body, Deadline | Forget)
    except msgspec.ValidationError:
        return outcomes.Bury("this is neither an event nor a message of this rule to itself")
    if isinstance(order, Forget):
        yield from _forget(run, gather, order)
        return outcomes.Done()
    found = yield from get_document(Gathering, _register(run, order.name))
    if found is None or found[0].fired is not None:
        return outcomes.Done()
    return (yield from _fire(run, gather, order.name, "deadline", message))


def _forget(run: RuleRun, gather: Gather, order: Forget) -> Procedure[None]:
    """Delete the register of a set, unless something has happened to it lately: then look again later."""
    key = _register(run, order.name)
    found = yield from get_document(Gathering, key)
    if found is None:
        return
    state, stored = found
    deadline_seconds = (gather.deadline_seconds or 0.0) if state.fired is None else 0.0
    due = stored.stored_at + deadline_seconds + FORGET_SECONDS
    if (yield from Now()) < due or (yield from remove_state(key, stored.version)) in ("changed", "unclear"):
        yield from _send_later(run, order, due)
    elif state.fired is None:
        missing = complete_of(gather, state).missing
        logger.warning("action=set_expired rule=%s values=%s missing=%s", run.rule.name, state.values, missing[:10])


def _fire(run: RuleRun, gather: Gather, name: str, why: str, message: Message) -> Procedure[object]:
    """Take the right to fire, call the handler, mark the set as fired. `Done` if that is another worker's business."""
    me = f"{message.id}/{yield from NewId()}"
    while (state := (yield from _take(run, name, me))) is not None and state.fired is None and state.firing != me:
        if _is_for_another(state.firing, message):
            return outcomes.Done()
        if run.stopping:
            return outcomes.Release()
        yield from Pause(WAIT_SECONDS)
    if state is None or state.fired is not None:
        return outcomes.Done()
    outcome = yield from _call(run, gather, name, me, state)
    finished = not isinstance(outcome, outcomes.Retry | outcomes.Release | outcomes.Bury)

    def leave(before: Gathering) -> Gathering:
        fired = why if finished else None
        return msgspec.structs.replace(before, firing=None, firing_until=0.0, fired=fired)

    yield from _change(run, name, lambda before: leave(before) if before.firing == me else before)
    return outcomes.Done() if finished else outcome


def _is_for_another(firing: str | None, message: Message) -> bool:
    """Whether the holder of the right to fire has another message in hand than this one: whatever becomes of the
    holder, that message comes back to the set. A holder that lost this very one is frozen, dead or slow, and this one
    is all that is left."""
    holder, slash, _ = (firing or "").partition("/")
    return bool(slash) and holder != message.id


def _take(run: RuleRun, name: str, me: str) -> Procedure[Gathering | None]:
    """Take the right to fire unless another worker has it, or the set has fired."""
    now = yield from Now()
    until = now + run.rule.policy.lease_seconds

    def take(before: Gathering) -> Gathering:
        if before.fired is not None or (before.firing is not None and before.firing_until > now):
            return before
        return msgspec.structs.replace(before, firing=me, firing_until=until)

    return (yield from _change(run, name, take))


def _change(run: RuleRun, name: str, change: Callable[[Gathering], Gathering]) -> Procedure[Gathering | None]:
    """Change the register of a set, which must be there; None if it is not. One GET, and one PUT if it changes."""
    absent = Gathering()

    def changed(before: Gathering) -> Gathering:
        if before is absent:
            raise _Absent
        after = change(before)
        return before if after == before else msgspec.structs.replace(after, revision=before.revision + 1)

    try:
        return (yield from update_document(Gathering, _register(run, name), absent, changed))
    except _Absent:
        return None


def _call(run: RuleRun, gather: Gather, name: str, me: str, state: Gathering) -> Procedure[Any]:
    """Call the handler, and keep the right to fire for as long as it runs."""
    assert run.handler is not None and run.work is not None
    returned = Latch()
    yield from Spawn(_renew(run, name, me, returned), f"firing-{run.rule.name}")
    try:
        return (yield from Call(run.handler, complete_of(gather, state), run.work.crew))
    except (Exception, SystemExit) as error:
        return outcomes.Retry(failure_text(error))
    finally:
        returned.open()


def _renew(run: RuleRun, name: str, me: str, returned: Latch) -> Procedure[None]:
    """Renew the right to fire until the handler has returned, or another worker has taken it."""
    lease_seconds = run.rule.policy.lease_seconds
    while True:
        yield from Wait(returned, lease_seconds * RENEW_AFTER)
        if returned.is_open:
            return
        until = (yield from Now()) + lease_seconds
        try:
            state = yield from _change(run, name, functools.partial(_renewed, me, until))
        except BucketMQError as error:
            logger.warning("action=renew_failed rule=%s set=%s kind=%s %s", run.rule.name, name, error.kind, error)
        else:
            if state is None or state.firing != me:
                return


def _renewed(me: str, until: float, before: Gathering) -> Gathering:
    return msgspec.structs.replace(before, firing_until=until) if before.firing == me else before


def complete_of(gather: Gather, state: Gathering) -> Complete:
    present = [template for template in gather.templates if template in state.members]
    missing = tuple(
        _HOLE.sub(lambda hole: state.values[hole[1]], template)
        for template in gather.templates
        if template not in state.members
    )
    members = [state.members[template] for template in present]
    times = sorted(each.at for each in members if each.at) or [state.began_at]
    return Complete(
        state.values,
        tuple(each.key for each in members),
        missing,
        {each.key: each.version for each in members},
        name=set_name(state.values),
        began_at=state.began_at,
        first_at=times[0],
        last_at=times[-1],
    )


def _send_later(run: RuleRun, order: Deadline | Forget, due: float) -> Procedure[None]:
    queue = yield from events_queue(run.bucket)
    name = yield from NewId()
    message = Message(name, time_text((yield from Now())), "set:" + order.name, None, order, to=run.rule.subscription)
    yield from put_later(queue, lines.encode([message]), due, name)
