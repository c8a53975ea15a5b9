"""A seeded simulator over the production procedures: many processes, virtual time, faults, and an auditor."""

from __future__ import annotations

from bucketmq.testing.simulation.run import Report, run_seed

__all__ = ["Report", "run_seed"]
