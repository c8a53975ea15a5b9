"""Where records go. Above all: nothing unclear is ever approved."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketmq.apps.moderation import routing
from bucketmq.apps.moderation.record import APPROVED, CATEGORIES, FLAGGED, NEEDS_REVIEW
from bucketmq.apps.moderation.routing import make_thresholds, outcome_of, read
from bucketmq.errors import Invalid


def record(**fields: Any) -> dict[str, Any]:
    """A record about which nothing is unclear, with these fields changed."""
    categories = [{"name": name, "flagged": False, "confidence": 0.01} for name in CATEGORIES]
    plain = {
        "id": "p1",
        "text": "hello",
        "media_url": None,
        "categories": categories,
        "violation": False,
        "confidence": 0.01,
        "created_at": "2026-05-04T08:00:00Z",
        "schema": 1,
        "model": "test-1",
        "doubt": None,
        "revision": 1,
    }
    return {**plain, **fields}


def scored(**scores: float) -> dict[str, Any]:
    """A record with these confidences; above a half is flagged."""
    categories = [
        {"name": name, "flagged": scores.get(name, 0) > 0.5, "confidence": scores.get(name, 0.0)} for name in CATEGORIES
    ]
    flagged = [each["confidence"] for each in categories if each["flagged"]]
    confidence = max(flagged or [each["confidence"] for each in categories])
    return record(categories=categories, violation=bool(flagged), confidence=confidence)


def outcome(found: Any, **thresholds: Any) -> str:
    body = found if isinstance(found, bytes) else msgspec.json.encode(found)
    return outcome_of(read(body, id="p1"), make_thresholds(**thresholds)).outcome


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ({}, APPROVED),
        ({"spam": 0.3}, APPROVED),
        ({"spam": 0.31}, NEEDS_REVIEW),
        ({"spam": 0.5, "nsfw": 0.2}, NEEDS_REVIEW),
        ({"spam": 0.51}, NEEDS_REVIEW),
        ({"spam": 0.85}, NEEDS_REVIEW),
        ({"spam": 0.8501}, FLAGGED),
        ({"spam": 1.0, "violence": 0.6}, FLAGGED),
    ],
)
def test_the_bands(scores: dict[str, float], expected: str) -> None:
    assert outcome(scored(**scores)) == expected


def test_each_category_may_have_thresholds_of_its_own() -> None:
    assert outcome(scored(self_harm=0.7), flag_by={"self_harm": 0.6}) == FLAGGED
    assert outcome(scored(spam=0.9), flag_by={"spam": 0.95}) == NEEDS_REVIEW
    assert outcome(scored(spam=0.9, violence=0.9), flag_by={"spam": 0.95}) == FLAGGED
    assert outcome(scored(self_harm=0.2), clear_by={"self_harm": 0.1}) == NEEDS_REVIEW
    assert outcome(scored(spam=0.4), clear=0.45) == APPROVED


@pytest.mark.parametrize(
    "options", [{"flag": 1.5}, {"clear": -0.1}, {"flag_by": {"rudeness": 0.5}}, {"flag": float("nan")}]
)
def test_thresholds_that_cannot_be_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(Invalid):
        make_thresholds(**options)


def changed(index: int, **fields: Any) -> list[dict[str, Any]]:
    categories = record()["categories"]
    categories[index] = {**categories[index], **fields}
    return categories


UNCLEAR = {
    "doubt": record(doubt="others disagreed"),
    "an empty doubt": record(doubt=""),
    "no categories": record(categories=[]),
    "a missing one": record(categories=record()["categories"][1:]),
    "an unknown one": record(categories=[*record()["categories"], {"name": "x", "flagged": False, "confidence": 0}]),
    "one twice": record(categories=[*record()["categories"], record()["categories"][0]]),
    "a renamed one": record(categories=changed(0, name="hate-speech")),
    "more than 1": record(categories=changed(0, confidence=1.5)),
    "less than 0": record(categories=changed(0, confidence=-0.1)),
    "flagged, but no violation": record(categories=changed(0, flagged=True)),
    "a violation of nothing": record(violation=True),
    "another confidence": record(confidence=0.9),
    "a confidence below 0": record(confidence=-1),
    "another post": record(id="p2"),
    "a later schema": record(schema=2),
    "text that is none": record(text=7),
    "a word for a number": record(categories=changed(0, confidence="0.01")),
    "flagged that is no bool": record(categories=changed(0, flagged=0)),
    "no violation told": {name: value for name, value in record().items() if name != "violation"},
    "nothing": {},
}


@pytest.mark.parametrize("name", UNCLEAR)
def test_what_is_unclear_is_for_a_person(name: str) -> None:
    assert outcome(UNCLEAR[name]) == NEEDS_REVIEW


@pytest.mark.parametrize(
    "body", [b"", b"null", b"[]", b"\xff", b'{"id": NaN}', b"[" * 100_000, b'{"id":"p1"', b'{"confidence": 1e999}']
)
def test_what_is_no_record_is_for_a_person(body: bytes) -> None:
    assert outcome(body) == NEEDS_REVIEW


def test_a_record_of_the_demo_names_four_categories() -> None:
    old = {name: value for name, value in record().items() if name not in ("schema", "revision", "model", "doubt")}
    old["categories"] = [each for each in old["categories"] if each["name"] in routing.DEMO_CATEGORIES]
    assert outcome(old) == APPROVED
    assert outcome({**old, "categories": old["categories"][:3]}) == NEEDS_REVIEW
    assert read(msgspec.json.encode(old), id="p1").revision is None


names = st.sampled_from([*CATEGORIES, "other", ""])
numbers = st.one_of(
    st.floats(-0.5, 1.5), st.sampled_from([0, 1, 0.3, 0.85]), st.none(), st.booleans(), st.text(max_size=3)
)
anything = st.one_of(
    st.fixed_dictionaries(
        {},
        optional={
            "id": st.sampled_from(["p1", "p2", 7]),
            "text": st.one_of(st.text(max_size=5), st.integers()),
            "media_url": st.one_of(st.none(), st.text(max_size=5), st.integers()),
            "categories": st.one_of(
                st.none(),
                st.lists(
                    st.fixed_dictionaries({"name": names, "flagged": st.booleans(), "confidence": numbers}), max_size=8
                ),
                st.permutations(CATEGORIES).flatmap(
                    lambda order: st.tuples(
                        *(
                            st.fixed_dictionaries(
                                {
                                    "name": st.just(name),
                                    "flagged": st.booleans(),
                                    "confidence": st.floats(0, 0.4),
                                }
                            )
                            for name in order
                        )
                    )
                ),
            ),
            "violation": st.one_of(st.booleans(), st.none()),
            "confidence": numbers,
            "created_at": st.just("2026-05-04T08:00:00Z"),
            "schema": st.sampled_from([0, 1, 2]),
            "doubt": st.one_of(st.none(), st.text(max_size=3)),
            "revision": st.sampled_from([0, 1, 2, None, "1"]),
        },
    ),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
    st.just(record()),
)


def is_clear(found: dict[str, Any]) -> bool:
    """What may be approved, said in another way than the code does."""
    try:
        categories = {each["name"]: each for each in found["categories"]}
        wanted = set(CATEGORIES) if "schema" in found and found["schema"] is not None else routing.DEMO_CATEGORIES
        return (
            found["id"] == "p1"
            and isinstance(found["text"], str)
            and found.get("schema") in (None, 1)
            and found.get("doubt") is None
            and found["violation"] is False
            and len(categories) == len(found["categories"])
            and set(wanted) <= set(categories) <= set(CATEGORIES)
            and all(each["flagged"] is False and 0 <= each["confidence"] <= 0.3 for each in categories.values())
            and abs(found["confidence"] - max(each["confidence"] for each in categories.values())) <= 0.001
        )
    except (KeyError, TypeError):
        return False


@given(anything)
def test_nothing_unclear_is_ever_approved(found: dict[str, Any]) -> None:
    if outcome(found) == APPROVED:
        assert is_clear(found)


@given(st.binary(max_size=200))
def test_no_bytes_are_approved_by_accident_or_break_the_router(body: bytes) -> None:
    assert outcome(body) == NEEDS_REVIEW


@given(st.floats(0, 1), st.sampled_from(CATEGORIES))
def test_a_flagged_post_is_never_approved(confidence: float, name: str) -> None:
    categories = [
        {"name": each, "flagged": each == name, "confidence": confidence if each == name else 0.0}
        for each in CATEGORIES
    ]
    found = outcome(record(categories=categories, violation=True, confidence=confidence))
    assert found == (FLAGGED if confidence > 0.85 else NEEDS_REVIEW)
