"""What people are told of a filter: its tree, its cost, where its keys lie, and why an event did not match."""

from __future__ import annotations

from typing import Any

import pytest

from bucketmq.events.event import ObjectEvent
from bucketmq.events.filters import NO_JSON, UNFETCHED, Decision, Known, Why, explain, parse, why

EVENT = ObjectEvent(
    id="e", kind="created", key="pending/7.json", at="2026-03-01T12:00:00.000000Z", source="s3", size_bytes=7
)


@pytest.mark.parametrize(
    ("text", "prefix"),
    [
        ("", ""),
        ("size = 1", ""),
        ('key = "pending/7.json"', "pending/7.json"),
        ('key != "pending/7.json"', ""),
        ('NOT key != "pending/7.json"', "pending/7.json"),
        ('key IN ("a/1", "a/2", "a/")', "a/"),
        ('key IN ("a/1")', "a/1"),
        ('key NOT IN ("a/1")', ""),
        ('key LIKE "pending/%"', "pending/"),
        ('key LIKE "pending/_"', "pending/"),
        (r'key LIKE "a\_b\%%"', "a_b%"),
        ('key LIKE "%.json"', ""),
        ('key NOT LIKE "a%"', ""),
        ('NOT key NOT LIKE "a%"', "a"),
        ('name LIKE "a%"', ""),
        ('key REGEXP "^pending/"', "pending/"),
        (r'key REGEXP "\Apending/"', "pending/"),
        ('key REGEXP "pending/"', ""),
        (r'key REGEXP "^a\.b\-c/.*x$"', "a.b-c/"),
        (r'key REGEXP "^a\\\\b"', "a\\b"),
        ('key REGEXP "^pending?/"', "pendin"),
        ('key REGEXP "^pending*"', "pendin"),
        ('key REGEXP "^pending+"', "pending"),
        ('key REGEXP "^pending{0,2}"', "pendin"),
        (r'key REGEXP "^a\.*"', "a"),
        (r'key REGEXP "^a\\\\*"', "a"),
        ('key REGEXP "^a|b"', ""),
        ('key REGEXP "^a/(b|c)"', ""),
        ('key REGEXP "(?i)^a/"', ""),
        ('key REGEXP "^(?i)a/"', ""),
        ('key REGEXP "^a(?i)b"', "a"),
        (r'key REGEXP "^a\d"', "a"),
        (r'key REGEXP "^a\Qb\E"', "a"),
        ('key REGEXP "^ä/"', "ä/"),
        ('key REGEXP "^*a"', ""),
        ('key NOT REGEXP "^a"', ""),
        ('key LIKE "a%" AND key LIKE "a/b%" AND size = 1', "a/b"),
        ('key LIKE "a/b%" OR key LIKE "a/c%"', "a/"),
        ('key LIKE "a/b%" OR size = 1', ""),
        ('NOT (key NOT LIKE "a/b%" OR size = 1)', "a/b"),
        ('NOT (key NOT LIKE "a/b%" AND key != "a/c")', "a/"),
        ('kind = "created" AND (key LIKE "a/b%" OR key = "a/bc")', "a/b"),
    ],
)
def test_the_prefix_that_every_matching_key_has(text: str, prefix: str) -> None:
    assert explain(parse(text)).prefix == prefix


@pytest.mark.parametrize(
    ("text", "cost"),
    [
        ("", "nothing"),
        ('key = "a" AND tags.x = "y"', "nothing"),
        ("size > 1", "one HEAD for events that pass the rest and do not tell size themselves"),
        (
            'metadata.a = "1" AND content_type = "text/plain"',
            "one HEAD for events that pass the rest and do not tell content_type and metadata themselves",
        ),
        ("body.x = 1", "one GET of up to 5,000 bytes for events that pass the rest"),
        (
            'body.x = 1 AND metadata.a = "1"',
            "one HEAD for events that pass the rest and do not tell metadata themselves, "
            "then one GET of up to 5,000 bytes for events that pass the rest",
        ),
    ],
)
def test_the_cost_in_words(text: str, cost: str) -> None:
    assert explain(parse(text), body_bytes_max=5000).cost == cost


def test_the_tree_says_how_the_filter_was_read() -> None:
    text = r"""where `key` regexp "\.json$" and not (body.`a b`[0] = 'x' or `X-Amz-Meta-A` is not null)"""

    explained = explain(parse(text))

    assert explained.tree == (
        "all of",
        r'  key REGEXP "\.json$"  [event]',
        "  not",
        "    any of",
        '      body.`a b`[0] = "x"  [body]',
        "      metadata.a IS NOT NULL  [attributes]",
    )
    assert explained.canonical == (
        r'WHERE key REGEXP "\.json$" AND NOT (body.`a b`[0] = "x" OR metadata.a IS NOT NULL)'
    )


def test_a_filter_without_condition_is_every_event() -> None:
    explained = explain(parse("  "))
    assert (explained.tree, explained.canonical) == (("every event",), "")
    assert why(parse(""), EVENT) == ()


def test_why_not_names_the_condition_that_stands_in_the_way() -> None:
    filter = parse('key LIKE "pending/%" AND size > 10 AND body.x = 1')

    assert filter.decide(EVENT) is Decision.NO_MATCH
    assert why(filter, EVENT) == (
        Why('key LIKE "pending/%"', "key", '"pending/7.json"', "true", False),
        Why("size > 10", "size", "7", "false", True),
        Why("body.x = 1", "body.x", "(not fetched)", "unfetched", False),
    )


def test_below_not_a_true_condition_stands_in_the_way() -> None:
    found = why(parse('NOT (kind = "created" OR size = 1)'), EVENT)

    assert [(each.condition, each.outcome, each.decides) for each in found] == [
        ('kind = "created"', "true", True),
        ("size = 1", "false", False),
    ]


def test_when_no_branch_of_an_or_holds_all_of_them_are_why() -> None:
    found = why(parse("size = 1 OR hops = 1 AND size = 7"), EVENT)
    assert [each.decides for each in found] == [True, True, False]


def test_what_is_asked_for_next_is_marked() -> None:
    filter = parse('content_type = "a" AND body.x = 1 AND size = 7')

    assert [each.decides for each in why(filter, EVENT)] == [True, False, False]
    assert [each.decides for each in why(filter, EVENT, Known(content_type="a"))] == [False, True, False]


@pytest.mark.parametrize(
    ("body", "value"),
    [
        ({"x": None}, "(none)"),
        ({"x": True}, "true"),
        ({"x": 1.5}, "1.5"),
        ({"x": 'a "b"\n'}, r'"a \"b\"\n"'),
        ({"x": {"a": 1}}, "(an object of 1 fields)"),
        ({"x": [1, 2]}, "(a list of 2)"),
        (NO_JSON, "(none)"),
        (UNFETCHED, "(not fetched)"),
    ],
)
def test_values_are_shown_as_a_filter_would_write_them(body: Any, value: str) -> None:
    assert why(parse("body.x = 1"), EVENT, body=body)[0].value == value


def test_long_values_are_shown_shortened() -> None:
    (found,) = why(parse("body = 1"), EVENT, body="a" * 1_000_000)
    assert len(found.value) == 200
    assert found.value.endswith("...")
    (found,) = why(parse("body = 1"), EVENT, body=10**5000)
    assert found.value == "(a very long number)"
