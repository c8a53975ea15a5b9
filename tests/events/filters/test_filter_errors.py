"""Every refusal shows the text, a caret under the right column, what was expected, and what to do."""

from __future__ import annotations

import pickle

import pytest

from bucketmq.errors import Invalid
from bucketmq.events.filters import parse
from bucketmq.events.filters.grammar import DEPTH_MAX, NODES_MAX, PATTERN_CHARS_MAX, TEXT_CHARS_MAX


def refused(text: str) -> tuple[int, str]:
    """The column the caret stands under, counted in the message itself, and the message."""
    with pytest.raises(Invalid) as caught:
        parse(text)
    message = str(caught.value)
    first, shown, caret, hint = message.split("\n")
    assert caret.strip() == "^"
    assert hint
    if not shown.startswith("  ..."):
        assert shown[2:] == "".join(c if c.isprintable() else " " for c in text)
        assert f"column {caret.index('^') - 1}:" in first
    return caret.index("^") - 1, message


# The text, with § before the character that the caret is expected under, and words of the message.
REFUSALS = [
    ("WHERE§", "expected a field, NOT or an opening bracket, found the end of the filter"),
    ("§AND size = 1", "expected a field, NOT or an opening bracket, found AND"),
    ("size = 1 AND§", "found the end of the filter"),
    ("size = 1 OR §OR", "found OR"),
    ("NOT§", "found the end of the filter"),
    ("§1 = size", "The field stands before the value"),
    ('§"a" = key', "The field stands before the value"),
    ("WHERE §true", "leave the filter empty"),
    ("(§)", "found )"),
    ("(size = 1§", "Close the bracket that was opened at column 1"),
    ("size = 1§)", "expected AND, OR or the end of the filter, found )"),
    ("size = 1 §size = 2", "Join conditions with AND or OR"),
    ("size§", "expected =, !=, <, <=, >, >=, IN, LIKE, REGEXP or IS NULL"),
    ("body.flag §AND size = 1", "= true"),
    ("size NOT §1", "expected IN, LIKE or REGEXP after NOT"),
    ("size IS §1", "expected NULL or NOT NULL"),
    ("size IS NOT§", "expected NULL or NOT NULL"),
    ("size =§", "expected a value"),
    ("key = §a", "Put texts in quotes"),
    ("kind = §created", "Put texts in quotes"),
    ("key REGEXP §^a", "expected a text after REGEXP, found ^"),
    ("key LIKE §5", "expected a text after LIKE"),
    ("key LIKE§", "expected a text after LIKE"),
    ("key LIKE §key", "expected a text after LIKE"),
    ("size IN §1", "expected an opening bracket after IN"),
    ("size IN (§)", "expected a value"),
    ("size IN (1,§)", "expected a value"),
    ("size IN (1 §2)", "expected a comma or a closing bracket"),
    ("size IN (1§", "expected a comma or a closing bracket"),
    # Words of other languages.
    ('key = "a"§;', "without a semicolon"),
    ("§;", "without a semicolon"),
    ('key = "a" §ORDER BY key', "ORDER BY belongs to listings"),
    ("WHERE §ORDER BY key", "ORDER BY belongs to listings"),
    ("§order by `Last-Modified`", "ORDER BY belongs to listings"),
    ("size = 1 §LIMIT 5", "LIMIT belongs to listings"),
    ("§SELECT key", "begin with WHERE"),
    ("size §== 1", "one ="),
    ("key §=~ 'a'", "REGEXP"),
    ("key §~ 'a'", "REGEXP"),
    ("size = 1 §&& size = 2", "Write AND"),
    ("size = 1 §|| size = 2", "Write OR"),
    ("§!(size = 1)", "Write NOT"),
    ("size §BETWEEN 1 AND 2", ">= low AND"),
    ("key §ILIKE 'a'", "(?i)"),
    ("key §contains 'a'", 'LIKE "%part%"'),
    ("key = §“a”", "plain quotes"),
    ("key §@ 'a'", "found @"),
    # Characters.
    ('key = §"a', "this string has no end"),
    (r'key = §"a\"', "for a backslash at the end write two"),
    ("key = 'it'§s'", "expected AND, OR or the end"),
    ("§`key = 1", "this name has no end"),
    ("size > §10MB", "10MB is not a number"),
    ("size > §1_000", "is not a number"),
    ("size > §1.", "is not a number"),
    ("size > §1.2.3", "is not a number"),
    ("size > §1e999", "is too large"),
    ("size > §.5", "expected a value, found ."),
    ("size > §-", "expected a value, found -"),
    ("size > §+5", "expected a value, found +"),
    ("key = '§\ud800'", "lone surrogate"),
    # Fields.
    ('§kee = "a"', "Did you mean key?"),
    ("§Content-Lenght > 1", "Did you mean Content-Length?"),
    ("§etag = 'a'", "Did you mean version?"),
    ("size = 1 AND §sise = 2", "Did you mean size?"),
    ("§zzzzzzzz = 1", "There are key, name"),
    ("§`metadata.a` = '1'", "`metadata`.`a`"),
    ("§metadata = '1'", "Write metadata.NAME"),
    ("§metadata.a.b = '1'", "metadata takes one name"),
    ("§tags[0] = '1'", "tags takes one name"),
    ("§`X-Amz-Meta-` = '1'", "metadata takes one name"),
    ("§key.x = 'a'", "key is a single value and has no parts"),
    ("body.§5 = 1", "a name after the dot"),
    ("body.§= 1", "a name after the dot"),
    ("body[§x] = 1", "a place in a list"),
    ("body[§-1] = 1", "a place in a list"),
    ("body[§1.5] = 1", "a place in a list"),
    ("body[§'x'] = 1", "a place in a list"),
    ("body[0 §= 1", "expected ]"),
    # Values that do not fit their field.
    ("key = §5", "key is a text"),
    ("metadata.count > §5", "metadata is a text"),
    ("version = §true", "version is a text"),
    ('size = §"10"', "size is a number"),
    ("hops IN (1, §'2')", "hops is a number"),
    ("size = §true", "size is a number"),
    ("size LIKE §'1%'", "size is a number, not a text"),
    ("time REGEXP §'2026'", "time is a time, not a text"),
    ("time > §5", "time is a time"),
    ("time > §'yesterday'", "'yesterday' is not a time"),
    ("time > §'2026-01-31T08:30:00'", "with Z or an offset"),
    ("time > §'2026-02-30'", "is not a time"),
    ("time > §'2026-01-31T25:00:00Z'", "is not a time"),
    ("time > §'0001-01-01T00:00:00+23:00'", "is not a time"),
    ("time IN ('2026-01-31', §'x')", "is not a time"),
    ("kind = §'create'", "It is one of created, changed, deleted, moved, other"),
    ("kind IN ('created', §'OBJECT_DELETED')", "kind is never"),
    ("source != §'aws'", "source is never"),
    ("body.x = §null", "Write IS NULL"),
    ("body.x IN (1, §NULL)", "Write IS NULL"),
    ("body.x < §true", "truth values have no order"),
    # Patterns.
    ('key REGEXP "§(?=a)"', "NOT REGEXP"),
    ('key REGEXP "a§(?!b)"', "look-around"),
    ('key REGEXP "§(?<=a)b"', "RE2 does not take this pattern"),
    (r'key REGEXP "(a)§\1"', "RE2 does not take this pattern"),
    ('key REGEXP "§(a"', "missing )"),
    ('key REGEXP "§["', "missing ]"),
    ('key REGEXP "§*"', "no argument for repetition operator"),
    ('key REGEXP "a§{1001}"', "Repeat less"),
    ('key REGEXP "(((a§{100}){100}){100})"', "Repeat less"),
    (r'key REGEXP §"(\pL{500}\pN{500}\pL{500}\pN{500})"', "pattern too large"),
    (r"key REGEXP §'\\'", "trailing"),
]


