"""What the server counts, and the page that Prometheus reads. Every set of labels has a limit.

Counting needs no package; the page is prometheus-client's, with a registry for each page: nothing is global.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from bucketmq import __version__
from bucketmq.engines.meter import NAMES, Requests
from bucketmq.procedures.rules.run import RuleRun
from bucketmq.procedures.upkeep.stats import QueueStats

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

LABEL_SETS_MAX = 500
"""Different sets of labels that one counter has; what comes later is counted under OTHER."""

OTHER = "other"

Labels = tuple[tuple[str, str], ...]

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

    def families(self) -> Iterable[tuple[str, Mapping[Labels, int]]]:
        return self._counts.items()


Families = Callable[[], Iterator["Metric"]]
"""The figures as they are now."""


def registry_of(families: Families) -> CollectorRegistry:
    """A registry of its own that asks for the figures whenever it is read."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.registry import Collector

    class Figures(Collector):
        def collect(self) -> Iterator[Metric]:
            return families()

        def describe(self) -> Iterator[Metric]:
            return iter(())  # or registering would collect once

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Figures())
    return registry


def page(families: Families, accept: str = "") -> tuple[bytes, str]:
    """The page in the format that the scraper asks for, and its content type."""
    from prometheus_client.exposition import choose_encoder

    encode, content_type = choose_encoder(accept)
    return encode(registry_of(families)), content_type


def server_families(
    counters: Counters, requests: Requests, runs: Iterable[RuleRun], *, notifier_up: bool
) -> Iterator[Metric]:
    """What `/metrics` of a server shows."""
    yield build_info()
    yield gauge("notifier_up", "Whether rules are being run.", {(): int(notifier_up)})
    for name, counts in counters.families():
        yield counter(name, COUNTERS[name], counts)
    yield from store_families(requests)
    yield from _rules(list(runs)[:LABEL_SETS_MAX])


def queue_families(found: Iterable[QueueStats], *, unreadable: Iterable[str] = ()) -> Iterator[Metric]:
    """How queues stand, by queue and subscription. Made of stats that somebody took before: no request."""
    shown = list(found)[:LABEL_SETS_MAX]
    states: dict[Labels, float] = {}
    ages: dict[Labels, float] = {}
    refused: dict[Labels, float] = {}
    paused: dict[Labels, float] = {}
    for queue in shown:
        for each in queue.subscriptions:
            labels: Labels = (("queue", queue.queue), ("subscription", each.name))
            for state in ("ready", "in_flight", "delayed"):
                states[(*labels[:1], ("state", state), *labels[1:])] = getattr(each, state)
            ages[labels] = each.oldest_ready_seconds or 0.0
            refused[labels] = each.conflict_rate
            paused[labels] = float(each.paused is not None)
    by_queue = {queue.queue: queue for queue in shown}
    yield gauge("queue_messages", "Messages by state, for each subscription.", states)
    yield gauge("queue_oldest_ready_seconds", "Since the oldest ready message was sent; 0 if none is.", ages)
    yield gauge("queue_conflict_ratio", "The part of head writes that was refused, another being faster.", refused)
    yield gauge("queue_paused", "Whether nothing is handed out.", paused)
    yield gauge("queue_dead", "Dead letters.", {(("queue", name),): each.dead for name, each in by_queue.items()})
    yield counter(
        "queue_sent_total", "Messages ever sent.", {(("queue", n),): each.sent for n, each in by_queue.items()}
    )
    broken: dict[Labels, float] = {(("queue", name),): 0 for name in list(unreadable)[:LABEL_SETS_MAX]}
    healthy: dict[Labels, float] = {(("queue", name),): int(not each.damaged) for name, each in by_queue.items()}
    yield gauge("queue_healthy", "Whether it can be read, and no head is ahead of its log.", healthy | broken)
    lags: dict[Labels, float] = {
        (("queue", name), ("reader", r.name)): r.lag for name, each in by_queue.items() for r in each.readers
    }
    yield gauge("reader_lag_messages", "Messages that a reader by offset has not read.", lags)


def store_families(requests: Requests) -> Iterator[Metric]:
    kinds: dict[Labels, int] = {(("kind", name),): getattr(requests, name) for name in NAMES.values()}
    yield counter("store_requests_total", "Requests to the store, by kind.", kinds)
    outcomes: dict[Labels, int] = {
        (("outcome", each),): getattr(requests, each) for each in ("missing", "refused", "unknown", "failed")
    }
    yield counter("store_outcomes_total", "Requests to the store that did not simply work.", outcomes)
    ways: dict[Labels, int] = {(("way", each),): getattr(requests, f"bytes_{each}") for each in ("in", "out")}
    yield counter("store_bytes_total", "Bytes read from and written to the store.", ways)


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


def build_info() -> Metric:
    return gauge("build_info", "The version that runs.", {(("version", __version__),): 1})


def counter(name: str, text: str, samples: Mapping[Labels, float]) -> Metric:
    return _family(name, text, "counter", samples)


def gauge(name: str, text: str, samples: Mapping[Labels, float]) -> Metric:
    return _family(name, text, "gauge", samples)


def _family(name: str, text: str, kind: str, samples: Mapping[Labels, float]) -> Metric:
    from prometheus_client import Metric

    family = Metric(f"bucketmq_{name}".removesuffix("_total"), text, kind)
    for labels, value in sorted(samples.items()):
        family.add_sample(f"bucketmq_{name}", dict(labels), value)
    return family
