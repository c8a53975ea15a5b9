"""An epidemic in a closed population: susceptible, infected, recovered (SIR), one event at a time (Gillespie)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from bucketmq.errors import Invalid

VERSION = "1"


def simulate(parameters: Mapping[str, Any], seed: int) -> dict[str, float]:
    """Parameters: `contacts` (infectious contacts of one person a day), `recovery_days`, `vaccinated` (a share of the
    population), `population`, `infected` (at the start).

    Metrics: `attacked`, the share of the population that was ever infected; `peak`, the largest share that was infected
    at a time; `days` until nobody is.
    """
    contacts, days = float(parameters.get("contacts", 0.3)), float(parameters.get("recovery_days", 7.0))
    population, infected = int(parameters.get("population", 1_000)), int(parameters.get("infected", 5))
    vaccinated = float(parameters.get("vaccinated", 0.0))
    if not (contacts >= 0 and days > 0 and 0 <= vaccinated <= 1 and 1 <= infected <= population):
        raise Invalid(
            "SIR needs contacts from 0, recovery_days over 0, vaccinated from 0 to 1, and infected from 1 to population"
        )
    susceptible = max(0, round((population - infected) * (1 - vaccinated)))
    chance = random.Random(seed)
    now, ever, peak = 0.0, infected, infected
    while infected:
        infections = contacts * infected * susceptible / population
        recoveries = infected / days
        both = infections + recoveries
        now += chance.expovariate(both)
        if chance.random() * both < infections:
            susceptible, infected, ever = susceptible - 1, infected + 1, ever + 1
            peak = max(peak, infected)
        else:
            infected -= 1
    return {"attacked": ever / population, "peak": peak / population, "days": now}
