"""Rules as values: what can work, what an answer means, when to try again."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bucketmq.errors import Invalid
from bucketmq.events.rule import (
    BATCH_MAX,
    RETRY_SECONDS,
    Breaker,
    Policy,
    Rule,
    Secrets,
    ToQueue,
    ToWatcher,
    Webhook,
    check_rule,
    edited,
    rule_of,
    subscription_name,
    verdict,
    wait_seconds,
)

URL = "https://example.com/hook"


def rule(to: Any = None, **policy: Any) -> Rule:
    return Rule(name="r", to=to or Webhook(url=URL), policy=Policy(**policy))


@pytest.mark.parametrize(
    "to", [Webhook(url=URL), Webhook(url="https://[2001:db8::1]:8443/x?y=z"), ToQueue(queue="q"), ToWatcher()]
)
def test_a_sensible_rule_is_as_it_was(to: Any) -> None:
    assert check_rule(rule(to)) == rule(to)


BAD = [
    (rule(retry_seconds=(1.0,) * 101), "at most 100"),
    (rule(retry_seconds=(-1.0,)), "30 days"),
    (rule(retry_seconds=(float("nan"),)), "30 days"),
    (rule(jitter=1.1), "jitter"),
    (rule(breaker=Breaker(0)), "breaker.failures"),
    (rule(breaker=Breaker(1, 10.0, 5.0)), "breaker.seconds"),
    (rule(rate_per_second=-1), "rate"),
    (rule(concurrency=257), "concurrency"),
    (rule(hops_max=-1), "hops_max"),
    (rule(body_bytes_max=1 << 40), "body_bytes_max"),
    (rule(Webhook(url="example.com")), "https://"),
    (rule(Webhook(url="http://example.com")), "not encrypted"),
    (rule(Webhook(url="https://")), "host"),
    (rule(Webhook(url="https://example.com:0/")), "no user"),
    (rule(Webhook(url="https://example.com:99999/")), "not a URL"),
    (rule(Webhook(url="https://[bad/")), "not a URL"),
    (rule(Webhook(url="https://u:p@example.com/")), "no user"),
    (rule(Webhook(url="https://example.com/#x")), "no user"),
    (rule(Webhook(url="https://example.com/ x")), "ASCII"),
    (rule(Webhook(url="https://exämple.com/")), "ASCII"),
    (rule(Webhook(url=URL + "x" * 2000)), "2000"),
    (rule(Webhook(url=URL, batch=BATCH_MAX + 1)), "batch"),
    (rule(Webhook(url=URL, timeout_seconds=0)), "timeout_seconds"),
    (rule(Webhook(url=URL, statuses={"100": "done"})), "status"),
    (rule(Webhook(url=URL, statuses={"6xx": "done"})), "status"),
    (rule(ToQueue(queue="a/b")), "queue name"),
    (rule(ToQueue(queue="events")), "own"),
    (rule(ToQueue(queue="jobs.dead")), "own"),
]


@pytest.mark.parametrize(("bad", "says"), BAD, ids=range(len(BAD)))
def test_what_cannot_work_says_what_would(bad: Rule, says: str) -> None:
    with pytest.raises(Invalid, match=says):
        check_rule(bad)


def test_http_is_for_private_targets() -> None:
    check_rule(rule(Webhook(url="http://localhost:8000/hook", private=True)))


@pytest.mark.parametrize(
    ("status", "means"),
    [(200, "done"), (204, "done"), (299, "done"), (301, "retry"), (404, "retry"), (410, "pause"), (500, "retry")],
)
def test_what_a_status_means_unless_the_rule_says_otherwise(status: int, means: str) -> None:
    assert verdict(Webhook(url=URL), status) == means


def test_a_single_status_counts_before_its_class() -> None:
    to = Webhook(url=URL, statuses={"4xx": "bury", "429": "retry", "410": "bury", "2xx": "retry", "201": "done"})
    assert [verdict(to, each) for each in (400, 429, 410, 200, 201, 500)] == [
        "bury",
        "retry",
        "bury",
        "retry",
        "done",
        "retry",
    ]


def test_the_usual_schedule_is_ten_attempts_over_three_days() -> None:
    policy = Policy(jitter=0)
    waits = [wait_seconds(policy, attempt, 0.5, None) for attempt in range(1, 12)]
    assert waits == [*RETRY_SECONDS, None, None]
    assert 70 * 3600 < sum(RETRY_SECONDS) < 80 * 3600


@given(st.integers(1, 9), st.floats(0, 1, exclude_max=True), st.floats(0, 1))
def test_jitter_stays_within_its_part(attempt: int, chance: float, jitter: float) -> None:
    plain = RETRY_SECONDS[attempt - 1]
    found = wait_seconds(Policy(jitter=jitter), attempt, chance, None)
    assert found is not None
    assert plain * (1 - jitter) - 1e-6 <= found <= plain * (1 + jitter) + 1e-6


@given(st.floats(0, 1e9))
def test_a_wish_for_later_counts_up_to_a_day_and_one_for_sooner_does_not(wish: float) -> None:
    found = wait_seconds(Policy(jitter=0), 2, 0.5, wish)
    assert found == max(300.0, min(wish, 86400.0))


def test_after_the_last_attempt_no_wish_counts() -> None:
    assert wait_seconds(Policy(retry_seconds=()), 1, 0.5, 10.0) is None


def test_an_edit_that_changes_nothing_is_none() -> None:
    before = rule()
    assert edited(before, paused=None) is before
    after = edited(before, paused="why")
    assert (after.paused, after.revision) == ("why", before.revision + 1)


@given(st.from_regex(r"[a-z0-9][a-z0-9-]{0,30}", fullmatch=True))
def test_a_subscription_names_its_rule(name: str) -> None:
    assert rule_of(subscription_name(name, "abcdef0123")) == name


def test_other_subscriptions_name_none() -> None:
    assert rule_of("main") is None
    assert rule_of("rule-") is None


@pytest.mark.parametrize("to", [Webhook(url=URL, batch=3, statuses={"400": "bury"}), ToQueue(queue="q"), ToWatcher()])
def test_a_rule_is_read_back_as_it_was_written(to: Any) -> None:
    made = rule(to, ordered=True, retry_seconds=(1.0, 2.0), gone="bury")
    assert msgspec.json.decode(msgspec.json.encode(made), type=Rule) == made
    secrets = Secrets(signing=("env:A",), bearer="b", revision=3)
    assert msgspec.json.decode(msgspec.json.encode(secrets), type=Secrets) == secrets
