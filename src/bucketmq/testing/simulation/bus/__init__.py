"""The simulator of the event bus: users' objects, notifications, sweeps, rules, endpoints and watchers under faults.

Beside the queues' simulator and on the same world, store and processes. `run_seed(7)` runs one history.
"""

from __future__ import annotations


from bucketmq.testing.simulation.bus.run import Report, run_seed


__all__ = ["Report", "run_seed"]
