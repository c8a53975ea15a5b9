"""Means and their intervals, the same bytes in every process. Pure.

Values come in the order of their trials' names, sums are exact (`math.fsum`), and the chance of the bootstrap follows
from what is estimated. So nothing depends on which worker was faster.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from typing import Literal

import msgspec

RESAMPLES = 2_000


class Estimate(msgspec.Struct, frozen=True):
    """A mean, and where it lies with the wanted confidence; without an interval where there are too few values."""

    count: int
    mean: float
    low: float | None = None
    high: float | None = None

    @property
    def half_width(self) -> float:
        return math.inf if self.low is None or self.high is None else (self.high - self.low) / 2


def estimate(
    values: Sequence[float], *, confidence: float, how: Literal["t", "bootstrap"] = "t", about: str = ""
) -> Estimate:
    """The mean of values and its interval: Student's t, or the percentiles of a bootstrap whose seed is `about`."""
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return Estimate(count, mean)
    if how == "bootstrap":
        return Estimate(count, mean, *_bootstrap(values, confidence, about))
    variance = math.fsum((each - mean) ** 2 for each in values) / (count - 1)
    half = _t(count - 1, confidence) * math.sqrt(variance / count)
    return Estimate(count, mean, mean - half, mean + half)


def _t(freedom: int, confidence: float) -> float:
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2))


def _bootstrap(values: Sequence[float], confidence: float, about: str) -> tuple[float, float]:
    import numpy as np

    seed = int.from_bytes(hashlib.sha256(f"bootstrap {about}".encode()).digest()[:8])
    chance = np.random.Generator(np.random.PCG64(seed))
    given = np.asarray(values)
    means = np.sort(given[chance.integers(0, len(given), (RESAMPLES, len(given)))].mean(axis=1))
    tail = (1 - confidence) / 2
    low, high = np.quantile(means, (tail, 1 - tail))
    return float(low), float(high)
