"""A filter explained: how it was read, what it costs, where in the bucket its objects lie, and why an event did or did
not match."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from bucketmq.events.event import ObjectEvent
from bucketmq.events.filters.complaint import clip
from bucketmq.events.filters.evaluate import FETCH_ATTRIBUTES, FETCH_BODY, NO, YES, compiled
from bucketmq.events.filters.fields import UNFETCHED, Attributes, Pending, Stage, reader, stage_of
from bucketmq.events.filters.filter import Filter
from bucketmq.events.filters.grammar import (
    And,
    Compare,
    Everything,
    Field,
    In,
    Like,
    Node,
    Not,
    Or,
    Regexp,
    leaves,
)
from bucketmq.events.filters.normal import normal, opposite
from bucketmq.events.filters.patterns import like_prefix, regexp_prefix
from bucketmq.events.filters.text import canonical, condition, field_text, tree, value_text
from bucketmq.values import Value

Outcome = Literal["true", "false", "unknown", "unfetched"]

_KEY = Field("key")
_BODY_BYTES_MAX = 1 << 20
_VALUE_CHARS_MAX = 200
_NUMBER_BITS_MAX = 4096
"""Longer ones are not written out: Python refuses to from some length on."""


class Explanation(Value, msgspec.Struct, frozen=True):
    """What `rules explain` shows."""

    tree: tuple[str, ...]
    """The parsed filter, a line for each node."""
    canonical: str
    """A text that parses to the same tree."""
    prefix: str
    """What every matching key begins with; empty when that cannot be told. Narrows listings."""
    cost: str
    """What deciding one event costs, in words."""


class Why(msgspec.Struct, frozen=True):
    """One condition of a filter and what it makes of an event."""

    condition: str
    field: str
    value: str
    """The field's value as a filter would write it, shortened; "(none)" without one, "(not fetched)" before it."""
    outcome: Outcome
    decides: bool
    """Whether the answer of the whole filter comes from this condition: to see why not, look at these."""


def explain(filter: Filter, *, body_bytes_max: int = _BODY_BYTES_MAX) -> Explanation:
    """How a filter was understood. `body_bytes_max` is the rule's limit for bodies that are fetched."""
    root = filter.root
    return Explanation(tree(root), canonical(root), key_prefix(root), _cost(filter, body_bytes_max))


def why(
    filter: Filter, event: ObjectEvent, attributes: Attributes = UNFETCHED, body: Any = UNFETCHED
) -> tuple[Why, ...]:
    """Every condition, in the order in which it was written, with its value and outcome for this event.

    The answer as a whole is `filter.decide` with the same arguments. A condition's outcome is its own: below a NOT it
    is a true one that stands in the way.
    """
    if isinstance(filter.root, Everything):
        return ()
    _answer, found = _weigh(filter.root, False, event, attributes, body)
    return tuple(found)


def key_prefix(root: Node) -> str:
    """The longest text found that every matching key begins with."""
    return _prefix(normal(root))


def _prefix(node: Node) -> str:
    match node:
        case And(terms=terms):
            return max((_prefix(term) for term in terms), key=len)  # all hold, so any one of them may be taken
        case Or(terms=terms):
            return _common([_prefix(term) for term in terms])
        case Compare(field=field, operator="=", value=str(value)) if field == _KEY:
            return value
        case In(field=field, values=values, negated=False) if field == _KEY:
            return _common([str(value) for value in values])
        case Like(field=field, pattern=pattern, negated=False) if field == _KEY:
            return like_prefix(pattern)
        case Regexp(field=field, pattern=pattern, negated=False) if field == _KEY:
            return regexp_prefix(pattern)
        case _:
            return ""


def _common(texts: list[str]) -> str:
    first, last = min(texts), max(texts)
    same = next((index for index, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), len(first))
    return first[:same]


def _cost(filter: Filter, body_bytes_max: int) -> str:
    asked = {leaf.field.name for leaf in leaves(filter.root) if stage_of(leaf.field) is Stage.ATTRIBUTES}
    parts = []
    if asked:
        told = " and ".join(name for name in ("size", "content_type", "metadata") if name in asked)
        parts.append(f"one HEAD for events that pass the rest and do not tell {told} themselves")
    if filter.needs.body:
        parts.append(f"one GET of up to {body_bytes_max:,} bytes for events that pass the rest")
    return ", then ".join(parts) or "nothing"


def _weigh(node: Node, negated: bool, event: ObjectEvent, attributes: Attributes, body: Any) -> tuple[int, list[Why]]:
    """What a node answers where it stands, and its conditions, marked by whether that answer comes from them."""
    match node:
        case Not(term=term):
            return _weigh(term, not negated, event, attributes, body)
        case And(terms=terms) | Or(terms=terms):
            inner = [_weigh(term, negated, event, attributes, body) for term in terms]
            every = isinstance(node, And) != negated
            answer = _joined([each for each, _found in inner], every)
            found = [
                msgspec.structs.replace(one, decides=one.decides and each == answer)
                for each, ones in inner
                for one in ones
            ]
            return answer, found
        case Everything():
            return YES, []
        case _:
            true = compiled(node)(event, attributes, body)
            false = compiled(opposite(node))(event, attributes, body)
            value = reader(node.field)(event, attributes, body)
            one = Why(condition(node), field_text(node.field), _shown(value), _outcome(true, false), True)
            return (false if negated else true), [one]


def _joined(answers: list[int], every: bool) -> int:
    stop, go = (NO, YES) if every else (YES, NO)
    if stop in answers:
        return stop
    return min((each for each in answers if each in (FETCH_ATTRIBUTES, FETCH_BODY)), default=go)


def _outcome(true: int, false: int) -> Outcome:
    """From what a condition and its opposite answer."""
    if true in (FETCH_ATTRIBUTES, FETCH_BODY):
        return "unfetched"
    if true == YES:
        return "true"
    return "false" if false == YES else "unknown"


def _shown(value: Any) -> str:
    match value:
        case None:
            return "(none)"
        case Pending():
            return "(not fetched)"
        case dict():
            return f"(an object of {len(value)} fields)"
        case list() | tuple():
            return f"(a list of {len(value)})"
        case str():
            return clip(value_text(value[:_VALUE_CHARS_MAX]), _VALUE_CHARS_MAX)
        case int() if value.bit_length() > _NUMBER_BITS_MAX:
            return "(a very long number)"
        case _:
            return clip(value_text(value), _VALUE_CHARS_MAX)