@pytest.mark.parametrize(("marked", "words"), REFUSALS, ids=[marked for marked, _ in REFUSALS])
def test_is_refused_at_its_column(marked: str, words: str) -> None:
    place = marked.index("§")
    column, message = refused(marked.replace("§", ""))
    assert column == place + 1, message
    assert words in message


def test_the_message_has_text_caret_expectation_and_hint() -> None:
    _column, message = refused("size = 1 AND size")
    assert message == (
        "filter, column 18: expected =, !=, <, <=, >, >=, IN, LIKE, REGEXP or IS NULL, found the end of the filter\n"
        "  size = 1 AND size\n"
        "                   ^\n"
        'Say what to compare with, such as = "text" or = true.'
    )


def test_a_place_in_a_later_line_is_told_with_its_line() -> None:
    with pytest.raises(Invalid) as caught:
        parse("size = 1\n  AND sise = 2\nAND size = 3")
    first, shown, caret, _hint = str(caught.value).split("\n")
    assert first.startswith("filter, line 2, column 7: there is no field 'sise'")
    assert (shown, caret) == ("    AND sise = 2", "        ^")


def test_a_long_text_is_shown_around_the_place() -> None:
    text = " OR ".join(["size = 1"] * 20) + " OR oops = 1 OR " + " OR ".join(["size = 2"] * 20)
    with pytest.raises(Invalid) as caught:
        parse(text)
    first, shown, caret, _hint = str(caught.value).split("\n")
    assert f"column {text.index('oops') + 1}:" in first
    assert shown.startswith("  ...")
    assert shown.endswith("...")
    assert shown[caret.index("^") :].startswith("oops")


