"""A plain interpreter of filters, written without looking at the real one, and strategies for what both are given.

It walks the tree each time, keeps True, False and None (unknown) apart, and knows nothing of stages.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from bucketmq.events.event import ObjectEvent, time_text
from bucketmq.events.filters import NO_JSON, Known
from bucketmq.events.filters.grammar import And, Compare, Field, In, IsNull, Like, Node, Not, Or, Regexp


def truth(node: Node, event: ObjectEvent, known: Known, body: Any) -> bool | None:
    if isinstance(node, Not):
        inner = truth(node.term, event, known, body)
        return None if inner is None else not inner
    if isinstance(node, And | Or):
        found = [truth(term, event, known, body) for term in node.terms]
        decisive = isinstance(node, Or)
        if decisive in found:
            return decisive
        return None if None in found else not decisive
    value = value_of(node.field, event, known, body)
    if isinstance(node, IsNull):
        return (value is None) != node.negated
    if value is None:
        return None
    if isinstance(node, Compare):
        return compare(node.field, value, node.operator, node.value)
    if isinstance(node, In):
        return any(compare(node.field, value, "=", each) for each in node.values) != node.negated
    if not isinstance(value, str):
        return None
    if isinstance(node, Like):
        return like(value, node.pattern) != node.negated
    return (re.search(node.pattern, value) is not None) != node.negated


def value_of(field: Field, event: ObjectEvent, known: Known, body: Any) -> Any:
    exists = event.kind != "deleted"
    if field.name == "body":
        if not exists or body is NO_JSON:
            return None
        for part in field.path:
            try:
                body = body[part] if isinstance(body, dict if isinstance(part, str) else list) else None
            except (KeyError, IndexError):
                return None
        return body
    if field.name == "metadata":
        metadata = event.metadata
        if metadata is None:
            metadata = (known.metadata if exists else None) or {}
        return {name.lower(): value for name, value in metadata.items()}.get(field.path[0])
    if field.name == "tags":
        return (event.tags or {}).get(field.path[0])
    tigris = {"deleted": "OBJECT_DELETED", "moved": "OBJECT_RENAME", "other": "OBJECT_TRANSITIONED"}
    return {
        "key": event.key,
        "name": event.key.split("/")[-1],
        "size": event.size_bytes if event.size_bytes is not None or not exists else known.size_bytes,
        "content_type": event.content_type or (known.content_type if exists else None) or None,
        "event_type": tigris.get(event.kind, "OBJECT_CREATED_PUT"),
        "kind": event.kind,
        "source": event.source,
        "bucket": event.bucket or None,
        "time": event.at,
        "version": event.version,
        "from_key": event.from_key,
        "hops": event.hops,
    }[field.name]


def compare(field: Field, value: Any, operator: str, literal: Any) -> bool | None:
    if field.name == "time":
        value, literal = moment(value), moment(literal)
    alike = type_name(value) == type_name(literal)
    if operator == "=":
        return alike and value == literal
    if operator == "!=":
        return not alike or value != literal
    if not alike or type_name(value) not in ("text", "number", "time"):
        return None
    return {"<": value < literal, "<=": value <= literal, ">": value > literal, ">=": value >= literal}[operator]


def moment(text: str) -> datetime:
    parsed = datetime.fromisoformat(text)
    return parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)


def type_name(value: Any) -> str:
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, int | float):
        return "number"
    return {str: "text", datetime: "time"}.get(type(value), "other")


def like(text: str, pattern: str) -> bool:
    if not pattern:
        return not text
    first, rest = pattern[0], pattern[1:]
    if first == "%":
        return any(like(text[start:], rest) for start in range(len(text) + 1))
    if first == "\\" and rest:
        first, rest = rest[0], rest[1:]
    elif first == "_":
        first = text[:1]
    return bool(text) and text[0] == first and like(text[1:], rest)


# Few and small values, so that conditions are often true and often false.

KEYS = st.sampled_from(["a", "b", "a/b", "a/", "ab/c.json", "pending/1.json", "pending/2", "ä/b", ""]) | st.text(
    alphabet="ab/.%_\\", max_size=5
)
TIMES = (0.0, 1_700_000_000.0, 1_700_000_000.5, 1_800_000_000.123456)
TIME_LITERALS = (
    "1970-01-01",
    "2023-11-14",
    "2023-11-14T22:13:20Z",
    "2023-11-14T23:13:20.5+01:00",
    "2027-01-15T08:00:00.123456Z",
)
SCALARS = st.none() | st.booleans() | st.sampled_from([0, 1, 1.0, -1, 0.5, 10**30, "", "a", "b", "1", "true"])
JSON = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "y", "x y"]), inner, max_size=3),
    max_leaves=6,
)
BODIES = st.just(NO_JSON) | JSON
METADATA = st.dictionaries(st.sampled_from(["m", "n-o"]), st.sampled_from(["", "a", "b", "1"]), max_size=2)
TYPES = st.sampled_from(["application/json", "text/plain", ""])

EVENTS = st.builds(
    ObjectEvent,
    id=st.just("evt_1"),
    kind=st.sampled_from(["created", "changed", "deleted", "moved", "other"]),
    key=KEYS,
    at=st.sampled_from([time_text(each) for each in TIMES]),
    source=st.sampled_from(["s3", "sweep"]),
    bucket=st.sampled_from(["", "a"]),
    size_bytes=st.none() | st.integers(0, 2),
    version=st.none() | st.sampled_from(["a", "b"]),
    content_type=st.none() | TYPES,
    metadata=st.none() | METADATA,
    tags=st.none() | st.dictionaries(st.sampled_from(["t", "T"]), st.sampled_from(["a", "b"]), max_size=2),
    from_key=st.none() | KEYS,
    hops=st.integers(0, 2),
)
KNOWN = st.builds(
    Known,
    content_type=st.none() | TYPES,
    metadata=st.none() | METADATA.map(lambda each: {name.title(): value for name, value in each.items()}),
    size_bytes=st.none() | st.integers(0, 2),
)

LIKES = st.text(alphabet="ab/%_\\.", max_size=6)
SAFE_REGEXPS = st.sampled_from(
    [
        "",
        "a",
        "^a",
        "^a/",
        "b[/b]",
        "^ab?",
        "^a*b",
        "a|b",
        "^a|b",
        "^(a|b)/",
        "[ab]+",
        "\\.json",
        "^pending/",
        "^a\\.",
        "ä",
    ]
)
"""Patterns that mean the same to RE2 and to Python."""

TEXT_FIELDS = st.sampled_from(
    [
        *(Field(name) for name in ("key", "name", "content_type", "event_type", "bucket", "version", "from_key")),
        *(Field("metadata", (name,)) for name in ("m", "n-o", "none")),
        *(Field("tags", (name,)) for name in ("t", "T", "in")),
    ]
)
NUMBER_FIELDS = st.sampled_from([Field("size"), Field("hops")])
BODY_FIELDS = st.builds(
    Field, st.just("body"), st.lists(st.sampled_from(["x", "y", "x y", 0, 1]), max_size=3).map(tuple)
)
TEXTS = KEYS | st.sampled_from(["application/json", "OBJECT_DELETED", "1", 'say "it\'s"', "\\n", "a\nb", "\\", "\\'"])
NUMBERS = st.sampled_from([0, 1, 2, -1, 0.5, 1.0, 1e-7, 10**30, 2**70])
ORDERS = st.sampled_from(["<", "<=", ">", ">="])
EQUALITIES = st.sampled_from(["=", "!="])


def _comparisons(fields: Any, values: Any, *, ordered: bool = True) -> Any:
    plain = st.builds(Compare, fields, EQUALITIES | ORDERS if ordered else EQUALITIES, values)
    return plain | st.builds(In, fields, st.lists(values, min_size=1, max_size=3).map(tuple), st.booleans())


ANY_FIELDS = (
    TEXT_FIELDS | NUMBER_FIELDS | BODY_FIELDS | st.sampled_from([Field("time"), Field("kind"), Field("source")])
)
LEAVES = (
    _comparisons(TEXT_FIELDS, TEXTS)
    | _comparisons(NUMBER_FIELDS, NUMBERS)
    | _comparisons(st.just(Field("time")), st.sampled_from(TIME_LITERALS))
    | _comparisons(st.just(Field("kind")), st.sampled_from(["created", "deleted", "moved"]), ordered=False)
    | _comparisons(BODY_FIELDS, TEXTS | NUMBERS)
    | _comparisons(BODY_FIELDS, st.booleans(), ordered=False)
    | st.builds(Like, TEXT_FIELDS | BODY_FIELDS, LIKES, st.booleans())
    | st.builds(Regexp, TEXT_FIELDS | BODY_FIELDS, SAFE_REGEXPS, st.booleans())
    | st.builds(IsNull, ANY_FIELDS, st.booleans())
)


def trees(leaves: Any = LEAVES, *, max_leaves: int = 8) -> Any:
    def wider(inner: Any) -> Any:
        terms = st.lists(inner, min_size=2, max_size=3).map(tuple)
        return st.builds(Not, inner) | st.builds(And, terms) | st.builds(Or, terms)

    return st.recursive(leaves, wider, max_leaves=max_leaves)
