"""Figures for machines: what a process did, and how its queues stand, for Prometheus and for OTLP.

`counts` observes requests and handled messages; `families` names every metric; `port` serves them, `push` sends them;
`standing` looks at queues in the background; `report` leaves a process' figures in the bucket, for the dashboard.
Showing them to people is the dashboard's.
"""

from bucketmq.metrics.port import MetricsPort, serve_metrics
from bucketmq.metrics.push import push_metrics
from bucketmq.metrics.report import Reporter

__all__ = ["MetricsPort", "Reporter", "push_metrics", "serve_metrics"]
