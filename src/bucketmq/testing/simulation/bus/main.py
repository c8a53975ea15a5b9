"""What `bucketmq sim --bus` calls."""

from __future__ import annotations

from bucketmq.testing.simulation.bus.mutants import MUTANTS, hunt
from bucketmq.testing.simulation.bus.plan import draw
from bucketmq.testing.simulation.bus.run import run_seed
from bucketmq.testing.simulation.bus.swarm import swarm
from bucketmq.testing.simulation.main import Kit

BUS = Kit(draw, run_seed, swarm, MUTANTS, hunt)
