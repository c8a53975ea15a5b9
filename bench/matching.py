"""A hundred rules: deciding alone, and a hundred subscriptions of one process that pass over what they do not want.

Beside deciding stand the same hundred questions as a Python programmer would write them by hand, with the same answers.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import bucketmq
from bench.children import alone
from bench.happenings import FOLDERS, events
from bench.places import asked, folder, settle_disk
from bench.results import BARE, Measurement, measured
from bench.sizes import Sizes
from bucketmq.events import filters
from bucketmq.events.event import ObjectEvent
from bucketmq.events.filters import Decision
from bucketmq.procedures.rules.notifier import Notifier

SCENARIO = "rules"
PER_SEND = 1_000
DECIDED_MAX = 5_000

Go = Callable[[], object]
Question = Callable[[ObjectEvent], bool]


def many_rules(sizes: Sizes) -> Iterator[Measurement]:
    count = min(DECIDED_MAX, sizes.rules_events)
    runs = [alone(_decide, count, sizes.rules) for _ in range(sizes.repeats)]
    what = f"{sizes.rules} filters for each event, deciding alone"
    note = f"{runs[0][2]:,} of {count * sizes.rules:,} match"
    yield measured(SCENARIO, what, [count / each[0] for each in runs], "events/s", note=note)
    yield measured(SCENARIO, what, [count / each[1] for each in runs], "events/s", subject=BARE)
    count = sizes.rules_events
    passed, requests = [], 0
    for _ in range(sizes.repeats):
        with folder() as path:
            seconds, requests = alone(_pass_over, path.as_uri(), count, sizes.rules)
            passed.append(count / seconds)
    yield measured(
        SCENARIO,
        f"{sizes.rules} rules in one process, nothing matches",
        passed,
        "events/s",
        store="folder",
        depth=count,
        note=f"{requests} requests for {count} events, each seen by every rule",
    )


def rule(number: int) -> tuple[str, Question]:
    """Some filter, and the same by hand."""
    folder = f"orders/{number % FOLDERS:02}/"
    match number % 5:
        case 0:
            return f'WHERE key LIKE "{folder}%.csv"', lambda e: e.key.startswith(folder) and e.key.endswith(".csv")
        case 1:
            pattern = re.compile(rf"^{folder}.*[{number % 10}]\.json$")
            return f'WHERE key REGEXP "{pattern.pattern}"', lambda e: pattern.search(e.key) is not None
        case 2:
            least = 5_000 + number
            return (
                f'WHERE size > {least} AND `Event-Type` = "OBJECT_CREATED_PUT"',
                lambda e: e.size_bytes is not None and e.size_bytes > least and e.name == "OBJECT_CREATED_PUT",
            )
        case 3:
            names = frozenset(f"{folder}{each:08}.json" for each in range(number, number + 10))
            listed = ", ".join(f'"{each}"' for each in sorted(names))
            return f"WHERE key IN ({listed})", lambda e: e.key in names
        case _:
            return (
                f'WHERE kind = "deleted" AND NOT key LIKE "{folder}%"',
                lambda e: e.kind == "deleted" and not e.key.startswith(folder),
            )


def _decide(go: Go, count: int, rules: int) -> tuple[float, float, int]:
    """Seconds of the filters, seconds by hand, and how many matches both found."""
    made = [rule(number) for number in range(rules)]
    chosen = [filters.parse(text) for text, _ in made]
    questions = [question for _, question in made]
    told = events(0, count)
    go()
    began = time.perf_counter()
    found = sum(1 for event in told for each in chosen if each.decide(event) is Decision.MATCH)
    middle = time.perf_counter()
    by_hand = sum(1 for event in told for question in questions if question(event))
    ended = time.perf_counter()
    if found != by_hand or not found:
        raise AssertionError(f"the filters match {found} times, the same by hand {by_hand} times")
    return middle - began, ended - middle, found


def _pass_over(go: Go, url: str, count: int, rules: int) -> tuple[float, int]:
    """Seconds until all rules have passed over everything, and requests to the store."""

    def never(change: Any) -> None:
        raise AssertionError(f"{change.key} matches no rule")

    notifiers: list[Notifier] = []
    with bucketmq.connect(url, probe=False) as bucket:
        for number in range(rules):
            text = rule(number)[0].removeprefix("WHERE ")
            bucket.watch(f'key LIKE "elsewhere/%" AND ({text})', name=f"rule-{number}", start="beginning")(never)
        bucket.run_watchers(stop_when_empty=True, signals=False)  # makes the rules
        for start in range(0, count, PER_SEND):
            bucket.report(events(start, min(PER_SEND, count - start)))
        settle_disk()
        before = asked(bucket)
        go()
        began = time.perf_counter()
        bucket.run_watchers(stop_when_empty=True, signals=False, started=notifiers.append)
        seconds = time.perf_counter() - began
        requests = asked(bucket) - before
    passed = [run.choice.passed_over for run in notifiers[0].runs()]
    if passed != [count] * rules:
        raise AssertionError(f"{rules} rules were to pass over {count} events each; they passed over {passed}")
    return seconds, requests
