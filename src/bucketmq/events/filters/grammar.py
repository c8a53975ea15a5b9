r"""The grammar of filters, the values a filter is parsed into, and the limits of both.

```ebnf
filter     = [ [ "WHERE" ] any ] ;                      (* nothing at all matches every event *)
any        = all { "OR" all } ;
all        = not { "AND" not } ;
not        = { "NOT" } primary ;
primary    = "(" any ")" | field predicate ;
predicate  = ( "=" | "!=" | "<>" | "<" | "<=" | ">" | ">=" ) value
           | [ "NOT" ] "IN" "(" value { "," value } ")"
           | [ "NOT" ] ( "LIKE" | "REGEXP" ) string
           | "IS" [ "NOT" ] "NULL" ;
field      = name { "." name | "[" digits "]" } ;
name       = word | "`" { any character, a backtick doubled } "`" ;
word       = ( letter | "_" ) { letter | digit | "_" | "-" } ;
value      = string | number | "TRUE" | "FALSE" ;
string     = '"' { any character } '"' | "'" { any character } "'" ;
number     = [ "-" ] digits [ "." digits ] [ "e" [ "+" | "-" ] digits ] ;
```

Keywords are written in any case; a word after a dot is a name whatever it spells. In strings the quote is written
twice or after a backslash; `\\ \n \r \t` are what they are in most languages; any other backslash stands for itself, so
that `REGEXP "\.json$"` is the pattern `\.json$`. Which fields there are is said in `fields`.

A condition is true, false or unknown, as in SQL. It is unknown when the field has no value, and when the values have no
order in common (`<` between text and a number) or are not text (`LIKE`). `NOT` leaves unknown unknown. Values of
different types are not equal. Only what is true matches.

How a text becomes such a value belongs to `parser`; what it means for an event, to `evaluate`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import msgspec

TEXT_CHARS_MAX = 8_000
DEPTH_MAX = 64
"""Brackets and NOTs inside each other."""
NODES_MAX = 500
"""Conditions, AND, OR, NOT, and each value of an IN list."""
PATTERN_CHARS_MAX = 512
NUMBER_CHARS_MAX = 1_000

Value = str | int | float | bool
Operator = Literal["=", "!=", "<", "<=", ">", ">="]


class Field(msgspec.Struct, frozen=True):
    """A field by its one true name; `path` is what follows `metadata`, `tags` or `body`."""

    name: str
    path: tuple[str | int, ...] = ()


class Compare(msgspec.Struct, frozen=True):
    field: Field
    operator: Operator
    value: Value


class In(msgspec.Struct, frozen=True):
    field: Field
    values: tuple[Value, ...]
    negated: bool = False


class Like(msgspec.Struct, frozen=True):
    field: Field
    pattern: str
    negated: bool = False


class Regexp(msgspec.Struct, frozen=True):
    field: Field
    pattern: str
    negated: bool = False


class IsNull(msgspec.Struct, frozen=True):
    field: Field
    negated: bool = False


class Everything(msgspec.Struct, frozen=True):
    """The filter without a condition. Never part of another node."""


class Not(msgspec.Struct, frozen=True):
    term: Node


class And(msgspec.Struct, frozen=True):
    terms: tuple[Node, ...]


class Or(msgspec.Struct, frozen=True):
    terms: tuple[Node, ...]


Leaf = Compare | In | Like | Regexp | IsNull
Node = Everything | And | Or | Not | Compare | In | Like | Regexp | IsNull


def leaves(node: Node) -> Iterator[Leaf]:
    """The conditions, in the order in which they were written."""
    match node:
        case Everything():
            return
        case Not(term=term):
            yield from leaves(term)
        case And(terms=terms) | Or(terms=terms):
            for term in terms:
                yield from leaves(term)
        case _:
            yield node
