"""The simulator of tables: committers, readers and the removal of files that no head names, under faults.

Beside the queues' simulator and on the same world, store and processes. `run_seed(7)` runs one history.
"""

from __future__ import annotations

from bucketmq.testing.simulation.tables.main import TABLES
from bucketmq.testing.simulation.tables.run import Report, run_seed
from bucketmq.testing.simulation.tables.swarm import swarm

__all__ = ["TABLES", "Report", "run_seed", "swarm"]