def test_the_first_mistake_is_the_one_that_is_reported() -> None:
    assert refused('sise = 1 AND key = "no end')[0] == 1


def test_refusals_pickle() -> None:
    with pytest.raises(Invalid) as caught:
        parse("oops = 1")
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


# Limits: the largest that passes, and one more.


def test_the_length_is_limited() -> None:
    longest = "size = 1".ljust(TEXT_CHARS_MAX)
    parse(longest)
    with pytest.raises(Invalid, match="has 8,001 characters; at most 8,000"):
        parse(longest + " ")


@pytest.mark.parametrize(
    ("opening", "closing", "levels"), [("(", ")", DEPTH_MAX), ("NOT ", "", DEPTH_MAX), ("NOT (", ")", DEPTH_MAX // 2)]
)
def test_the_depth_is_limited(opening: str, closing: str, levels: int) -> None:
    parse(opening * levels + "size = 1" + closing * levels)
    with pytest.raises(Invalid, match="more than 64 brackets and NOTs inside each other"):
        parse(opening * (levels + 1) + "size = 1" + closing * (levels + 1))


def test_brackets_beside_each_other_are_not_deep() -> None:
    parse(" AND ".join(["NOT (size = 1)"] * (DEPTH_MAX + 1)))


def test_the_number_of_nodes_is_limited() -> None:
    conditions = ["hops=1"] * (NODES_MAX - 1)
    parse(" OR ".join(conditions))
    with pytest.raises(Invalid, match="more than 500 conditions, values and operators"):
        parse(" OR ".join([*conditions, "hops=1"]))


def test_values_of_a_list_count_as_nodes() -> None:
    values = ["1"] * (NODES_MAX - 1)
    parse(f"size IN ({','.join(values)})")
    with pytest.raises(Invalid, match="more than 500"):
        parse(f"size IN ({','.join([*values, '1'])})")


@pytest.mark.parametrize("operator", ["LIKE", "REGEXP"])
def test_the_length_of_a_pattern_is_limited(operator: str) -> None:
    parse(f"key {operator} '{'a' * PATTERN_CHARS_MAX}'")
    with pytest.raises(Invalid, match="a pattern of 513 characters; at most 512 are allowed"):
        parse(f"key {operator} '{'a' * (PATTERN_CHARS_MAX + 1)}'")


def test_the_length_of_a_number_is_limited() -> None:
    parse(f"size < {'9' * 1000}")
    with pytest.raises(Invalid, match="a number of 1,001 characters"):
        parse(f"size < {'9' * 1001}")
