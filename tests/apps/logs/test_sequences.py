"""Odd sequences: judged by how often events occur together, whatever their order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bucketmq.apps.logs.sequences import Judge, Sequences, learnt, merged

NORMAL = [["open", *["read"] * reads, "close"] for reads in range(8)]


def judge() -> Judge:
    return Judge(learnt(Sequences(), NORMAL))


def test_what_was_normal_is_not_odd_in_any_order() -> None:
    assert judge().oddity(["read", "close", "open"]) == ""
    assert judge().oddity(["open", *["read"] * 10, "close"]) == "", "reads are loose: as many as they like"


def test_an_unknown_event_a_missing_one_and_far_too_many_are_odd() -> None:
    assert "never belonged" in judge().oddity(["open", "explode", "close"])
    assert "in these numbers" in judge().oddity(["open", "read"])
    assert "15 times read" in judge().oddity(["open", *["read"] * 15, "close"])


sequences = st.lists(st.lists(st.sampled_from("abc"), min_size=1, max_size=5), max_size=10)


@given(sequences, sequences)
def test_two_models_together_are_the_model_of_all(one: list[list[str]], other: list[list[str]]) -> None:
    both = merged(learnt(Sequences(), one), learnt(Sequences(), other))
    assert both == learnt(Sequences(), one + other)
    assert all(Judge(both).oddity(each) == "" for each in one + other)
