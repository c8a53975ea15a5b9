"""LIKE and REGEXP: RE2 against Python's own engine where both can, and patterns that bring Python's to its knees."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bucketmq.errors import Invalid
from bucketmq.events.filters import patterns

TEXTS = st.text(alphabet="ab/.-^$ä\\\n", max_size=8)

LITERALS = st.sampled_from(
    ["a", "b", "/", "-", "ä", r"\.", r"\-", r"\^", r"\$", r"\\", ".", "[ab]", "[^a]", r"\w", "\n"]
)
UNITS = st.builds("{}{}".format, LITERALS, st.sampled_from(["", "", "", "*", "+", "?", "{1,2}", "*?"]))
SEQUENCES = st.lists(UNITS, max_size=4).map("".join)
SAFE = st.builds(
    "{}{}{}".format,
    st.sampled_from(["", "^", r"\A"]),
    SEQUENCES | st.builds("({}|{})".format, SEQUENCES, SEQUENCES) | st.builds("{}|{}".format, SEQUENCES, SEQUENCES),
    st.sampled_from(["", r"\z"]),
)


@given(SAFE, TEXTS)
@settings(max_examples=2000)
def test_regexp_agrees_with_python_where_both_mean_the_same(pattern: str, text: str) -> None:
    python = re.compile(pattern.replace(r"\z", r"\Z"), re.ASCII)  # \w is ASCII in RE2

    assert patterns.regexp(pattern)(text) == (python.search(text) is not None)


@given(TEXTS, TEXTS, st.sampled_from(["", "^", r"\A"]), st.sampled_from(["", "$", r"\z"]))
@settings(max_examples=500)
def test_an_escaped_literal_is_found_where_its_anchors_say(literal: str, text: str, start: str, end: str) -> None:
    pattern = start + re.sub(r"([^\wä\n])", r"\\\1", literal) + end
    expected = {
        (False, False): literal in text,
        (True, False): text.startswith(literal),
        (False, True): text.endswith(literal),
        (True, True): text == literal,
    }[bool(start), bool(end)]

    assert patterns.regexp(pattern)(text) is expected


@given(SAFE, TEXTS)
@settings(max_examples=1000)
def test_the_prefix_of_a_pattern_is_sound(pattern: str, text: str) -> None:
    if patterns.regexp(pattern)(text):
        assert text.startswith(patterns.regexp_prefix(pattern))


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+$",
        "(a|a)*b",
        "(a|aa)+$",
        "^(([a-z])+.)+[A-Z]([a-z])+$",
        "(.*a){12}c",
        "(?:a?){100}a{100}b",
        r"(\w+\s?)*!$",
    ],
)
def test_patterns_that_take_other_engines_for_ever_are_linear(pattern: str) -> None:
    """Python's engine would not be done with any of them within the test's time limit."""
    test = patterns.regexp(pattern)

    assert test("a" * 200_000 + "!\n") is False


def test_a_like_of_many_wildcards_is_linear() -> None:
    test = patterns.like("%a_" * 170)

    assert test("a" * 20_000 + "b") is True
    assert test("b" * 20_000) is False


@pytest.mark.parametrize(
    "pattern", ["(?=a)", r"(a)\1", "(?<n>a)(?P=n)", "(?>a)", "a++", "a{1001}", "((a{99}){99}){99}"]
)
def test_what_re2_does_not_take_is_invalid(pattern: str) -> None:
    with pytest.raises(Invalid):
        patterns.regexp(pattern)


def test_re2_writes_nothing_to_the_terminal(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Invalid):
        patterns.regexp("(")
    assert capfd.readouterr() == ("", "")
