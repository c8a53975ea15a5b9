"""What `bucketmq sim --tables` calls."""

from __future__ import annotations

from bucketmq.testing.simulation.main import Kit
from bucketmq.testing.simulation.tables.mutants import MUTANTS, hunt
from bucketmq.testing.simulation.tables.plan import draw
from bucketmq.testing.simulation.tables.run import run_seed
from bucketmq.testing.simulation.tables.swarm import swarm

TABLES = Kit(draw, run_seed, swarm, MUTANTS, hunt)
