"""A study of something real: how many messages a worker of BucketMQ should take at a time, and for how long.

The simulator `bucketmq-worker` runs the library's own procedures on virtual time, with workers that die. Taking more at
a time costs fewer requests; but more is wasted when a worker dies, or when its lease ends before its work does.
"""

from __future__ import annotations

from bucketmq.apps.research import simulators
from bucketmq.apps.research.plan import Plan, read_plan, with_version


def tuning_plan() -> Plan:
    """The plan: batch and lease over a grid; the library's defaults are the baseline."""
    raw = {
        "study": "tuning",
        "about": "How many messages should a worker take at a time, and for how long?",
        "simulator": "bucketmq-worker",
        "parameters": [
            {"name": "batch", "values": [1, 5, 10, 25, 50]},
            {"name": "lease_seconds", "values": [5.0, 15.0, 60.0]},
        ],
        "fixed": {"messages": 200, "workers": 4, "work_seconds": 0.2, "deaths": 0.01},
        "metrics": [{"name": "seconds"}, {"name": "requests"}, {"name": "repeated"}],
        "baseline": {"batch": 10, "lease_seconds": 60.0},
        "seeds": 8,
        "budget": 15 * 8,
    }
    _, version = simulators.load("bucketmq-worker")
    return with_version(read_plan(raw), version)
