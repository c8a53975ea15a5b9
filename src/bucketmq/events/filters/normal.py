"""A tree without NOT that is true for exactly the same events.

In three-valued logic NOT moves inwards as in two-valued: `NOT (a AND b)` is `NOT a OR NOT b`. Before a single condition
it can be swallowed, because each operator has an opposite that is true just when it is false: `<` and `>=`, `LIKE` and
`NOT LIKE`. What is left has only AND and OR, and there it makes no difference whether a condition is false or unknown.
So whatever reads a normal tree needs two values only.
"""

from __future__ import annotations

import msgspec

from bucketmq.events.filters.grammar import And, Compare, Everything, Leaf, Node, Not, Operator, Or

_OPPOSITE: dict[Operator, Operator] = {"=": "!=", "!=": "=", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}


def normal(node: Node, *, negated: bool = False) -> Node:
    """The tree, or its negation, without NOT."""
    match node:
        case Everything():
            assert not negated, "Everything is never part of another node"
            return node
        case Not(term=term):
            return normal(term, negated=not negated)
        case And(terms=terms) | Or(terms=terms):
            inner = tuple(normal(term, negated=negated) for term in terms)
            return And(inner) if isinstance(node, And) != negated else Or(inner)
        case _:
            return opposite(node) if negated else node


def opposite(leaf: Leaf) -> Leaf:
    """The condition that is true just when this one is false."""
    match leaf:
        case Compare(field=field, operator=operator, value=value):
            return Compare(field, _OPPOSITE[operator], value)
        case _:
            return msgspec.structs.replace(leaf, negated=not leaf.negated)
