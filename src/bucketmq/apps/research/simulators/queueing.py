"""A queue with several servers, Poisson arrivals and exponential service (M/M/c), simulated customer by customer.

Its answers are known exactly (Erlang's C formula, `exact`), which makes it the truth that tests compare with.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Mapping
from typing import Any

from bucketmq.errors import Invalid

VERSION = "1"

CUSTOMERS = 2_000
WARM_UP = 0.2
"""The share of customers, from the first one on, that is not counted: they find the system emptier than it becomes."""


def simulate(parameters: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Parameters: `load` (0 to 1, what share of its time a server works), `servers`, `service_seconds`, `customers`.

    Metrics: `wait` and `stay`, seconds of a customer, on average; `waited`, the share of customers who had to wait.
    """
    servers, arrivals, services, customers = _read(parameters)
    chance = random.Random(seed)
    free = [0.0] * servers
    """When each server is free next: a heap."""
    skipped = int(customers * WARM_UP)
    now = wait_sum = stay_sum = 0.0
    waited = 0
    for number in range(customers):
        now += chance.expovariate(arrivals)
        begins = max(now, free[0])
        ends = begins + chance.expovariate(services)
        heapq.heapreplace(free, ends)
        if number >= skipped:
            wait_sum += begins - now
            stay_sum += ends - now
            waited += begins > now
    counted = customers - skipped
    return {"wait": wait_sum / counted, "stay": stay_sum / counted, "waited": waited / counted}


def exact(parameters: Mapping[str, Any]) -> dict[str, float]:
    """What the metrics are in the long run (A. K. Erlang, 1917)."""
    servers, arrivals, services, _ = _read(parameters)
    offered = arrivals / services
    term, total = 1.0, 1.0
    for number in range(1, servers):
        term *= offered / number
        total += term
    last = term * offered / servers * servers / (servers - offered)
    waited = last / (total + last)
    wait = waited / (servers * services - arrivals)
    return {"wait": wait, "stay": wait + 1 / services, "waited": waited}


def _read(parameters: Mapping[str, Any]) -> tuple[int, float, float, int]:
    """Servers, arrivals and services per second, customers."""
    load, servers = float(parameters.get("load", 0.8)), int(parameters.get("servers", 1))
    seconds, customers = float(parameters.get("service_seconds", 1.0)), int(parameters.get("customers", CUSTOMERS))
    if not (0 < load < 1 and servers >= 1 and seconds > 0 and math.isfinite(seconds) and customers >= 10):
        raise Invalid("M/M/c needs a load between 0 and 1, servers from 1, service_seconds over 0, customers from 10")
    return servers, load * servers / seconds, 1 / seconds, customers
