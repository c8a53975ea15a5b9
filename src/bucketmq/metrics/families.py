"""The families of metrics: their names, texts and labels, and the page that Prometheus reads.

Made with prometheus-client, with a registry for each page: nothing is global. Every set of labels has a limit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

import msgspec

from bucketmq import __version__
from bucketmq.events.rule import OWN_QUEUES, rule_of
from bucketmq.procedures.upkeep.stats import QueueStats

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry, Metric

LABEL_SETS_MAX = 500
"""Different sets of labels that one family has; what comes later is counted under OTHER, or left out of a gauge."""

OTHER = "other"

Labels = tuple[tuple[str, str], ...]

Families = Callable[[], Iterator["Metric"]]
"""The figures as they are now."""


class Spread(msgspec.Struct, frozen=True):
    """How long something took, as a histogram: how many took at most so long, and all of them together."""

    counts: tuple[int, ...]
    """One for each bound, and one for what took longer than all of them; not added up."""
    seconds: float


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


def subscription_label(queue: str, subscription: str) -> str:
    """A subscription as people know it: that of a rule by the rule's name, not by the id behind it."""
    rule = rule_of(subscription) if queue in OWN_QUEUES else None
    return subscription if rule is None else f"rule:{rule}"


def queue_families(found: Iterable[QueueStats], *, unreadable: Iterable[str] = ()) -> Iterator[Metric]:
    """How queues stand, by queue and subscription. Made of stats that somebody took before: no request."""
    shown = list(found)[:LABEL_SETS_MAX]
    states: dict[Labels, float] = {}
    ages: dict[Labels, float] = {}
    refused: dict[Labels, float] = {}
    paused: dict[Labels, float] = {}
    settled: dict[Labels, float] = {}
    subscriptions = [(queue, each) for queue in shown for each in queue.subscriptions]
    for queue, each in subscriptions[:LABEL_SETS_MAX]:
        labels: Labels = (
            ("queue", queue.queue),
            ("subscription", subscription_label(queue.queue, each.name)),
        )
        for state in ("ready", "in_flight", "delayed"):
            states[(*labels[:1], ("state", state), *labels[1:])] = getattr(each, state)
        ages[labels] = each.oldest_ready_seconds or 0.0
        refused[labels] = each.conflict_rate
        paused[labels] = float(each.paused is not None)
        settled[labels] = each.settled
    by_queue = {queue.queue: queue for queue in shown}
    yield gauge("queue_messages", "Messages by state, for each subscription.", states)
    yield gauge("queue_oldest_ready_seconds", "Since the oldest ready message was sent; 0 if none is.", ages)
    yield gauge("queue_conflict_ratio", "The part of head writes that was refused, another being faster.", refused)
    yield gauge("queue_paused", "Whether nothing is handed out.", paused)
    delayed: dict[Labels, float] = {(("queue", name),): each.delayed for name, each in by_queue.items()}
    yield gauge("queue_delayed", "Retries that back off, and sends whose delay is not over, each send once.", delayed)
    yield gauge("queue_dead", "Dead letters.", {(("queue", name),): each.dead for name, each in by_queue.items()})
    yield counter(
        "queue_sent_total", "Messages ever sent.", {(("queue", n),): each.sent for n, each in by_queue.items()}
    )
    yield counter("queue_settled_total", "Messages that a subscription has behind it.", settled)
    broken: dict[Labels, float] = {(("queue", name),): 0 for name in list(unreadable)[:LABEL_SETS_MAX]}
    healthy: dict[Labels, float] = {(("queue", name),): int(not each.damaged) for name, each in by_queue.items()}
    yield gauge("queue_healthy", "Whether it can be read, and no head is ahead of its log.", healthy | broken)
    readers = [(name, reader) for name, each in by_queue.items() for reader in each.readers][:LABEL_SETS_MAX]
    lags: dict[Labels, float] = {(("queue", name), ("reader", reader.name)): reader.lag for name, reader in readers}
    yield gauge("reader_lag_messages", "Messages that a reader by offset has not read.", lags)


def build_info() -> Metric:
    return gauge("build_info", "The version that runs.", {(("version", __version__),): 1})


def counter(name: str, text: str, samples: Mapping[Labels, float]) -> Metric:
    return _family(name, text, "counter", samples)


def gauge(name: str, text: str, samples: Mapping[Labels, float]) -> Metric:
    return _family(name, text, "gauge", samples)


def histogram(name: str, text: str, bounds: Sequence[float], samples: Mapping[Labels, Spread]) -> Metric:
    from prometheus_client import Metric

    family = Metric(f"bucketmq_{name}", text, "histogram")
    for labels, spread in sorted(samples.items(), key=lambda each: each[0]):
        so_far = 0
        for bound, count in zip((*bounds, float("inf")), spread.counts, strict=True):
            so_far += count
            family.add_sample(f"bucketmq_{name}_bucket", {**dict(labels), "le": _bound(bound)}, so_far)
        family.add_sample(f"bucketmq_{name}_count", dict(labels), so_far)
        family.add_sample(f"bucketmq_{name}_sum", dict(labels), spread.seconds)
    return family


def _bound(seconds: float) -> str:
    return "+Inf" if seconds == float("inf") else str(seconds)


def _family(name: str, text: str, kind: str, samples: Mapping[Labels, float]) -> Metric:
    from prometheus_client import Metric

    family = Metric(f"bucketmq_{name}".removesuffix("_total"), text, kind)
    for labels, value in sorted(samples.items()):
        family.add_sample(f"bucketmq_{name}", dict(labels), value)
    return family
