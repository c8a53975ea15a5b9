"""A trial that takes so much time on the processor, and nothing else."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

VERSION = "1"


def simulate(parameters: Mapping[str, Any], seed: int) -> dict[str, float]:
    end = time.process_time() + parameters["seconds"]
    while time.process_time() < end:
        pass
    return {"n": float(seed % 7)}
