"""What a filter means for an event: a tree made into one function, once, that answers with what is at hand.

A step answers `NO`, `YES`, or what to fetch before it can tell. AND and OR answer as soon as what is known decides, and
otherwise ask for the cheapest thing that still matters. All trees are normal (see `normal`), so "not true" is enough.

Fetching belongs to `procedures`; reading values, to `fields`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

from bucketmq.events.event import ObjectEvent
from bucketmq.events.filters import patterns
from bucketmq.events.filters.fields import Attributes, Pending, Stage, reader, sort_of, stage_of
from bucketmq.events.filters.grammar import (
    And,
    Compare,
    Everything,
    In,
    IsNull,
    Leaf,
    Like,
    Node,
    Not,
    Operator,
    Or,
    Regexp,
    Value,
    leaves,
)
from bucketmq.events.filters.times import comparable

Step = Callable[[ObjectEvent, Attributes, Any], int]
Test = Callable[[Any], bool]

NO: Final = 0
YES: Final = 1
FETCH_ATTRIBUTES: Final = 2
FETCH_BODY: Final = 3

_FETCH = {Pending.ATTRIBUTES: FETCH_ATTRIBUTES, Pending.BODY: FETCH_BODY}
_ORDERS: dict[Operator, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def compiled(node: Node) -> Step:
    """The function for a normal tree."""
    match node:
        case Everything():
            return lambda _event, _attributes, _body: YES
        case And(terms=terms):
            return _joined([compiled(term) for term in sorted(terms, key=_cost)], stop=NO, go=YES)
        case Or(terms=terms):
            return _joined([compiled(term) for term in sorted(terms, key=_cost)], stop=YES, go=NO)
        case Not():
            raise AssertionError("a normal tree has no NOT")
        case _:
            return _leaf(node)


def _cost(node: Node) -> int:
    """What is cheap goes first; the order makes no difference to the answer."""
    return max(2 * stage_of(leaf.field) + isinstance(leaf, Like | Regexp) for leaf in leaves(node))


def _joined(steps: list[Step], *, stop: int, go: int) -> Step:
    """Steps until one answers `stop`, which decides; `go` if all answer that."""

    def step(event: ObjectEvent, attributes: Attributes, body: Any) -> int:
        fetch = go
        for each in steps:
            answer = each(event, attributes, body)
            if answer == stop:
                return stop
            if answer != go and (fetch == go or answer < fetch):
                fetch = answer
        return fetch

    return step


def _leaf(leaf: Leaf) -> Step:
    read = reader(leaf.field)
    test = _test(leaf)
    without = YES if isinstance(leaf, IsNull) and not leaf.negated else NO

    def step(event: ObjectEvent, attributes: Attributes, body: Any) -> int:
        value = read(event, attributes, body)
        if value is None:
            return without
        if isinstance(value, Pending):
            return _FETCH[value]
        return test(value)

    def event_step(event: ObjectEvent, attributes: Attributes, body: Any) -> int:
        value = read(event, attributes, body)
        return without if value is None else test(value)

    return event_step if stage_of(leaf.field) is Stage.EVENT else step


def _test(leaf: Leaf) -> Test:
    """Whether the condition is true of a value that is there."""
    match leaf:
        case Compare(operator="=", value=value):
            return _equal(_literal(leaf, value))
        case Compare(operator="!=", value=value):
            return _turned(_equal(_literal(leaf, value)), True)
        case Compare(operator=order, value=value):
            return _ordered(_ORDERS[order], _literal(leaf, value))
        case In(values=values, negated=negated):
            return _turned(_member(tuple(_literal(leaf, value) for value in values)), negated)
        case Like(pattern=pattern, negated=negated):
            return _text(_turned(patterns.like(pattern), negated))
        case Regexp(pattern=pattern, negated=negated):
            return _text(_turned(patterns.regexp(pattern), negated))
        case IsNull(negated=negated):
            return lambda _value: negated


def _literal(leaf: Leaf, value: Value) -> Value:
    """A value of the filter in the form in which the field's values are read."""
    if sort_of(leaf.field) != "time":
        return value
    assert isinstance(value, str)
    time = comparable(value)
    assert time is not None, "the parser lets no other text pass"
    return time


def _turned(test: Test, negated: bool) -> Test:
    return (lambda value: not test(value)) if negated else test


def _text(test: Test) -> Test:
    return lambda value: isinstance(value, str) and test(value)


def _equal(literal: Value) -> Test:
    match literal:
        case bool():
            return lambda value: value is literal
        case str():
            return lambda value: bool(value == literal)
        case _:
            return lambda value: value == literal and not isinstance(value, bool)


def _member(literals: tuple[Value, ...]) -> Test:
    truths = frozenset(each for each in literals if isinstance(each, bool))
    others = frozenset(each for each in literals if not isinstance(each, bool))

    def member(value: Any) -> bool:
        if isinstance(value, bool):
            return value in truths
        return isinstance(value, str | int | float) and value in others

    return member


def _ordered(order: Callable[[Any, Any], bool], literal: Value) -> Test:
    """Texts are ordered by code points, as object keys are in listings."""
    if isinstance(literal, str):
        return lambda value: isinstance(value, str) and order(value, literal)
    return lambda value: isinstance(value, int | float) and not isinstance(value, bool) and order(value, literal)
