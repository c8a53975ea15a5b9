"""The simulator of the event bus: users' objects, notifications, sweeps, rules, endpoints and watchers under faults.

Beside the queues' simulator and on the same world, store and processes. `run_seed(7)` runs one history.
"""

from __future__ import annotations

from bucketmq.testing.simulation.bus.mutants import MUTANTS, SEEDS_MAX
from bucketmq.testing.simulation.bus.plan import draw
from bucketmq.testing.simulation.bus.run import Report, run_seed
from bucketmq.testing.simulation.bus.swarm import swarm
from bucketmq.testing.simulation.main import Kit

BUS = Kit(draw, run_seed, swarm, MUTANTS, SEEDS_MAX)
"""What `bucketmq sim --bus` runs."""

__all__ = ["BUS", "Report", "run_seed", "swarm"]
