"""The simulator of tables: committers, readers and the removal of files that no head names, under faults.

Beside the queues' simulator and on the same world, store and processes. `run_seed(7)` runs one history.
"""

from __future__ import annotations

from bucketmq.testing.simulation.main import Kit
from bucketmq.testing.simulation.tables.mutants import MUTANTS, SEEDS_MAX
from bucketmq.testing.simulation.tables.plan import draw
from bucketmq.testing.simulation.tables.run import Report, run_seed
from bucketmq.testing.simulation.tables.swarm import swarm

TABLES = Kit(draw, run_seed, swarm, MUTANTS, SEEDS_MAX)
"""What `bucketmq sim --tables` runs."""

__all__ = ["TABLES", "Report", "run_seed", "swarm"]
