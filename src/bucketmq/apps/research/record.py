"""What a study stores, and under which keys. Pure.

All of it is created once and never replaced: results by the first worker that runs the trial, rounds and the end of a
study by whichever planner decides first. So two of them agree, and a process that died half-way is simply done again.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

from bucketmq.apps.research.plan import ID_DIGITS, Settings, Trial

STUDIES = "studies/"
INDEX = "research/studies/"
"""An empty object for each study: listing them must not list their results."""

TRIALS = "research-trials"
TRIALS_ON_SPARK = "research-trials-spark"
QUEUES = {"workers": TRIALS, "spark": TRIALS_ON_SPARK}
FIRST_SETTINGS: dict[str, dict[str, Any]] = {
    # Spark reads by offset, and nobody else reads it: trimming goes by time.
    TRIALS_ON_SPARK: {"main": False, "keep_seconds": 7 * 86400.0},
}

PLAN, CLOSED, STOP, REMARKS = "plan.json", "closed.json", "stop.json", "remarks.json"
REPORT_MD, REPORT_HTML, SYNTHESIS = "report.md", "report.html", "synthesis.json"
RESULTS, ROUNDS, FIGURES = "results/", "rounds/", "figures/"

_RESULT = re.compile(rf"{STUDIES}([a-z0-9._-]+)/{RESULTS}([0-9a-f]{{{ID_DIGITS}}})\.json\Z")

Kind = Literal["raised", "died", "time", "memory", "output", "garbage", "not a number", "metric"]
"""What went wrong with a trial: it raised or exited with an error, was ended by a signal, used too much time, memory or
output, returned something that is not metrics, a number that is not finite, or not the metric that the plan wants."""


class Failure(msgspec.Struct, frozen=True):
    kind: Kind
    reason: str


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What came of a trial. Of these, reports use the parameters, seed, metrics and failure alone."""

    id: str
    parameters: Settings
    seed: int
    simulator: str
    version: str
    metrics: dict[str, float] = {}
    failure: Failure | None = None
    log: str = ""
    """The end of what it printed."""
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    worker: str = ""
    python: str = ""


class Round(msgspec.Struct, frozen=True, kw_only=True):
    """Trials that are run together: a function of the plan and the results of the rounds before."""

    number: int
    trials: tuple[Trial, ...]
    reused: tuple[str, ...] = ()
    """Trials of earlier rounds that count in this one, too: of a point that halving promoted."""


Why = Literal["all in", "budget", "stop rule", "stopped", "deadline"]


class Closed(msgspec.Struct, frozen=True, kw_only=True):
    """The end of a study: which results its report is made of. What comes later is kept, and not counted."""

    why: Why
    rounds: int
    counted: tuple[str, ...]
    missing: tuple[str, ...] = ()


def study_key(study: str, name: str) -> str:
    return f"{STUDIES}{study}/{name}"


def result_key(study: str, id: str) -> str:
    return study_key(study, f"{RESULTS}{id}.json")


def round_key(study: str, number: int) -> str:
    return study_key(study, f"{ROUNDS}{number:05}.json")


def sent_key(study: str, number: int) -> str:
    """There once all trials of a round were sent."""
    return study_key(study, f"{ROUNDS}{number:05}.sent.json")


def index_key(study: str) -> str:
    return f"{INDEX}{study}.json"


def result_at(key: str) -> tuple[str, str] | None:
    """The study and the trial whose result lies at a key, if one does."""
    found = _RESULT.match(key)
    return (found[1], found[2]) if found else None
