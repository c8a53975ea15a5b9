"""Settings: which values are refused, what the wait after a failure is, and which names can be part of a key."""

from __future__ import annotations

import math

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketmq.errors import Invalid
from bucketmq.queue.policy import Policy, policy_of
from bucketmq.queue.settings import TUNABLE, Backoff, Settings, check_name, check_settings
from bucketmq.testing import strategies

EVERY_NUMBER = [
    "lease_seconds", "dedup_seconds", "keep_seconds", "expire_seconds",
    "backoff.first_seconds", "backoff.factor", "backoff.max_seconds", "backoff.jitter",
]  # fmt: skip


def with_value(name: str, value: object) -> Settings:
    if name.startswith("backoff."):
        return Settings(backoff=Backoff(**{name.removeprefix("backoff."): value}))
    return Settings(**{name: value})


def test_the_defaults_are_accepted():
    assert check_settings(Settings()) == Settings()


@given(strategies.settings())
def test_settings_drawn_by_the_strategy_are_accepted(settings):
    assert check_settings(settings) is settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("shards", 0),
        ("shards", 1025),
        ("shards_max", -1),
        ("shards_max", 1025),
        ("lease_seconds", 0.09),
        ("lease_seconds", 43201),
        ("attempts_max", 0),
        ("attempts_max", 1001),
        ("dedup_seconds", -1),
        ("keep_seconds", -1),
        ("expire_seconds", -1),
        ("inline_bytes_max", -1),
        ("inline_bytes_max", (1 << 20) + 1),
        ("in_flight_max", 0),
        ("in_flight_max", 100_001),
        ("backoff.first_seconds", -1),
        ("backoff.factor", 0.9),
        ("backoff.max_seconds", -1),
        ("backoff.jitter", -0.1),
        ("backoff.jitter", 1.1),
    ],
)
def test_a_value_that_cannot_work_is_refused_by_name(name, value):
    with pytest.raises(Invalid, match=name):
        check_settings(with_value(name, value))


@pytest.mark.parametrize("name", EVERY_NUMBER)
@pytest.mark.parametrize("value", [math.inf, math.nan])
def test_a_number_that_json_cannot_hold_is_refused(name, value):
    # It would be written as null, and queue.json could never be read again.
    with pytest.raises(Invalid, match=name):
        check_settings(with_value(name, value))


def test_every_tunable_name_is_a_setting():
    assert set(Settings.__struct_fields__) >= TUNABLE
    assert {"format", "fences"}.isdisjoint(TUNABLE)


def test_the_rules_see_their_part_of_the_settings():
    assert policy_of(Settings(attempts_max=7, in_flight_max=8, ordered=True)) == Policy(7, 8, True)


def test_the_wait_grows_by_the_factor_up_to_the_maximum():
    backoff = Backoff(first_seconds=1, factor=4, max_seconds=100, jitter=0.2)

    assert [backoff.seconds(attempt, 0.5) for attempt in (1, 2, 3, 4, 5)] == [1, 4, 16, 64, 100]


def test_chance_moves_the_wait_by_at_most_the_jitter():
    backoff = Backoff(first_seconds=100, factor=1, jitter=0.2)

    assert backoff.seconds(1, 0.0) == pytest.approx(80)
    assert backoff.seconds(1, 0.999999) == pytest.approx(120, rel=1e-4)


@given(strategies.settings(), st.integers(1, 1000), st.floats(0, 1, exclude_max=True))
def test_a_wait_is_a_number_between_zero_and_the_maximum_with_jitter(settings, attempt, chance):
    backoff = settings.backoff

    assert 0 <= backoff.seconds(attempt, chance) <= backoff.max_seconds * (1 + backoff.jitter)


def test_the_steepest_backoff_that_is_accepted_has_a_wait_for_every_attempt():
    steepest = 1.0
    while steepest < 1e300:
        try:
            check_settings(with_value("backoff.factor", steepest * 10))
        except Invalid:
            break
        steepest *= 10

    assert Backoff(factor=steepest, max_seconds=60, jitter=0).seconds(1000, 0.5) == 60


@given(strategies.names())
def test_names_drawn_by_the_strategy_are_accepted(name):
    assert check_name(name, "queue") == name


@pytest.mark.parametrize(
    "name", ["", ".", "..", ".hidden", "a/b", "a b", "ä", "a\n", "a\0", "x" * 81, "*", "a\\b", None, 7, b"x"]
)
def test_a_name_that_cannot_be_part_of_a_key_is_refused(name):
    with pytest.raises(Invalid, match="queue"):
        check_name(name, "queue")


def test_settings_cannot_be_changed_in_place():
    with pytest.raises(AttributeError):
        Settings().shards = 2  # type: ignore[misc]
    assert msgspec.structs.replace(Settings(), shards=2).shards == 2
