"""The language by example: Tigris' own filters, every operator, every field, and what is true, false or unknown."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from bucketmq.events import filters
from bucketmq.events.event import ObjectEvent
from bucketmq.events.filters import NO_JSON, UNFETCHED, Decision, Known, parse

EVENT = ObjectEvent(
    id="evt_1",
    kind="created",
    key="pending/7.json",
    at="2026-03-01T12:00:00.250000Z",
    source="tigris",
    name="OBJECT_CREATED_PUT",
    bucket="moderation",
    size_bytes=1200,
    version="v1",
    content_type="application/json",
    metadata={"author": "Ada", "x-y": "1"},
    tags={"Team": "red", "in": "out"},
    hops=2,
)
BODY = {
    "violation": True,
    "score": 0.9,
    "count": 3,
    "text": 'it\'s "fine"',
    "none": None,
    "list": [{"x": 1}, "b"],
    "in": {"where": "here"},
    "2nd": "second",
    "big": 10**40,
    "Text": "other",
}


def decided(text: str, event: ObjectEvent = EVENT, *, body: Any = BODY) -> bool:
    decision = parse(text).decide(event, Known(), body)
    assert decision in (Decision.MATCH, Decision.NO_MATCH)
    return decision is Decision.MATCH


def changed(**fields: Any) -> ObjectEvent:
    return msgspec.structs.replace(EVENT, **fields)


def test_the_public_names_are_what_can_be_imported() -> None:
    assert all(hasattr(filters, name) for name in filters.__all__)


# What Tigris' documentation shows.


def test_tigris_filter_by_the_beginning_of_the_key() -> None:
    text = 'WHERE `key` REGEXP "^images"'
    assert decided(text, changed(key="images/1.png"))
    assert not decided(text, changed(key="old/images/1.png"))


def test_tigris_filter_by_event_type() -> None:
    text = 'WHERE `Event-Type` = "OBJECT_DELETED"'
    assert decided(text, changed(kind="deleted", name="OBJECT_DELETED"))
    assert not decided(text)


def test_tigris_filter_by_key_and_event_type() -> None:
    text = 'WHERE `key` REGEXP "^results/" AND `Event-Type` = "OBJECT_CREATED_PUT"'
    assert decided(text, changed(key="results/1"))
    assert not decided(text)
    assert not decided(text, changed(key="results/1", kind="deleted", name="OBJECT_DELETED"))


def test_tigris_filter_by_the_end_of_the_key_keeps_its_backslash() -> None:
    text = r'WHERE `key` REGEXP "\.json$"'
    assert decided(text)
    assert not decided(text, changed(key="pending/7xjson"))
    assert not decided(text, changed(key="pending/7.json.bak"))


def test_tigris_filter_of_the_moderation_demo() -> None:
    assert decided('WHERE `key` REGEXP "^pending/"')
    assert not decided('WHERE `key` REGEXP "^pending/"', changed(key="approved/7.json"))


def test_tigris_filter_with_the_other_documented_operators() -> None:
    assert decided('WHERE `Content-Type` IN ("text/plain", "application/json") AND `Content-Length` > 0')
    assert decided('WHERE key NOT IN ("a", "b") AND `Last-Modified` > "2023-01-15T08:30:00Z"')
    assert not decided('WHERE `Content-Length` >= 1201 AND `Content-Type` != "text/plain"')


def test_an_event_from_elsewhere_has_tigris_event_type_too() -> None:
    assert decided('`Event-Type` = "OBJECT_RENAME"', changed(kind="moved", source="azure", name="BlobRenamed"))
    assert decided('`Event-Type` = "OBJECT_NEW_SORT"', changed(kind="other", name="OBJECT_NEW_SORT"))


TRUE_OF_THE_EVENT = [
    "",
    "   ",
    'where key = "pending/7.json"',
    "key = 'pending/7.json'",
    'KEY = "pending/7.json"',
    'key != "x"',
    'key <> "x"',
    'key < "q"',
    'key > "a" and key >= "pending/7.json" and key <= "pending/7.json"',
    'key IN ("x", "pending/7.json")',
    'key NOT IN ("x", "y")',
    'key LIKE "pending/%"',
    'key LIKE "%.json"',
    'key LIKE "pending/_.json"',
    'key NOT LIKE "Pending/%"',
    'key REGEXP "[0-9]"',
    'key NOT REGEXP "^[0-9]"',
    'key REGEXP "(?i)PENDING"',
    "from_key IS NULL",
    "key IS NOT NULL",
    'name = "7.json"',
    "size = 1200",
    "size = 1200.0",
    "`content-length` < 1.5e3",
    "Content-Length > -1",
    'Content-Type = "application/json"',
    'content_type LIKE "application/%"',
    'kind = "created"',
    'kind IN ("created", "changed")',
    'source = "tigris"',
    'bucket = "moderation"',
    'version = "v1"',
    "hops < 3",
    'Last-Modified = "2026-03-01T12:00:00.25Z"',
    'time > "2026-03-01"',
    'time < "2026-03-02"',
    'time = "2026-03-01T13:00:00.25+01:00"',
    'time = "2026-03-01 12:00:00.250000000Z"',
    'time < "2026-03-01T12:00:00.250000001Z"',
    'time > "2026-03-01T12:00:00.249999999Z"',
    'time IN ("2026-03-01T12:00:00.250z")',
    'metadata.author = "Ada"',
    'metadata.Author = "Ada"',
    'metadata.x-y = "1"',
    '`metadata`.`x-y` = "1"',
    '`X-Amz-Meta-Author` = "Ada"',
    'X-Amz-Meta-X-Y = "1"',
    "metadata.other IS NULL",
    'tags.Team = "red"',
    "tags.team IS NULL",
    'tags.in = "out"',
    "body.violation = true",
    "body.violation != FALSE",
    "body.violation IN (true)",
    "body.score > 0.85",
    "body.count = 3.0",
    "body.count >= 3 AND body.count <= 3",
    r'''body.text = "it's \"fine\""''',
    r"""body.text = 'it''s "fine"'""",
    r"""body.text = 'it\'s "fine"'""",
    '''body.text = "it's ""fine"""''',
    "body.list[0].x = 1",
    'body.list[1] = "b"',
    "body.list[2] IS NULL",
    "body.list IS NOT NULL",
    'body.list != "b"',
    "body.list.x IS NULL",
    "body[0] IS NULL",
    "body IS NOT NULL",
    "body.none IS NULL",
    "body.missing.too IS NULL",
    'body.in.where = "here"',
    'body.`2nd` = "second"',
    'body.Text = "other"',
    "body.big = 10000000000000000000000000000000000000000",
    "body.big > 9007199254740993",
    # Precedence: NOT before AND before OR.
    'kind = "deleted" AND size = 1 OR hops = 2',
    'hops = 2 OR kind = "deleted" AND size = 1',
    'NOT kind = "deleted" AND hops = 2',
    'NOT (kind = "deleted" OR hops = 3)',
    'NOT NOT kind = "created"',
    '((kind = "created"))',
    '(kind = "deleted" OR hops = 2) AND size = 1200',
    "size=1200 AND(hops=2)",
    "hops\n=\t2",
]


@pytest.mark.parametrize("text", TRUE_OF_THE_EVENT)
def test_is_true(text: str) -> None:
    assert decided(text)


FALSE_OF_THE_EVENT = [
    'key = "pending/7"',
    'key = "PENDING/7.JSON"',
    'key LIKE "pending"',
    'key LIKE "PENDING/%"',
    'key REGEXP "^ending"',
    'key IN ("x")',
    "size != 1200",
    "size < 1200",
    'kind != "created"',
    "key IS NULL",
    "body.violation = false",
    # Different types are not equal ...
    'body.count = "3"',
    "body.text = 3",
    "body.violation = 1",
    "body.count = true",
    "body.list = 1",
    "body.count IN (true, '3')",
]


@pytest.mark.parametrize("text", FALSE_OF_THE_EVENT)
def test_is_false_so_that_not_makes_it_true(text: str) -> None:
    assert not decided(text)
    assert decided(f"NOT ({text})")


UNKNOWN_OF_THE_EVENT = [
    'from_key = "x"',
    'from_key != "x"',
    'from_key IN ("x")',
    'from_key NOT IN ("x")',
    'from_key LIKE "%"',
    'from_key NOT LIKE "%"',
    'from_key REGEXP ""',
    'metadata.other != "x"',
    'tags.other != "x"',
    "body.missing != 1",
    "body.none = 1",
    "body.none NOT IN (1)",
    # ... and have no order in common.
    'body.count < "5"',
    "body.text > 3",
    "body.violation < 2",
    "body.list >= 0",
    "body.count LIKE '3'",
    "body.count NOT REGEXP 'x'",
    'from_key = "x" AND hops = 2',
    'from_key = "x" OR hops = 3',
]


@pytest.mark.parametrize("text", UNKNOWN_OF_THE_EVENT)
def test_is_unknown_and_so_is_its_negation(text: str) -> None:
    assert not decided(text)
    assert not decided(f"NOT ({text})")
    assert decided(f"({text}) OR hops = 2")


def test_what_the_source_did_not_tell_is_unknown() -> None:
    bare = ObjectEvent(id="e", kind="deleted", key="k", at=EVENT.at, source="r2")
    for field in ("size", "content_type", "bucket", "version", "from_key", "metadata.a", "tags.a", "body.a", "body"):
        assert decided(f"{field} IS NULL", bare), field


def test_the_name_of_a_key_that_ends_with_a_slash_is_empty() -> None:
    assert decided('name = ""', changed(key="folder/"))
    assert decided('name = "plain"', changed(key="plain"))


def test_escapes_that_no_string_knows_keep_their_backslash() -> None:
    assert decided(r'key REGEXP "\d\.json$" AND key REGEXP "\\d\\.json$"')
    assert decided(r'key = "a\b" AND key = "a\\b"', changed(key="a\\b"))
    assert decided(r'key = "a\n\t\r"', changed(key="a\n\t\r"))


def test_like_wildcards_can_be_escaped() -> None:
    assert decided(r'key LIKE "100\%"', changed(key="100%"))
    assert not decided(r'key LIKE "100\%"', changed(key="1000"))
    assert decided(r'key LIKE "a\_b%" AND key LIKE "a__%"', changed(key="a_bc"))
    assert not decided(r'key LIKE "a\_b%"', changed(key="axbc"))


def test_like_spans_lines_and_counts_characters_not_bytes() -> None:
    assert decided('key LIKE "a%_c"', changed(key="a\n\nc"))
    assert decided('key LIKE "_b_"', changed(key="äb\U0001f600"))


def test_a_key_with_half_a_surrogate_pair_is_matched_without_error() -> None:
    broken = changed(key="a/\udc80-b")
    assert decided('key LIKE "a/_-%"', broken)
    assert decided('key REGEXP "^a/.-[b]"', broken)
    assert decided('key REGEXP "^a/"', broken)


def test_dollar_is_the_end_of_the_key_and_not_of_its_line() -> None:
    assert not decided('key REGEXP "a$"', changed(key="a\n"))
    assert not decided('key REGEXP "^b"', changed(key="a\nb"))
    assert not decided('key REGEXP "[a]$"', changed(key="a\n"))


# What has to be fetched, and when not.

BARE = ObjectEvent(id="e", kind="created", key="b/1", at=EVENT.at, source="s3", size_bytes=5)


@pytest.mark.parametrize(
    ("text", "decision"),
    [
        ('key REGEXP "^a/" AND body.x = 1', Decision.NO_MATCH),
        ('body.x = 1 AND key REGEXP "^a/"', Decision.NO_MATCH),
        ('key REGEXP "^b/" AND body.x = 1', Decision.NEEDS_BODY),
        ('key REGEXP "^b/" OR body.x = 1', Decision.MATCH),
        ('body.x = 1 AND content_type = "text/plain"', Decision.NEEDS_ATTRIBUTES),
        ('body.x = 1 OR content_type = "text/plain"', Decision.NEEDS_ATTRIBUTES),
        ('body.x = 1 OR content_type = "text/plain" AND hops = 1', Decision.NEEDS_BODY),
        ('NOT (body.x = 1 AND from_key = "a")', Decision.NEEDS_BODY),
        ('body.x = 1 AND from_key = "a"', Decision.NO_MATCH),
        ('NOT (body.x = 1 OR from_key = "a")', Decision.NO_MATCH),
        ("body.x IS NULL", Decision.NEEDS_BODY),
        ('metadata.a = "1"', Decision.NEEDS_ATTRIBUTES),
        ("size = 5", Decision.MATCH),
        ("tags.a IS NULL", Decision.MATCH),
    ],
)
def test_only_what_still_matters_is_asked_for_and_the_cheapest_first(text: str, decision: Decision) -> None:
    assert parse(text).decide(BARE) is decision


def test_what_the_event_tells_is_used_and_not_asked_for() -> None:
    filter = parse('content_type = "application/json" AND metadata.author = "Ada" AND metadata.none IS NULL')
    assert filter.decide(EVENT) is Decision.MATCH
    assert filter.decide(EVENT, Known(content_type="text/plain", metadata={})) is Decision.MATCH


def test_what_the_event_does_not_tell_is_taken_from_the_attributes() -> None:
    filter = parse('content_type = "text/plain" AND metadata.a = "1" AND size = 7')
    unsized = msgspec.structs.replace(BARE, size_bytes=None)
    assert filter.decide(unsized, Known(content_type="text/plain", metadata={"A": "1"}, size_bytes=7)) is Decision.MATCH
    assert filter.decide(unsized, Known()) is Decision.NO_MATCH


def test_nothing_is_fetched_for_an_object_that_is_gone() -> None:
    gone = msgspec.structs.replace(BARE, kind="deleted", size_bytes=None)
    for text in ("body.x = 1", 'content_type != "a"', 'metadata.a != "a"', "size >= 0"):
        assert parse(text).decide(gone) is Decision.NO_MATCH
        assert parse(text).decide(gone, Known(content_type="b", metadata={"a": "b"}, size_bytes=1), {"x": 1}) is (
            Decision.NO_MATCH
        )


def test_a_body_that_is_no_json_has_no_fields_and_one_that_is_null_neither() -> None:
    for body in (NO_JSON, None):
        assert parse("body.x = 1").decide(BARE, UNFETCHED, body) is Decision.NO_MATCH
        assert parse("body.x IS NULL").decide(BARE, body=body) is Decision.MATCH


def test_a_filter_says_what_it_can_need() -> None:
    assert parse("").needs.event_only
    assert parse('key = "a" AND tags.x = "y"').needs.event_only
    assert parse('key = "a" AND metadata.x = "y"').needs == filters.Needs(attributes=True, body=False)
    assert parse("NOT body.x = 1").needs == filters.Needs(attributes=False, body=True)


def test_filters_of_the_same_text_are_equal() -> None:
    assert parse("size = 1") == parse("size = 1")
    assert parse("size = 1") != parse("size = 2")
