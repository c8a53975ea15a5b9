"""From the text of a filter to its tree. Every refusal is an `Invalid` that shows the place and says what to do.

Besides the grammar it checks what can be checked without an event: that fields exist, that values fit them, that RE2
takes the patterns, and the limits. So a filter that was parsed can be evaluated without errors.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NoReturn, TypeVar

from bucketmq.errors import Invalid
from bucketmq.events.filters import patterns
from bucketmq.events.filters.complaint import clip, complaint
from bucketmq.events.filters.fields import CLOSED, resolve, sort_of
from bucketmq.events.filters.grammar import (
    DEPTH_MAX,
    NODES_MAX,
    PATTERN_CHARS_MAX,
    TEXT_CHARS_MAX,
    And,
    Compare,
    Everything,
    Field,
    In,
    IsNull,
    Like,
    Node,
    Not,
    Operator,
    Or,
    Regexp,
    Value,
)
from bucketmq.events.filters.lexer import Token, token_at
from bucketmq.events.filters.times import comparable

_OPERATORS: dict[str, Operator] = {
    "=": "=",
    "!=": "!=",
    "<>": "!=",
    "<": "<",
    "<=": "<=",
    ">": ">",
    ">=": ">=",
}
_PREDICATES = "=, !=, <, <=, >, >=, IN, LIKE, REGEXP or IS NULL"

_HINTS = {
    "==": "Equality is written with one =.",
    "=~": "Regular expressions are matched with REGEXP.",
    "~": "Regular expressions are matched with REGEXP.",
    "&&": "Write AND.",
    "||": "Write OR.",
    "!": "Write NOT, or != between a field and a value.",
    ";": "A filter is one condition without a semicolon: leave it out.",
    "\u201c": 'Use plain quotes: "...".',
    "\u201d": 'Use plain quotes: "...".',
    "\u2018": "Use plain quotes: '...'.",
    "\u2019": "Use plain quotes: '...'.",
    "BETWEEN": "Write field >= low AND field <= high.",
    "ILIKE": 'LIKE minds the case; write REGEXP "(?i)..." where it should not.',
    "RLIKE": "Regular expressions are matched with REGEXP.",
    "MATCHES": "Regular expressions are matched with REGEXP.",
    "CONTAINS": 'Write LIKE "%part%".',
    "STARTSWITH": 'Write LIKE "beginning%".',
    "ENDSWITH": 'Write LIKE "%end".',
    "ORDER": "ORDER BY belongs to listings: a filter says which events match, not in which order they come.",
    "LIMIT": "LIMIT belongs to listings: a filter says which events match.",
    "GROUP": "A filter only says which events match; there is no GROUP BY.",
    "SELECT": "A filter is the condition alone: begin with WHERE.",
}
"""What people write who know another language, and what it is called here."""

_QUOTES_HINT = 'Put texts in quotes: "...". In a shell, put the whole filter in single quotes.'

T = TypeVar("T")


Resolve = Callable[[tuple[str | int, ...]], Field]
"""The field that a dotted name stands for. `Invalid` has two lines: what is wrong, and what to do."""


def parse_text(text: str, resolve: Resolve = resolve) -> Node:
    """The tree of a filter. Raises `Invalid`. Conditions on other things than events have names of their own."""
    if not isinstance(text, str):
        raise Invalid(f'a filter is a text, not {text!r:.80}; leave it out, or write "", for every event')
    if len(text) > TEXT_CHARS_MAX:
        what = f"the filter has {len(text):,} characters; at most {TEXT_CHARS_MAX:,} are allowed"
        raise complaint(text, TEXT_CHARS_MAX, what, "Use a shorter pattern or IN list, or several rules.")
    half = next((index for index, c in enumerate(text) if "\ud800" <= c <= "\udfff"), None)
    if half is not None:
        raise complaint(text, half, "half a character (a lone surrogate)", "Write the filter in valid Unicode.")
    return _Parser(text, resolve).filter()


class _Parser:
    """Recursive descent, one token ahead. One method for each rule of the grammar."""

    def __init__(self, text: str, resolve: Resolve) -> None:
        self._text = text
        self._resolve = resolve
        self._token = token_at(text, 0)
        self._depth = 0
        self._nodes = 0

    def filter(self) -> Node:
        if self._ended():
            return Everything()
        self._keyword("WHERE")
        root = self._any()
        if not self._ended():
            self._expected("AND, OR or the end of the filter", "Join conditions with AND or OR.")
        return root

    def _any(self) -> Node:
        terms = [self._all()]
        while self._keyword("OR"):
            terms.append(self._all())
        if len(terms) == 1:
            return terms[0]
        return self._counted(Or(tuple(terms)))

    def _all(self) -> Node:
        terms = [self._not()]
        while self._keyword("AND"):
            terms.append(self._not())
        if len(terms) == 1:
            return terms[0]
        return self._counted(And(tuple(terms)))

    def _not(self) -> Node:
        opening = self._token
        if self._keyword("NOT"):
            return self._deeper(opening, lambda: self._counted(Not(self._not())))
        if self._symbol("("):
            return self._deeper(opening, lambda: self._bracketed(opening))
        return self._condition()

    def _bracketed(self, opening: Token) -> Node:
        inner = self._any()
        if not self._symbol(")"):
            hint = f"Close the bracket that was opened at column {self._column(opening)}."
            self._expected("AND, OR or a closing bracket", hint)
        return inner

    def _deeper(self, opening: Token, inside: Callable[[], Node]) -> Node:
        if self._depth == DEPTH_MAX:
            what = f"more than {DEPTH_MAX} brackets and NOTs inside each other"
            self._refuse(opening, what, "Take away the brackets that are not needed.")
        self._depth += 1
        node = inside()
        self._depth -= 1
        return node

    def _condition(self) -> Node:
        field = self._field()
        token = self._token
        if token.sort == "symbol" and token.text in _OPERATORS:
            self._next()
            operator = _OPERATORS[token.text]
            return self._counted(Compare(field, operator, self._value(field, operator)))
        if self._keyword("IS"):
            negated = self._keyword("NOT")
            if not self._keyword("NULL"):
                self._expected("NULL or NOT NULL", "Write IS NULL or IS NOT NULL; compare values with =.")
            return self._counted(IsNull(field, negated))
        negated = self._keyword("NOT")
        if self._keyword("IN"):
            return self._counted(In(field, self._values(field), negated))
        if self._keyword("LIKE"):
            return self._counted(Like(field, self._pattern(field, "LIKE", patterns.like), negated))
        if self._keyword("REGEXP"):
            return self._counted(Regexp(field, self._pattern(field, "REGEXP", patterns.regexp), negated))
        if negated:
            self._expected(
                "IN, LIKE or REGEXP after NOT", "To turn a whole condition round, write NOT before its field."
            )
        self._expected(_PREDICATES, 'Say what to compare with, such as = "text" or = true.')

    def _field(self) -> Field:
        first = self._token
        if first.sort == "word" and not first.keyword and first.text.upper() in ("ORDER", "SELECT"):
            self._expected("a condition", "")
        if first.keyword or first.sort not in ("word", "name"):
            hint = 'A condition begins with a field, such as key LIKE "a/%".'
            if first.sort in ("string", "number") or first.keyword in ("TRUE", "FALSE"):
                hint += " The field stands before the value; to match everything leave the filter empty."
            self._expected("a field, NOT or an opening bracket", hint)
        self._next()
        parts: list[str | int] = [first.text]
        while True:
            if self._symbol("."):
                parts.append(self._part())
            elif self._symbol("["):
                parts.append(self._index())
            else:
                break
        try:
            return self._resolve(tuple(parts))
        except Invalid as error:
            what, _, hint = str(error).partition("\n")
            self._refuse(first, what, hint)

    def _part(self) -> str:
        token = self._token
        if token.sort not in ("word", "name"):
            self._expected("a name after the dot", "Put names that are not plain words in backticks: body.`2nd`.")
        self._next()
        return token.text

    def _index(self) -> int:
        token = self._token
        if not isinstance(token.value, int) or token.value < 0:
            self._expected("a place in a list, from 0", "Write body.list[0]; put other names in backticks after a dot.")
        self._next()
        if not self._symbol("]"):
            self._expected("]", "Write body.list[0].")
        return token.value

    def _values(self, field: Field) -> tuple[Value, ...]:
        hint = 'Write IN ("a", "b").'
        if not self._symbol("("):
            self._expected("an opening bracket after IN", hint)
        values = [self._counted_value(field)]
        while self._symbol(","):
            values.append(self._counted_value(field))
        if not self._symbol(")"):
            self._expected("a comma or a closing bracket", hint)
        return tuple(values)

    def _counted_value(self, field: Field) -> Value:
        return self._counted(self._value(field, "="))

    def _value(self, field: Field, operator: Operator) -> Value:
        token = self._token
        value: Value
        if token.sort in ("string", "number"):
            value = token.value
        elif token.keyword in ("TRUE", "FALSE"):
            value = token.keyword == "TRUE"
        elif token.keyword == "NULL":
            self._refuse(token, "nothing is equal to null", "Write IS NULL or IS NOT NULL.")
        else:
            self._expected("a value", _QUOTES_HINT if token.sort != "end" else f"Compare {field.name} with something.")
        if wrong := _misfit(field, operator, value):
            self._refuse(token, *wrong)
        self._next()
        return value

    def _pattern(self, field: Field, word: str, compiled: Callable[[str], object]) -> str:
        token = self._token
        if not isinstance(token.value, str) or token.sort != "string":
            self._expected(f"a text after {word}", _QUOTES_HINT)
        if sort_of(field) not in ("text", "any"):
            kind = sort_of(field)
            self._refuse(token, f"{field.name} is a {kind}, not a text", "Compare it with =, <, <=, > or >=.")
        if len(token.value) > PATTERN_CHARS_MAX:
            what = f"a pattern of {len(token.value)} characters; at most {PATTERN_CHARS_MAX} are allowed"
            self._refuse(token, what, "Join shorter ones with OR.")
        try:
            compiled(token.value)
        except Invalid as error:
            self._refuse_pattern(token, str(error))
        self._next()
        return token.value

    def _refuse_pattern(self, token: Token, reason: str) -> NoReturn:
        """Point at the part of the pattern that RE2 names, if the text has it."""
        _, _, part = reason.partition(": ")
        place = self._text.find(part, token.start, token.end) if part else -1
        hint = "Patterns are RE2's: groups, classes and repetition, without look-around and back-references."
        if "perl operator" in reason:
            hint += " For 'but not' write AND field NOT REGEXP."
        elif "too large" in reason or "repetition size" in reason:
            hint = "Repeat less: RE2 writes repetition out, at most 1000 times and within a limit of memory."
        what = f"RE2 does not take this pattern: {clip(reason, 80)}"
        raise complaint(self._text, place if place >= 0 else token.start, what, hint)

    def _counted(self, node: T) -> T:
        self._nodes += 1
        if self._nodes > NODES_MAX:
            what = f"the filter has more than {NODES_MAX} conditions, values and operators"
            self._refuse(self._token, what, "Use a REGEXP instead of a long list, or several rules.")
        return node

    def _keyword(self, word: str) -> bool:
        return self._token.keyword == word and self._next()

    def _symbol(self, symbol: str) -> bool:
        return self._token.sort == "symbol" and self._token.text == symbol and self._next()

    def _ended(self) -> bool:
        return self._token.sort == "end"

    def _next(self) -> bool:
        self._token = token_at(self._text, self._token.end)
        return True

    def _expected(self, expected: str, hint: str) -> NoReturn:
        token = self._token
        found = "the end of the filter" if token.sort == "end" else clip(self._text[token.start : token.end])
        known = _HINTS.get(token.text.upper()) if token.sort in ("word", "symbol", "odd") else None
        self._refuse(token, f"expected {expected}, found {found}", known or hint)

    def _refuse(self, token: Token, what: str, hint: str) -> NoReturn:
        raise complaint(self._text, token.start, what, hint)

    def _column(self, token: Token) -> int:
        return token.start - (self._text.rfind("\n", 0, token.start) + 1) + 1


def _misfit(field: Field, operator: Operator, value: Value) -> tuple[str, str] | None:
    """What is wrong with comparing this field with this value, and what to do; None when it can be true."""
    name = field.name
    match sort_of(field):
        case "text" if not isinstance(value, str):
            return f"{name} is a text and is never equal to a number or a truth value", "Put the value in quotes."
        case "number" if isinstance(value, str | bool):
            return f"{name} is a number", "Write the number without quotes, such as 1048576."
        case "time" if not isinstance(value, str):
            return f"{name} is a time", 'Write it as text: "2026-01-31" or "2026-01-31T08:30:00Z".'
        case "time" if isinstance(value, str) and comparable(value) is None:
            what = f"{clip(value)!r} is not a time"
            return what, 'Write "2026-01-31", or "2026-01-31T08:30:00Z" with Z or an offset such as +02:00.'
    if operator not in ("=", "!="):
        return ("truth values have no order", "Compare them with = or !=.") if isinstance(value, bool) else None
    if name in CLOSED and value not in CLOSED[name]:
        return f"{name} is never {clip(str(value))!r}", f"It is one of {', '.join(CLOSED[name])}."
    return None
