"""A seeded simulator over the production procedures: many processes, virtual time, faults, and an auditor.

`run_seed(7)` runs one history and reports on it, `swarm(range(1000), jobs=2)` adds up many, `trace(7)` shows one line
by line. Everything follows from the seed. This is the queues' simulator; that of the event bus is `simulation.bus`.
"""

from __future__ import annotations

from bucketmq.testing.simulation.bus import BUS
from bucketmq.testing.simulation.main import QUEUES, main_run, trace
from bucketmq.testing.simulation.run import Report, run_seed
from bucketmq.testing.simulation.swarm import swarm

__all__ = ["BUS", "QUEUES", "Report", "main_run", "run_seed", "swarm", "trace"]
