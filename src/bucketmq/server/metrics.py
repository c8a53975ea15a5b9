"""What the server counts, and the page that Prometheus reads. Every set of labels has a limit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from bucketmq import __version__
from bucketmq.engines.meter import NAMES, Requests
from bucketmq.procedures.rule_run import RuleRun

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"

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


def page(counters: Counters, requests: Requests, runs: Iterable[RuleRun], *, notifier_up: bool) -> str:
    """Prometheus' text format."""
    lines: list[str] = []
    family(lines, "build_info", "gauge", "The version that runs.", {(("version", __version__),): 1})
    family(lines, "notifier_up", "gauge", "Whether rules are being run.", {(): int(notifier_up)})
    for name, counts in counters.families():
        family(lines, name, "counter", COUNTERS[name], counts)
    _store(lines, requests)
    _rules(lines, list(runs)[:LABEL_SETS_MAX])
    return "\n".join(lines) + "\n"


def _store(lines: list[str], requests: Requests) -> None:
    kinds: dict[Labels, int] = {(("kind", name),): getattr(requests, name) for name in NAMES.values()}
    family(lines, "store_requests_total", "counter", "Requests to the store, by kind.", kinds)
    outcomes: dict[Labels, int] = {
        (("outcome", each),): getattr(requests, each) for each in ("missing", "refused", "unknown", "failed")
    }
    family(lines, "store_outcomes_total", "counter", "Requests to the store that did not simply work.", outcomes)
    ways: dict[Labels, int] = {(("way", each),): getattr(requests, f"bytes_{each}") for each in ("in", "out")}
    family(lines, "store_bytes_total", "counter", "Bytes read from and written to the store.", ways)


def _rules(lines: list[str], runs: list[RuleRun]) -> None:
    deliveries: dict[Labels, int] = {}
    breakers: dict[Labels, int] = {}
    for run in runs:
        for outcome in ("done", "failed", "buried", "dropped"):
            deliveries[(("outcome", outcome), ("rule", run.rule.name))] = getattr(run.counts, outcome)
        is_open = run.failures_in_a_row >= run.rule.policy.breaker.failures
        breakers[(("rule", run.rule.name),)] = int(is_open)
    family(lines, "rule_deliveries_total", "counter", "What became of a rule's events in this process.", deliveries)
    family(lines, "rule_breaker_open", "gauge", "Whether a rule's endpoint is left alone for a while.", breakers)


def family(lines: list[str], name: str, kind: str, text: str, samples: Mapping[Labels, float]) -> None:
    lines += [f"# HELP bucketmq_{name} {text}", f"# TYPE bucketmq_{name} {kind}"]
    for labels, value in sorted(samples.items()):
        shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels)
        lines.append(f"bucketmq_{name}{{{shown}}} {value}" if shown else f"bucketmq_{name} {value}")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
