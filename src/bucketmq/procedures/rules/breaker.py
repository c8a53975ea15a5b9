"""Whether one more request may be sent to a rule's endpoint now: the breaker and the rate.

After some failures in a row the breaker is open, and nothing is sent for a while. Then one request tries; if it fails,
the while is twice as long. What is known of the endpoint is kept in the `RuleRun`, under its lock.
"""

from __future__ import annotations

import logging

import msgspec

from bucketmq.procedures.requests import Now, Pause, Procedure
from bucketmq.procedures.rules.run import RuleRun

BREAKER_STEP_SECONDS = 0.5

logger = logging.getLogger("bucketmq")


class Leave(msgspec.Struct, frozen=True):
    """That one request may be sent now."""

    trial: bool
    """Whether it is the one that sees if the endpoint is back."""


def may_send(run: RuleRun) -> Procedure[Leave | None]:
    """Wait for the breaker and the rate; None if the rule is to stop before that."""
    while not run.stopping:
        now = yield from Now()
        with run.lock:
            found = _turn(run, now)
        if isinstance(found, Leave):
            return found
        yield from Pause(min(found, BREAKER_STEP_SECONDS))
    return None


def _turn(run: RuleRun, now: float) -> Leave | float:
    """Leave to send, or how long to wait before asking again."""
    policy = run.rule.policy
    if now < run.shut_until or run.trying:
        return max(run.shut_until - now, 0.05)
    if policy.rate_per_second > 0:
        if now < run.next_send_at:
            return run.next_send_at - now
        run.next_send_at = max(now, run.next_send_at) + 1 / policy.rate_per_second
    run.trying = run.failures_in_a_row >= policy.breaker.failures
    return Leave(run.trying)


def note_failure(run: RuleRun, leave: Leave, now: float) -> None:
    """A request failed: one more in a row opens the breaker, and the one that tried keeps it open for longer."""
    breaker = run.rule.policy.breaker
    with run.lock:
        run.failures_in_a_row += 1
        if leave.trial:
            run.trying = False
            run.shut_seconds = min(run.shut_seconds * 2, breaker.seconds_max)
            run.shut_until = max(run.shut_until, now + run.shut_seconds)
        elif run.failures_in_a_row == breaker.failures:  # those that were out by then open it no further
            run.shut_until = max(run.shut_until, now + run.shut_seconds)
            logger.warning("action=breaker_open rule=%s failures=%d", run.rule.name, run.failures_in_a_row)


def note_success(run: RuleRun) -> None:
    """The endpoint answers: nothing holds requests up any more."""
    with run.lock:
        run.failures_in_a_row, run.trying = 0, False
        run.shut_seconds = run.rule.policy.breaker.seconds


def not_tried(run: RuleRun, leave: Leave) -> None:
    """Nothing was sent, or nobody knows: another may see if the endpoint is back."""
    with run.lock:
        run.trying = run.trying and not leave.trial


def hold_off(run: RuleRun, seconds: float, now: float) -> None:
    """The endpoint asks to be left alone for so long."""
    with run.lock:
        run.shut_until = max(run.shut_until, now + min(seconds, run.rule.policy.breaker.seconds_max))
