r"""A tree back to text: canonical, so that parsing it gives the same tree, and as an indented list for people."""

from __future__ import annotations

import re

from bucketmq.events.filters.fields import stage_of
from bucketmq.events.filters.grammar import (
    And,
    Compare,
    Everything,
    Field,
    In,
    IsNull,
    Leaf,
    Like,
    Node,
    Not,
    Or,
    Regexp,
    Value,
)
from bucketmq.events.filters.lexer import KEYWORDS

_BARE = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
_ESCAPED = {'"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_AMBIGUOUS = re.compile(r"""\\(?=[\\"'nrt\n\r\t]|\Z)""")
"""A backslash that would not stand for itself; all others stay single, as in "\\.json$"."""


def canonical(node: Node) -> str:
    """One line that parses to this very tree. Longer than what was written where that was terse: a filter close to
    the limit of length may have a canonical text beyond it."""
    return "" if isinstance(node, Everything) else f"WHERE {_written(node)}"


def tree(node: Node) -> tuple[str, ...]:
    """A line for each node, indented by what it belongs to; a condition says where its field comes from."""
    return tuple(_tree(node, ""))


def condition(leaf: Leaf) -> str:
    """One condition as text."""
    name = field_text(leaf.field)
    negation = "NOT " if not isinstance(leaf, Compare) and leaf.negated else ""
    match leaf:
        case Compare(operator=operator, value=value):
            return f"{name} {operator} {value_text(value)}"
        case In(values=values):
            return f"{name} {negation}IN ({', '.join(map(value_text, values))})"
        case Like(pattern=pattern):
            return f"{name} {negation}LIKE {value_text(pattern)}"
        case Regexp(pattern=pattern):
            return f"{name} {negation}REGEXP {value_text(pattern)}"
        case IsNull():
            return f"{name} IS {negation}NULL"


def field_text(field: Field) -> str:
    """A field by its one true name, with anything but plain words in backticks."""
    parts = [field.name]
    for part in field.path:
        parts.append(f"[{part}]" if isinstance(part, int) else f".{_name(part)}")
    return "".join(parts)


def value_text(value: Value) -> str:
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            doubled = _AMBIGUOUS.sub(r"\\\\", value)
            return f'"{"".join(_ESCAPED.get(c, c) for c in doubled)}"'
        case _:
            return repr(value)


def _written(node: Node) -> str:
    match node:
        case Everything():
            return ""
        case And(terms=terms):
            return " AND ".join(_inside(term, (And, Or)) for term in terms)
        case Or(terms=terms):
            return " OR ".join(_inside(term, (Or,)) for term in terms)
        case Not(term=term):
            return f"NOT {_inside(term, (And, Or))}"
        case _:
            return condition(node)


def _inside(node: Node, bracketed: tuple[type, ...]) -> str:
    return f"({_written(node)})" if isinstance(node, bracketed) else _written(node)


def _name(part: str) -> str:
    plain = _BARE.match(part) and part.upper() not in KEYWORDS
    return part if plain else f"`{part.replace('`', '``')}`"


def _tree(node: Node, indent: str) -> list[str]:
    match node:
        case Everything():
            return [f"{indent}every event"]
        case And(terms=terms) | Or(terms=terms):
            title = "all of" if isinstance(node, And) else "any of"
            return [f"{indent}{title}", *(line for term in terms for line in _tree(term, indent + "  "))]
        case Not(term=term):
            return [f"{indent}not", *_tree(term, indent + "  ")]
        case _:
            return [f"{indent}{condition(node)}  [{stage_of(node.field).name.lower()}]"]
