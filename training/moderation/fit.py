"""Logistic regression for several categories at once, with labels that may be unknown, and its calibration."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Floats = NDArray[np.float32]


class Fitted(NamedTuple):
    coefficients: Array
    bias: Array

    def scores(self, features: Any) -> Floats:
        found: Floats = (features @ self.coefficients + self.bias).astype(np.float32)
        return found


def weights_for(labels: Array, base: Array, *, balance: float) -> Array:
    """A weight for each label: 0 where unknown, and the rarer answer of a category counts for more.

    `balance` 1 makes both answers of a category weigh the same, 0 leaves them as they are.
    """
    known = ~np.isnan(labels)
    weights: Array = np.where(known, base[:, None], 0.0)
    for column in range(labels.shape[1]):
        yes = weights[labels[:, column] == 1, column].sum()
        no = weights[labels[:, column] == 0, column].sum()
        if yes and no:
            weights[labels[:, column] == 1, column] *= (no / yes) ** balance
    weights /= np.maximum(weights.sum(axis=0), 1e-9)
    return weights


def softly_weighted(target: Array, base: Array, *, balance: float) -> tuple[Array, Array]:
    """The same for probabilities instead of labels: what to fit to, and a weight for each."""
    yes, no = (base[:, None] * target).sum(axis=0), (base[:, None] * (1 - target)).sum(axis=0)
    rarer = (no / yes) ** balance
    total = rarer * target + 1 - target
    weights = base[:, None] * total
    return rarer * target / total, weights / weights.sum(axis=0)


def fit(features: Any, labels: Array, weights: Array, *, penalty: float | Array, rounds: int = 80) -> Fitted:
    """Minimises the weighted log loss plus `penalty` times the squared coefficients, all categories in one go."""
    width, count = features.shape[1], labels.shape[1]
    target = np.nan_to_num(labels).astype(np.float32)
    weights = weights.astype(np.float32)
    turned = features.T.tocsr() if hasattr(features, "tocsr") else features.T
    ridge = np.broadcast_to(np.asarray(penalty, dtype=np.float32).reshape(-1, 1), (width, 1))

    def loss(flat: Floats) -> tuple[float, Floats]:
        held = flat.reshape(width + 1, count)
        scores = np.clip(features @ held[:-1] + held[-1], -40, 40)
        pulled = ridge * held[:-1]
        value = np.sum(weights * (np.logaddexp(0, scores) - target * scores), dtype=np.float64)
        value += np.sum(pulled * held[:-1], dtype=np.float64)
        slope = weights * (1 / (1 + np.exp(-scores)) - target)
        gradient = np.empty_like(held)
        gradient[:-1] = turned @ slope
        gradient[:-1] += 2 * pulled
        gradient[-1] = slope.sum(axis=0)
        return float(value), gradient.ravel()

    found = _descend(loss, np.zeros((width + 1) * count, dtype=np.float32), rounds).reshape(width + 1, count)
    return Fitted(found[:-1].astype(np.float64), found[-1].astype(np.float64))


def _descend(loss: Callable[[Floats], tuple[float, Floats]], at: Floats, rounds: int) -> Floats:
    """L-BFGS for a convex loss, in single precision: with a million coefficients that is what the time goes into."""
    value, gradient = loss(at)
    memory: deque[tuple[Floats, Floats, float]] = deque(maxlen=6)
    for _ in range(rounds):
        way, shares = gradient.copy(), []
        for moved, turned, inverse in reversed(memory):
            shares.append(inverse * float(moved @ way))
            way -= np.float32(shares[-1]) * turned
        if memory:
            moved, turned, inverse = memory[-1]
            way *= np.float32(1 / (inverse * float(turned @ turned)))
        else:
            way /= np.float32(max(float(np.linalg.norm(way)), 1e-12))
        for (moved, turned, inverse), share in zip(memory, reversed(shares), strict=True):
            way += np.float32(share - inverse * float(turned @ way)) * moved
        fall, step = float(gradient @ way), 1.0
        while True:
            there = at - np.float32(step) * way
            lower, steeper = loss(there)
            if lower <= value - 1e-4 * step * fall or step < 1e-5:
                break
            step /= 2
        moved, turned = there - at, steeper - gradient
        if (curved := float(moved @ turned)) > 1e-12:
            memory.append((moved, turned, 1 / curved))
        done = value - lower < 1e-7 * abs(value)
        at, value, gradient = there, lower, steeper
        if done:
            break
    return at


def calibrate(scores: Array, labels: Array, weights: Array) -> tuple[list[float], list[float]]:
    """Slope and offset for each category, so that the squashed score is the share of texts that are of it (Platt)."""
    slopes, offsets = [], []
    for column in range(labels.shape[1]):
        known = weights[:, column] > 0
        x, y, w = (
            scores[known, column : column + 1],
            labels[known, column : column + 1],
            weights[known, column : column + 1],
        )
        # Platt's targets: a little away from 0 and 1, so that few positives do not make the slope endless.
        yes = y.sum()
        soft = np.where(y == 1, (yes + 1) / (yes + 2), 1 / (len(y) - yes + 2))
        fitted = fit(x.astype(np.float32), soft, w / w.sum(), penalty=1e-9, rounds=200)
        slopes.append(round(float(fitted.coefficients[0, 0]), 4))
        offsets.append(round(float(fitted.bias[0]), 4))
    return slopes, offsets


def auroc(scores: Array, labels: Array) -> float:
    """The chance that a text of the category scores above one that is not, ties counting half."""
    order = np.argsort(scores, kind="stable")
    ranked = scores[order]
    first = np.searchsorted(ranked, ranked, side="left")
    last = np.searchsorted(ranked, ranked, side="right")
    ranks = np.empty(len(scores))
    ranks[order] = (first + last + 1) / 2
    yes = labels == 1
    count = int(yes.sum())
    if not count or count == len(labels):
        return float("nan")
    return float((ranks[yes].sum() - count * (count + 1) / 2) / (count * (len(labels) - count)))


class Network(NamedTuple):
    """One hidden layer."""

    inner: Floats
    inner_bias: Floats
    outer: Floats
    bias: Floats

    def scores(self, features: Floats) -> Floats:
        found: Floats = np.maximum(features @ self.inner + self.inner_bias, 0) @ self.outer + self.bias
        return found

    @classmethod
    def averaged(cls, each: list[Network]) -> Network:
        """One that says what these say on average: their hidden units side by side."""
        return cls(
            np.concatenate([one.inner for one in each], axis=1),
            np.concatenate([one.inner_bias for one in each]),
            (np.concatenate([one.outer for one in each]) / len(each)).astype(np.float32),
            np.mean([one.bias for one in each], axis=0, dtype=np.float32),
        )


def network(
    features: Floats, target: Array, weights: Array, *, hidden: int, decay: float, rate: float, epochs: int, seed: int
) -> Network:
    """Fitted to probabilities `target`, each with its weight, by Adam (Kingma and Ba, 2014) in small batches.

    The rate falls to nothing along half a cosine. The same seed gives the same network.
    """
    chance, (count, width), size = np.random.default_rng(seed), features.shape, 256
    wanted, counting = target.astype(np.float32), (weights / weights.mean()).astype(np.float32)
    made = Network(
        chance.normal(0, np.sqrt(2 / width), (width, hidden)).astype(np.float32),
        np.zeros(hidden, np.float32),
        chance.normal(0, np.sqrt(1 / hidden), (hidden, target.shape[1])).astype(np.float32),
        np.zeros(target.shape[1], np.float32),
    )
    means, squares = ([np.zeros_like(part) for part in made] for _ in range(2))
    steps, step = epochs * -(-count // size), 0
    for _ in range(epochs):
        order = chance.permutation(count)
        for at in range(0, count, size):
            step += 1
            some = order[at : at + size]
            slopes = _slopes(made, features[some], wanted[some], counting[some], decay)
            pace = rate * (0.5 + 0.5 * np.cos(np.pi * step / steps))
            for i, slope in enumerate(slopes):
                means[i] += 0.1 * (slope - means[i])
                squares[i] += 0.001 * (slope * slope - squares[i])
                long = np.sqrt(squares[i] / (1 - 0.999**step)) + 1e-8
                np.subtract(made[i], pace * means[i] / (1 - 0.9**step) / long, out=made[i])
    return made


def _slopes(made: Network, features: Floats, target: Floats, weights: Floats, decay: float) -> tuple[Floats, ...]:
    """How the loss changes with each part of a network."""
    before = features @ made.inner + made.inner_bias
    after = np.maximum(before, 0)
    scores = np.clip(after @ made.outer + made.bias, -40, 40)
    off = weights * (1 / (1 + np.exp(-scores)) - target) / len(features)
    back = (off @ made.outer.T) * (before > 0)
    return (
        features.T @ back + decay * made.inner,
        back.sum(axis=0),
        after.T @ off + decay * made.outer,
        off.sum(axis=0),
    )
