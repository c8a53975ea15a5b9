"""Filters over whatever Hypothesis comes up with: against the plain model, through their text, and in stages."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from events.filters.model import BODIES, EVENTS, KEYS, KNOWN, LEAVES, LIKES, SAFE_REGEXPS, TEXTS, like, trees, truth
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bucketmq.errors import Invalid
from bucketmq.events.event import ObjectEvent, time_text
from bucketmq.events.filters import UNFETCHED, Decision, Known, explain, parse, why
from bucketmq.events.filters.grammar import Compare, Field, Node, leaves
from bucketmq.events.filters.text import canonical, value_text

DECIDED = {True: Decision.MATCH, False: Decision.NO_MATCH, None: Decision.NO_MATCH}

WORDS = st.sampled_from(
    [
        *("WHERE", "where", "AND", "OR", "NOT", "IN", "LIKE", "REGEXP", "IS", "NULL", "true", "ORDER", "BY"),
        *("key", "size", "`Content-Type`", "metadata.x", "tags", "body", "time", "kind", "ä", "`", "."),
        *("=", "!=", "<>", "<", "<=", ">", ">=", "&&", "(", ")", "[", "]", ",", ";", "\\"),
        *('"a"', "'b'", '"^a"', '"("', '"\\\\"', '"2026-01-31"', '"created"', '"', "'", "0", "-1", "1.5", "1e400"),
    ]
)


@given(st.text(max_size=60) | st.lists(WORDS, max_size=12).map(" ".join) | st.lists(WORDS, max_size=12).map("".join))
@settings(max_examples=1500)
@example("\ud800")
@example("key = 'a\udfff'")
@example("key\x00=1")
@example("(" * 8000)
@example("NOT " * 2000)
def test_any_text_is_a_filter_or_invalid(text: str) -> None:
    try:
        filter = parse(text)
    except Invalid as error:
        assert "\n  " in str(error)
        assert "^" in str(error)
        return
    again = parse(canonical(filter.root))
    assert repr(again.root) == repr(filter.root)


@given(trees())
@settings(max_examples=500)
def test_the_canonical_text_parses_to_the_same_tree(root: Node) -> None:
    text = canonical(root)

    filter = parse(text)

    assert repr(filter.root) == repr(root)  # by their reprs, because 1 == True == 1.0
    assert explain(filter).canonical == text


@given(trees(), EVENTS, KNOWN, BODIES)
@settings(max_examples=1500)
def test_a_filter_agrees_with_the_plain_model(root: Node, event: ObjectEvent, known: Known, body: Any) -> None:
    filter = parse(canonical(root))

    assert filter.decide(event, known, body) is DECIDED[truth(root, event, known, body)]


@given(trees(), EVENTS, KNOWN, BODIES)
@settings(max_examples=800)
def test_every_staging_agrees_with_knowing_everything(root: Node, event: ObjectEvent, known: Known, body: Any) -> None:
    filter = parse(canonical(root))
    whole = filter.decide(event, known, body)

    for attributes, content in itertools.product((UNFETCHED, known), (UNFETCHED, body)):
        decision = filter.decide(event, attributes, content)
        if decision is Decision.NEEDS_ATTRIBUTES:
            assert attributes is UNFETCHED
            assert filter.needs.attributes
        elif decision is Decision.NEEDS_BODY:
            assert content is UNFETCHED
            assert filter.needs.body
        else:
            assert decision is whole


@given(trees(), EVENTS, KNOWN, BODIES)
@settings(max_examples=500)
def test_why_has_each_condition_with_the_outcome_of_the_model(
    root: Node, event: ObjectEvent, known: Known, body: Any
) -> None:
    filter = parse(canonical(root))

    found = why(filter, event, known, body)

    outcomes = {True: "true", False: "false", None: "unknown"}
    assert [each.outcome for each in found] == [outcomes[truth(leaf, event, known, body)] for leaf in leaves(root)]
    assert any(each.decides for each in found)


PENDING_MAX = 4
SLOTS = st.sampled_from(
    [
        Compare(Field("hops"), "=", 0),  # true
        Compare(Field("hops"), "=", 1),  # false
        Compare(Field("version"), "=", "v"),  # unknown
        *(Compare(Field("metadata", (f"m{each}",)), "=", "1") for each in range(PENDING_MAX // 2)),
        *(Compare(Field("body", (f"b{each}",)), "=", 1) for each in range(PENDING_MAX // 2)),
    ]
)


def _each_once(root: Node) -> bool:
    fields = [leaf.field for leaf in leaves(root) if leaf.field.path]
    return len(fields) == len(set(fields))


@given(trees(SLOTS, max_leaves=6).filter(_each_once))
@settings(max_examples=400)
def test_nothing_is_fetched_that_cannot_change_the_answer(root: Node) -> None:
    """Every way in which the fields not yet known could turn out is tried with the model."""
    event = ObjectEvent(id="e", kind="created", key="k", at=time_text(0), source="s3")
    pending = [leaf.field for leaf in leaves(root) if leaf.field.path]
    answers: dict[tuple[int | None, ...], bool] = {}
    for values in itertools.product((1, 0, None), repeat=len(pending)):
        told = {field: value for field, value in zip(pending, values, strict=True) if value is not None}
        known = Known(metadata={f.path[0]: str(value) for f, value in told.items() if f.name == "metadata"})
        body = {f.path[0]: value for f, value in told.items() if f.name == "body"}
        answers[values] = truth(root, event, known, body) is True

    def matters(place: int) -> bool:
        return any(
            answers[values] != answers[(*values[:place], other, *values[place + 1 :])]
            for values in answers
            for other in (1, 0, None)
        )

    kinds = {field.name for place, field in enumerate(pending) if matters(place)}
    expected = Decision.MATCH if all(answers.values()) else Decision.NO_MATCH
    if kinds:
        expected = Decision.NEEDS_ATTRIBUTES if "metadata" in kinds else Decision.NEEDS_BODY
    assert parse(canonical(root)).decide(event) is expected


KEY_PATTERNS = SAFE_REGEXPS | st.text(alphabet="ab/.*?+|^$()\\{}1-", max_size=8).map("^".__add__)


@given(trees(LEAVES, max_leaves=5), st.tuples(KEY_PATTERNS, LIKES), EVENTS, KNOWN, BODIES)
@settings(max_examples=800)
def test_every_matching_key_begins_with_the_derived_prefix(
    root: Node, drawn: tuple[str, str], event: ObjectEvent, known: Known, body: Any
) -> None:
    rest = canonical(root).removeprefix("WHERE ")
    pattern, wild = map(value_text, drawn)
    for text in (
        rest,
        f"key REGEXP {pattern}",
        f"key LIKE {wild}",
        f"key REGEXP {pattern} AND ({rest})",
        f"NOT (key NOT REGEXP {pattern} AND key NOT LIKE {wild})",
    ):
        try:
            filter = parse(text)
        except Invalid:
            continue  # RE2 does not take every pattern drawn
        if filter.decide(event, known, body) is Decision.MATCH:
            assert event.key.startswith(explain(filter).prefix), text


@given(KEYS | st.text(alphabet="ab%_\\/\n", max_size=8), LIKES)
@settings(max_examples=500)
def test_like_agrees_with_a_matcher_that_tries_everything(key: str, pattern: str) -> None:
    event = ObjectEvent(id="e", kind="created", key=key, at=time_text(0), source="s3")
    filter = parse(f"key LIKE {value_text(pattern)}")

    assert (filter.decide(event) is Decision.MATCH) == like(key, pattern)


@given(TEXTS, st.integers(), st.floats(allow_nan=False, allow_infinity=False))
def test_literals_of_any_size_keep_their_value(text: str, whole: int, fraction: float) -> None:
    body = {"t": text, "i": whole, "f": fraction}
    event = ObjectEvent(id="e", kind="created", key="k", at=time_text(0), source="s3")

    filter = parse(f"body.t = {value_text(text)} AND body.i = {whole} AND body.f = {fraction!r}")

    assert filter.decide(event, body=body) is Decision.MATCH


@pytest.mark.parametrize("digits", [20, 1000])
def test_integers_are_exact_however_long(digits: int) -> None:
    event = ObjectEvent(id="e", kind="created", key="k", at=time_text(0), source="s3")
    number = 10 ** (digits - 1)
    filter = parse(f"body = {number}")

    assert filter.decide(event, body=number) is Decision.MATCH
    assert filter.decide(event, body=number + 1) is Decision.NO_MATCH
