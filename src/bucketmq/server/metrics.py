"""What the server counts of itself. Requests and handled messages are counted by `bucketmq.metrics`, as elsewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from bucketmq.metrics.counts import Counts
from bucketmq.metrics.families import LABEL_SETS_MAX, OTHER, Labels, build_info, counter, gauge
from bucketmq.procedures.rules.run import RuleRun

if TYPE_CHECKING:
    from prometheus_client import Metric

COUNTERS = {
    "receiver_requests_total": "Requests to receivers, by source and status.",
    "events_received_total": "Items of notifications by what became of them: accepted, ignored, outside, bad.",
    "unknown_event_names_total": "Events with a name that is not known here; they are accepted.",
    "subscriptions_confirmed_total": "Handshakes that were completed.",
    "file_events_total": "Changes noticed in the folder.",
    "file_overflows_total": "Times that more files changed at once than were looked at one by one.",
    "sweeps_total": "Sweeps by this server, by outcome.",
    "submissions_total": "Posts that were submitted, by status.",
    "posts_routed_total": "Records below pending/ by what became of them.",
    "restarts_total": "Background tasks that failed and were started again.",
}


class Counters:
    """Counts since the server started. Belongs to one event loop."""

    def __init__(self) -> None:
        self._counts: dict[str, Counter[Labels]] = {name: Counter() for name in COUNTERS}

    def add(self, name: str, count: int = 1, /, **labels: str) -> None:
        counts = self._counts[name]
        key = tuple(sorted(labels.items()))
        if key not in counts and len(counts) >= LABEL_SETS_MAX:
            key = tuple((label, OTHER) for label, _ in key)
        counts[key] += count

    def read(self, name: str, /, **labels: str) -> int:
        return self._counts[name][tuple(sorted(labels.items()))]

    def families(self) -> Iterator[Metric]:
        return (counter(name, text, self._counts[name]) for name, text in COUNTERS.items())


def server_families(
    counters: Counters, counts: Counts, runs: Iterable[RuleRun], *, notifier_up: bool
) -> Iterator[Metric]:
    """What `/metrics` of a server shows."""
    yield build_info()
    yield gauge("notifier_up", "Whether rules are being run.", {(): int(notifier_up)})
    yield from counters.families()
    yield from counts.families()
    yield from _rules(list(runs)[:LABEL_SETS_MAX])


def _rules(runs: list[RuleRun]) -> Iterator[Metric]:
    deliveries: dict[Labels, int] = {}
    breakers: dict[Labels, int] = {}
    for run in runs:
        for outcome in ("done", "failed", "buried", "dropped"):
            deliveries[(("outcome", outcome), ("rule", run.rule.name))] = getattr(run.counts, outcome)
        is_open = run.failures_in_a_row >= run.rule.policy.breaker.failures
        breakers[(("rule", run.rule.name),)] = int(is_open)
    yield counter("rule_deliveries_total", "What became of a rule's events in this process.", deliveries)
    yield gauge("rule_breaker_open", "Whether a rule's endpoint is left alone for a while.", breakers)
